//! The guide page of errors has a row for every error, in the section of its kind.

use std::collections::{BTreeMap, BTreeSet};

use super::samples;

const PAGE: &str = include_str!("../../guide/errors.rs");

/// Returns the errors in the first cells of the page's tables, with the section of each.
fn rows() -> BTreeMap<&'static str, &'static str> {
    let (mut section, mut rows) = ("", BTreeMap::new());
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("//! ## ") {
            section = title;
        }
        let first_cell = line.strip_prefix("//! | ").and_then(|line| line.split(" | ").next());
        let is_row = !section.is_empty() && first_cell.is_some_and(|cell| cell.starts_with('`'));
        for name in first_cell.filter(|_| is_row).into_iter().flat_map(|cell| cell.split(", ")) {
            let other = rows.insert(name.trim_matches('`'), section);
            assert!(other.is_none(), "{name} has two rows");
        }
    }
    rows
}

/// Returns the variant of an error, and the same with the variant of its detail if it has one:
/// `Busy` and `Busy(Checkpoint)`.
fn names(error: &str) -> [String; 2] {
    let end_of_word = |text: &str| text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let (variant, rest) = error.split_at(end_of_word(error));
    let detail = rest.strip_prefix('(').map_or("", |rest| &rest[..end_of_word(rest)]);
    [variant.to_owned(), format!("{variant}({detail})")]
}

#[test]
fn the_page_has_every_error_in_the_section_of_its_kind() {
    let rows = rows();
    let mut named = BTreeSet::new();
    for error in samples() {
        let [variant, detail] = names(&format!("{error:?}"));
        let row = [&*detail, &*variant].into_iter().find_map(|name| rows.get_key_value(name));
        let (name, section) = row.unwrap_or_else(|| panic!("no row for {variant} or {detail}"));
        assert_eq!(*section, format!("{:?}", error.kind()), "section of {name}");
        named.insert(*name);
    }
    let unknown: Vec<_> = rows.keys().filter(|name| !named.contains(**name)).collect();
    assert!(unknown.is_empty(), "rows of errors that do not exist: {unknown:?}");
}
