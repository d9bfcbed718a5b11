//! Names in reports come from the program, or from a file. Each name is interned for the lifetime
//! of the process, so that both have the same type.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde::{Deserialize, Deserializer};

/// A name. The alias is necessary: serde treats a field of type `&str` as borrowed from the input.
pub(super) type Name = &'static str;

/// Reads a name.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
    Ok(intern(&String::deserialize(from)?))
}

/// Reads names.
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
    Ok(Vec::<String>::deserialize(from)?.iter().map(|name| intern(name)).collect())
}

/// Returns the interned name for a text.
fn intern(text: &str) -> Name {
    static NAMES: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().expect("no thread panics while it is locked");
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
    fn an_interned_text_is_stored_once() {
        let (one, other) = (intern("kept once"), intern(&["kept", "once"].join(" ")));
        assert_eq!((one, one.as_ptr()), ("kept once", other.as_ptr()));
    }
}
