//! Checks that the files of a layer import each other in one direction. Files that import each
//! other, directly or through others, form a circle: none of them can be understood alone. In some
//! layers the same holds for folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::comments::is_of_tests;

/// Layers in which pairs of files may import each other, because their types contain each other. In
/// the other layers no file may be in a circle.
const LAYERS_WITH_PAIRS: [&str; 3] = ["page", "record", "types"];

/// Layers whose folders, too, import each other in one direction.
const LAYERS_OF_ROOMS: [&str; 1] = ["transaction"];

/// The name of a module from the root of the crate. The root is empty.
type ModulePath = Vec<String>;

/// One import: its path, and true if the module exports it.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    is_exported: bool,
}

/// Returns the code of a file without comments and without the tests at its end.
fn code_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let is_of_tests = |number: &usize| {
        let (head, next) = (lines[*number], lines.get(number + 1));
        (head.starts_with("#[cfg(test)") || head.starts_with("#[cfg(all(test"))
            && next.is_some_and(|next| next.starts_with("mod ") && next.ends_with(" {"))
    };
    let end = (0..lines.len()).find(is_of_tests).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// Adds the paths of one tree of a `use` item.
fn expand(prefix: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let (head, inside) = tree.split_once('{').map_or((tree, None), |(head, rest)| {
        (head, Some(rest.rsplit_once('}').expect("a closed tree").0))
    });
    let head = head.split(" as ").next().unwrap();
    let names = head.split("::").map(str::trim).filter(|name| !name.is_empty());
    let path: Vec<String> = prefix.iter().cloned().chain(names.map(str::to_owned)).collect();
    let Some(inside) = inside else {
        found.extend((!path.is_empty()).then_some(path));
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (place, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&path, &inside[start..place], found);
                start = place + 1;
            }
            _ => {}
        }
    }
    expand(&path, &inside[start..], found);
}

/// Returns the imports of a file: its `use` items, and the paths in its code that begin with
/// `crate` or `super`.
fn imports(code: &str) -> Vec<Import> {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let head = line.trim_start();
        let visible = head.strip_prefix("pub").map(|rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest).trim_start(),
            None => rest.trim_start(),
        });
        let Some(tree) = visible.unwrap_or(head).strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().expect("a `use` item ends"));
        }
        let mut paths = Vec::new();
        expand(&[], tree.split(';').next().unwrap(), &mut paths);
        let is_exported = visible.is_some();
        found.extend(paths.into_iter().map(|path| Import { path, is_exported }));
    }
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for path in rest.split(|c| !is_of_path(c)) {
        if path.starts_with("crate::") || path.starts_with("super::") {
            let path = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
            found.push(Import { path: path.collect(), is_exported: false });
        }
    }
    found
}

/// The imports of the modules of a crate.
struct Modules {
    imports: BTreeMap<ModulePath, Vec<Import>>,
}

impl Modules {
    /// Reads files, given by their paths in the folder of the sources.
    fn read<'f>(files: impl Iterator<Item = (&'f Path, &'f str)>) -> Self {
        let module = |path: &Path| {
            let path = path.with_extension("");
            let mut names: ModulePath =
                path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
            names.pop_if(|last| last == "mod" || last == "lib");
            names
        };
        let files = files.filter(|(path, _)| !is_of_tests(path));
        Self {
            imports: files.map(|(path, text)| (module(path), imports(&code_of(text)))).collect(),
        }
    }

    /// Returns a path from the root of the crate, if it is not one of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (base, rest) = match path[0].as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (module, &path[1..]),
            "super" => (&module[..module.len() - supers.min(module.len())], &path[supers..]),
            first => {
                let child = [module, &[first.to_owned()]].concat();
                self.imports.contains_key(&child).then_some((module, path))?
            }
        };
        Some([base, rest].concat())
    }

    /// Returns the module that defines what an absolute path names. Follows exports.
    fn definition(&self, path: &[String]) -> ModulePath {
        let longest = (0..=path.len()).rev().find(|len| self.imports.contains_key(&path[..*len]));
        let (module, rest) = path.split_at(longest.unwrap_or(0));
        let exported = |import: &&Import| {
            import.is_exported && import.path.last() == rest.first() && import.path != *rest
        };
        let export = self.imports.get(module).and_then(|all| all.iter().find(exported));
        let original = export.and_then(|export| self.absolute(module, &export.path));
        match original {
            Some(original) if original != path => self.definition(&original),
            _ => module.to_vec(),
        }
    }

    /// Returns the modules of the same layer that each module imports. A module that exports items
    /// of its children does not import them.
    fn edges(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let edges = self.imports.iter().map(|(module, imports)| {
            let paths = imports.iter().filter_map(|import| {
                let target = self.definition(&self.absolute(module, &import.path)?);
                let is_child = import.is_exported && target.starts_with(module);
                let is_same_layer = !target.is_empty() && target.first() == module.first();
                (is_same_layer && !is_child && target != *module).then_some(target)
            });
            (module.clone(), paths.collect())
        });
        edges.collect()
    }

    /// Returns the rooms of the same layer that each room of a layer imports. A room is a folder, or
    /// a file that is in none.
    fn edges_of_rooms(&self, layer: &str) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let mut rooms: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (module, imports) in self.edges() {
            let [first, room, ..] = &module[..] else { continue };
            if first == layer {
                let imported = rooms.entry(vec![first.clone(), room.clone()]).or_default();
                let others = imports.into_iter().filter(|other| other.get(1) != Some(room));
                imported.extend(others.map(|other| other[..other.len().min(2)].to_vec()));
            }
        }
        rooms
    }
}

