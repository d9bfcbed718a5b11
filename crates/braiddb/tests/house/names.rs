//! Checks names: no two types of the crate share a name, and constants name their kind of limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::comments::is_of_tests;

/// Names that several types have on purpose.
const SHARED: [(&str, &str); 6] = [
    ("HoleSearch", "models"),
    ("PlaceRun", "models"),
    ("RawLock", "one for each kind of build"),
    ("SimulatedDisk", "builds without simulation"),
    ("SimulatedLock", "builds without simulation"),
    ("Zones", "models"),
];

/// Beginnings of constants that do not name their kind of limit: `MAX_`, `MIN_` and `DEFAULT_` do.
const VAGUE: [&str; 3] = ["MOST_", "LEAST_", "USUAL_"];

/// Returns the word after a keyword at the beginning of an item's line.
fn item<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest[rest.find(')')? + 1..].trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let rest = keywords.iter().find_map(|keyword| line.strip_prefix(keyword)?.strip_prefix(' '))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Returns the names of the types that a file defines outside of functions and inner modules.
fn types_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| item(line, &["struct", "enum", "trait", "union", "type"]))
}

/// Returns the constants and statics of a file that are named vaguely.
fn vague_constants(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| item(line.trim_start(), &["const", "static"]));
    names.filter(|name| VAGUE.iter().any(|beginning| name.starts_with(beginning)))
}

/// Returns the names that several types of the crate share, with their files, and how many names of
/// types there are.
///
/// # Panics
/// Panics if a name in [`SHARED`] has become the name of one type.
fn shared_names(files: &[(PathBuf, String)]) -> (BTreeMap<&str, Vec<&Path>>, usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut places = BTreeMap::<&str, Vec<&Path>>::new();
    for (path, text) in files {
        if path.starts_with(&root) && !is_of_tests(path.strip_prefix(&root).unwrap()) {
            types_of(text).for_each(|name| places.entry(name).or_default().push(path));
        }
    }
    let count = places.len();
    places.retain(|_, files| files.len() > 1);
    for (name, why) in SHARED {
        assert!(places.remove(name).is_some(), "{name} is the name of one type now ({why})");
    }
    (places, count)
}

#[test]
fn type_names_are_unique() {
    let text =
        "pub(crate) struct One<'a>;\nunsafe trait Two {}\n    enum Inner {}\ntype Three = ();\n";
    assert_eq!(types_of(text).collect::<Vec<_>>(), ["One", "Two", "Three"]);
    let files = super::all_sources();
    let (shared, count) = shared_names(&files);
    assert!(count > 400, "only {count} types seen");
    assert!(shared.is_empty(), "these types share their names: {shared:#?}");
}

#[test]
fn limits_are_named_max_or_min() {
    let text = "const MOST_BYTES: u64 = 1;\nfn f() {\n    static LEAST_ROOM: u64 = 1;\n}\n";
    assert_eq!(vague_constants(text).collect::<Vec<_>>(), ["MOST_BYTES", "LEAST_ROOM"]);
    for (path, text) in super::all_sources().into_iter().chain(super::all_tests()) {
        let vague = vague_constants(&text).collect::<Vec<_>>();
        assert!(vague.is_empty(), "{}: rename {vague:?}", path.display());
    }
}
