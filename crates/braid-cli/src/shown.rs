//! Values and names in error messages: only the beginning of long ones.

use std::borrow::Cow;

/// Maximum number of characters of a value.
const MAX_CHARACTERS: usize = 60;
/// Maximum number of names in a list.
pub const MAX_NAMES: usize = 40;

/// The beginning of a text.
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The beginning of a text in quotation marks.
pub fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

/// The first names of a list, separated by commas.
pub fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut names = names.into_iter();
    let first: Vec<_> = names.by_ref().take(MAX_NAMES).map(shortened).collect();
    let more = if names.next().is_some() { ", …" } else { "" };
    first.join(", ") + more
}
