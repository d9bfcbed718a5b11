//! Checks that examples are whole programs, which a reader can paste and run, and that pages show
//! the same programs as the files that are run.

use std::fs;
use std::path::{Path, PathBuf};

use super::{files, repository};

/// Other crates that examples use.
const CRATES: [&str; 11] = [
    "anyhow",
    "fjall",
    "futures_util",
    "metrics_exporter_prometheus",
    "redb",
    "rocksdb",
    "rusqlite",
    "serde",
    "serde_json",
    "tempfile",
    "tokio",
];
/// Languages of fences that are no Rust code.
const OTHER_LANGUAGES: [&str; 4] = ["console", "json", "text", "toml"];
/// Pages whose examples the tests of documentation compile.
const PAGES: [&str; 6] = [
    "README.md",
    "docs/changes.md",
    "docs/expiry.md",
    "docs/indexes.md",
    "docs/paged.md",
    "docs/proposals.md",
];
/// Stores from which a program of the guide moves data.
const STORES: [&str; 4] = ["redb", "fjall", "rocksdb", "sqlite"];

/// An example in documentation.
struct Example {
    /// The file and the line of the example.
    place: String,
    /// The documentation between the previous example and this one.
    before: String,
    code: String,
}

/// Collects the Rust examples of a text: of its documentation comments, or of the whole text if it is
/// a page.
fn examples(path: &Path, text: &str) -> Vec<Example> {
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let (mut found, mut before, mut open) = (Vec::new(), String::new(), None);
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let documented = match code.strip_prefix("//!").or_else(|| code.strip_prefix("///")) {
            Some(comment) => comment.strip_prefix(' ').unwrap_or(comment),
            None if is_page => line,
            None => continue,
        };
        match (documented.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let is_rust = !OTHER_LANGUAGES.contains(&language);
                open = Some((number + 1, is_rust, String::new()));
            }
            (Some(_), Some((number, is_rust, code))) => {
                if *is_rust {
                    let place = format!("{}:{number}", path.display());
                    let (before, code) = (std::mem::take(&mut before), std::mem::take(code));
                    found.push(Example { place, before, code });
                }
                open = None;
            }
            (None, Some((_, _, code))) => *code += &format!("{documented}\n"),
            (None, None) => before += &format!("{documented}\n"),
        }
    }
    found
}

fn examples_below(folder: &str) -> Vec<Example> {
    let mut found = Vec::new();
    files(&repository().join(folder), &["rs"], &mut found);
    let read = |path: PathBuf| examples(&path, &fs::read_to_string(&path).unwrap());
    found.into_iter().flat_map(read).collect()
}

/// Returns true if a program names a crate.
fn uses(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path)
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

#[test]
fn examples_hide_nothing() {
    let all = examples_below("crates/braiddb/src");
    assert!(all.len() > 250, "only {} examples", all.len());
    for Example { place, code, .. } in all {
        let mut lines = code.lines();
        let hidden = lines.find(|line| matches!(line.trim_start().split_once(' '), Some(("#", _))));
        assert!(hidden.is_none(), "{place} hides {hidden:?}");
    }
}

#[test]
fn examples_of_the_guide_are_programs_that_name_their_crates() {
    let mut programs = examples_below("crates/braiddb/src/database/guide");
    assert!(programs.len() > 35, "only {} programs", programs.len());
    for page in PAGES {
        let page = repository().join(page);
        programs.extend(examples(&page, &fs::read_to_string(&page).unwrap()));
    }
    for Example { place, before, code } in programs {
        assert!(code.contains("fn main()"), "{place} is no program");
        for name in CRATES.iter().filter(|name| uses(&code, name)) {
            let named = [' ', '`', '\n'].map(|end| format!("cargo add {name}{end}"));
            let is_named = named.iter().any(|named| before.contains(named));
            assert!(is_named, "{place} needs `cargo add {name}` before the program");
        }
    }
}

#[test]
fn the_guide_contains_the_programs_that_move_data_unchanged() {
    let moving = examples_below("crates/braiddb/src/database/guide/");
    for store in STORES {
        let path = format!("lab/peers/examples/move_from_{store}.rs");
        let program = fs::read_to_string(repository().join(&path)).unwrap();
        let begin = program.find("\nuse ").unwrap() + 1;
        let is_shown = moving.iter().any(|example| example.code == program[begin..]);
        assert!(is_shown, "guide/moving.rs has another program than {path}");
    }
}

/// The program in the comparison with other stores is the program that is run.
#[test]
fn the_docs_contain_the_small_example_unchanged() {
    let read = |file: &str| fs::read_to_string(repository().join(file)).unwrap();
    let (program, compared) = (read("examples/small.rs"), read("docs/compared.md"));
    let begin = program.find("use std::path::Path;").unwrap();
    let end = program.find("#[tokio::main]").unwrap();
    let listing = format!("```rust\n{}\n```\n", program[begin..end].trim_end());
    assert!(compared.contains(&listing), "docs/compared.md has another program than:\n{listing}");
}
