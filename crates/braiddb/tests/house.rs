//! Holds the house in order: layers import only layers below, files and functions stay short,
//! every file says what it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Layers from the top down; a layer may name itself and what stands below it.
const LAYERS: [&str; 17] = [
    "database",
    "experiment",
    "simulation",
    "durability",
    "transaction",
    "record",
    "index",
    "version",
    "reclaim",
    "log",
    "sched",
    "io",
    "types",
    "rid",
    "memory",
    "planted",
    "sync",
];
const MOST_FILE_LINES: usize = 600;
const MOST_FUNCTION_LINES: usize = 80;

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut found);
        }
    }
    assert!(found.len() > 50, "{} source files", found.len());
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// The layer of a file below `crates/braiddb/src`: its first folder, or its own name.
fn layer(path: &Path) -> Option<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let first = path.strip_prefix(root).ok()?.components().next()?;
    let name = first.as_os_str().to_str()?.trim_end_matches(".rs");
    if name == "lib" {
        return None;
    }
    let position = LAYERS.iter().position(|layer| *layer == name);
    Some(position.unwrap_or_else(|| panic!("{name} is no layer; give it its place in LAYERS")))
}

#[test]
fn imports_go_down() {
    let mut seen = 0;
    for (path, text) in all_sources() {
        let Some(layer) = layer(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for (place, _) in code.match_indices("crate::") {
                let name: String = code[place + "crate::".len()..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                let Some(target) = LAYERS.iter().position(|layer| *layer == name) else { continue };
                seen += 1;
                let place = format!("{}:{}", path.display(), number + 1);
                assert!(target >= layer, "{place}: {} imports {name}", LAYERS[layer]);
            }
        }
    }
    assert!(seen > 50, "only {seen} imports seen");
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (path, text) in all_sources() {
        let place = path.display();
        assert!(text.starts_with("//!"), "{place} does not say what it is");
        let lines = text.lines().count();
        assert!(lines <= MOST_FILE_LINES, "{place} has {lines} lines");
    }
}

#[test]
fn functions_are_short() {
    for (path, text) in all_sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let starts = head.contains("fn ") && !head.starts_with("//") && !head.ends_with(';');
            if !starts || head.contains("Fn(") || head.contains('"') {
                continue;
            }
            let closing = format!("{}}}", " ".repeat(indent));
            let end = lines[start..].iter().position(|line| **line == closing);
            let length = end.map_or(1, |end| end + 1);
            let place = format!("{}:{}", path.display(), start + 1);
            assert!(length <= MOST_FUNCTION_LINES, "{place}: a function of {length} lines");
        }
    }
}