/// Returns the circles: modules or rooms of which each reaches each other.
fn circles(edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Vec<Vec<String>> {
    let reached = |start: &ModulePath| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(module) = open.pop() {
            let next = edges.get(module).into_iter().flatten();
            open.extend(next.filter(|next| seen.insert((*next).clone())));
        }
        seen
    };
    let reached: BTreeMap<&ModulePath, _> =
        edges.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &ModulePath| {
        let is_back =
            |other: &&ModulePath| reached.get(other).is_some_and(|all| all.contains(module));
        let others = reached[module].iter().filter(is_back);
        others.map(|other| other.join("/")).collect::<Vec<_>>()
    };
    let mut circles: Vec<_> = edges.keys().map(circle).collect();
    circles.retain(|circle| circle.len() > 1);
    circles.sort();
    circles.dedup();
    circles
}

#[test]
fn circles_are_found() {
    let files = [
        ("a/mod.rs", "mod one;\nmod three;\npub(crate) use one::One;\nuse std::rc::Rc;\n"),
        ("a/one.rs", "use super::{\n    two::{Three, Two as Other},\n};\n"),
        ("a/two.rs", "fn f() {\n    crate::a::three::f(); // super::four::f()\n}\n"),
        ("a/three.rs", "use crate::a::One;\nuse crate::b::B;\n"),
        (
            "a/four.rs",
            "use super::One;\n#[cfg(test)]\nmod tests {\n    use super::five::Five;\n}\n",
        ),
        ("a/five.rs", "use super::four::Four;\n"),
        ("b.rs", "use crate::a::One;\n"),
    ];
    let modules = Modules::read(files.iter().map(|(path, text)| (Path::new(path), *text)));
    assert_eq!(circles(&modules.edges()), [["a/one", "a/three", "a/two"]]);
}

#[test]
fn circles_of_rooms_are_found() {
    let files = [
        ("a/low/one.rs", "use crate::a::high::two::Two;\n"),
        ("a/low/three.rs", ""),
        ("a/high/two.rs", "use crate::a::low::three::Three;\n"),
        ("a/top.rs", "use super::low::one::One;\n"),
    ];
    let modules = Modules::read(files.iter().map(|(path, text)| (Path::new(path), *text)));
    assert!(circles(&modules.edges()).is_empty());
    assert_eq!(circles(&modules.edges_of_rooms("a")), [["a/high", "a/low"]]);
}

#[test]
fn circles_of_imports_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files: Vec<(PathBuf, String)> = super::all_sources();
    let files = files
        .iter()
        .filter_map(|(path, text)| Some((path.strip_prefix(&root).ok()?, text.as_str())));
    let modules = Modules::read(files);
    let edges = modules.edges();
    let count: usize = edges.values().map(BTreeSet::len).sum();
    assert!(count > 500, "only {count} imports seen");
    for circle in circles(&edges) {
        let layer = circle[0].split('/').next().unwrap();
        let most = if LAYERS_WITH_PAIRS.contains(&layer) { 2 } else { 1 };
        assert!(circle.len() <= most, "{} files import each other: {circle:?}", circle.len());
    }
    for layer in LAYERS_OF_ROOMS {
        let circles = circles(&modules.edges_of_rooms(layer));
        assert!(circles.is_empty(), "rooms of {layer} import each other: {circles:?}");
    }
}
