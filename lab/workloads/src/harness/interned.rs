//! Names that reports have from the program and, where they are read back from a file, from there: each is kept once for
//! as long as the process lives, so that both are the same type.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde::{Deserialize, Deserializer};

/// A name. (As a type of its own, or a field of it would be taken for one that borrows what it is read from.)
pub(super) type Name = &'static str;

/// Reads a name.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
    Ok(intern(&String::deserialize(from)?))
}

/// Reads names.
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
    Ok(Vec::<String>::deserialize(from)?.iter().map(|name| intern(name)).collect())
}

/// The one name of that text.
fn intern(text: &str) -> Name {
    static NAMES: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().expect("nobody panics while it is locked");
    if let Some(name) = names.get(text) {
        return name;
    }
    let name: Name = Box::leak(text.to_owned().into_boxed_str());
    names.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let (one, other) = (intern("kept once"), intern(&["kept", "once"].join(" ")));
        assert_eq!((one, one.as_ptr()), ("kept once", other.as_ptr()));
    }
}
