//! Checks the conventions of the source code:
//! - Layers import only lower layers, and few files of a layer import each other in a circle.
//! - Files and functions are short.
//! - Every file has a description, and every public method has an example. Examples are whole programs.
//! - Unsafe code and weak orderings have a written argument.
//! - Every test that may hang has a time limit and prints the state of its databases.
//! - Prose is clear, and the front pages are short.

#[path = "house/circles.rs"]
mod circles;
#[path = "house/comments.rs"]
mod comments;
#[path = "house/examples.rs"]
mod examples;
#[path = "house/names.rs"]
mod names;
#[path = "house/programs.rs"]
mod programs;
#[path = "house/prose.rs"]
mod prose;

use std::fs;
use std::path::{Path, PathBuf};

use comments::Argued;
use examples::Documented;
use prose::Prose;

/// Layers from top to bottom; a layer may use itself and lower layers.
const LAYERS: [&str; 19] = [
    "experiment",
    "simulation",
    "database",
    "durability",
    "transaction",
    "record",
    "page",
    "index",
    "version",
    "reclaim",
    "log",
    "sched",
    "io",
    "types",
    "rid",
    "memory",
    "latch",
    "planted",
    "sync",
];
const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 80;
/// Most unclear sentences per 1000 words, in all comments, error messages and pages.
const MAX_SIGNALS: f64 = 3.0;
/// The same, in each of [`PAGES`].
const MAX_SIGNALS_OF_PAGES: f64 = 2.0;
/// Pages that a newcomer reads; folders count as one.
const PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs"];

/// Returns the folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    files(directory, &["rs"], found);
}

/// Adds the files below a folder whose names have one of these extensions.
fn files(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let has = |extension: &&str| path.extension().is_some_and(|found| found == *extension);
        // Build output is no source.
        if path.is_dir() && !path.ends_with("target") {
            files(&path, extensions, found);
        } else if extensions.iter().any(has) {
            found.push(path);
        }
    }
}

/// Returns the files in one folder of each crate, including those of the laboratory.
fn of_all_crates(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for crates in ["crates", "lab"] {
        for entry in fs::read_dir(repository().join(crates)).unwrap() {
            let source = entry.unwrap().path().join(folder);
            if source.is_dir() {
                sources(&source, &mut found);
            }
        }
    }
    assert!(found.len() > 50, "{} files in {folder}", found.len());
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

fn all_sources() -> Vec<(PathBuf, String)> {
    of_all_crates("src")
}

/// Returns the files of integration tests, except programs that must not compile.
fn all_tests() -> Vec<(PathBuf, String)> {
    let mut tests = of_all_crates("tests");
    tests.retain(|(path, _)| !path.components().any(|part| part.as_os_str() == "programs"));
    tests
}

/// Returns the layer of a file below `crates/braiddb/src`: its first folder, or its own name.
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
fn layers_import_only_lower_layers() {
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
fn files_are_short_and_have_a_description() {
    for (path, text) in all_sources().into_iter().chain(all_tests()) {
        let place = path.display();
        assert!(text.starts_with("//!"), "{place} does not say what it is");
        let lines = text.lines().count();
        assert!(lines <= MAX_FILE_LINES, "{place} has {lines} lines");
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
            assert!(length <= MAX_FUNCTION_LINES, "{place}: a function of {length} lines");
        }
    }
}

#[test]
fn public_methods_have_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let ours = all_sources().into_iter().filter(|(path, _)| path.starts_with(root));
    let ours: Vec<_> = ours.map(|(path, text)| (path.display().to_string(), text)).collect();
    let documented = Documented::of(&examples::exported(&library), &ours);
    assert!(documented.count() > 200, "only {} methods", documented.count());
    let missing = documented.without_example();
    assert!(missing.is_empty(), "without an example:\n{}", missing.join("\n"));
}

/// Checks that every place in these files that needs a written argument has one.
fn assert_argued(files: &[(PathBuf, String)], least: usize, look: impl Fn(&str) -> Argued) {
    let (mut places, mut missing) = (0, Vec::new());
    for (path, text) in files {
        let argued = look(text);
        places += argued.places;
        let lines = argued.missing.into_iter();
        missing.extend(lines.map(|line| format!("{}:{line}", path.display())));
    }
    assert!(places > least, "only {places} places");
    assert!(missing.is_empty(), "without an argument:\n{}", missing.join("\n"));
}

#[test]
fn unsafe_blocks_have_a_safety_comment() {
    let call = |argument: &str| format!("fn f() {{\n    {argument}\n    unsafe {{ g() }};\n}}\n");
    let missing = |text: &str| comments::unsafe_code(text).missing;
    assert!(missing(&call("// SAFETY: nothing leads to it.")).is_empty());
    assert_eq!(missing(&call("// It is safe.")), [3]);
    assert_eq!(missing(&call("// SAFETY: as above.")), [2, 3]);
    assert_eq!(
        missing("/// Frees it.\npub unsafe fn free() {}\nunsafe impl Sync for T {}"),
        [2, 3]
    );
    assert!(missing("/// # Safety\n/// Once.\n#[cold]\nunsafe fn free() {}").is_empty());
    assert_argued(&all_sources(), 1000, comments::unsafe_code);
}

#[test]
fn weak_orderings_have_a_comment() {
    let read =
        |argument: &str| format!("{argument}\nfn f() {{\n    a.load(Ordering::Acquire);\n}}\n");
    let missing = |text: &str| comments::orderings(text).missing;
    assert!(missing(&read("/// Acquire pairs with the Release in `g`.")).is_empty());
    assert_eq!(missing(&read("// Acquire, of another.\n")), [4]);
    assert_eq!(missing(&read("// Relaxed: a hint.")), [3]);
    assert!(
        missing(
            "struct S {\n    // Relaxed: a hint.\n    a: A,\n}\n    s.a.load(Ordering::Relaxed)"
        )
        .is_empty()
    );
    assert_eq!(missing("use atomic::Ordering::{self, Relaxed};\na.load(Relaxed);"), [2]);
    assert!(missing("let durability = Durability::Relaxed;").is_empty());
    let mut files = all_sources();
    files.retain(|(path, _)| !comments::is_of_tests(path));
    assert_argued(&files, 500, comments::orderings);
}

/// Primitives that only `crate::sync` may import from elsewhere. All other modules import them from
/// there, so that models and controlled schedules intercept every access.
const BEHIND_THE_DOOR: [&str; 15] = [
    "std::sync::atomic",
    "std::sync::mpsc",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::Once",
    "std::sync::Barrier",
    "std::sync::LazyLock",
    "parking_lot",
    "crossbeam_queue",
    "futures_channel",
    "crossbeam_utils::sync",
    "std::thread",
    "std::hint",
    "Instant::now",
];

/// The names in `use std::sync::{...}` that are not primitives.
const NO_PRIMITIVES: [&str; 2] = ["Arc", "Weak"];

/// Returns the primitive that a line imports without `crate::sync`, if any.
fn bypass(line: &str) -> Option<String> {
    let code = line.split("//").next().unwrap();
    if let Some(found) = BEHIND_THE_DOOR.into_iter().find(|bypass| code.contains(bypass)) {
        return Some(found.to_owned());
    }
    let (_, listed) = code.split_once("std::sync::{")?;
    let mut names = listed.trim_end_matches(|c| "};".contains(c)).split(',').map(str::trim);
    names.find(|name| !NO_PRIMITIVES.contains(name)).map(str::to_owned)
}

#[test]
fn concurrency_primitives_come_from_sync() {
    assert!(bypass("use std::sync::{Arc, Mutex};").is_some());
    assert!(bypass("    let now = std::time::Instant::now();").is_some());
    assert!(bypass("use std::sync::{Arc, Weak};").is_none());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut looked_at = 0;
    for (path, text) in all_sources() {
        let Ok(inside) = path.strip_prefix(&source) else { continue };
        // Tests and models run the code behind `crate::sync` from outside.
        let drives = ["tests", "tests.rs", "model.rs"];
        let apart = inside.iter().any(|part| drives.iter().any(|drive| part == *drive));
        if inside.starts_with("sync") || apart {
            continue;
        }
        looked_at += 1;
        let lines: Vec<&str> = text.lines().collect();
        // Tests are at the end of a file; a module declaration for tests hides no code after it.
        let is_of_tests = |number: usize| {
            lines[number].starts_with("#[cfg(all(test") && lines[number + 1].ends_with(" {")
        };
        let tests = (0..lines.len()).find(|number| is_of_tests(*number)).unwrap_or(lines.len());
        for (number, line) in lines[..tests].iter().enumerate() {
            if let Some(found) = bypass(line) {
                panic!("{}:{}: {found} comes through crate::sync", path.display(), number + 1);
            }
        }
    }
    assert!(looked_at > 100, "only {looked_at} files looked at");
}

/// Returns the functions of a file with their lines.
fn functions(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let head = head.strip_prefix("async ").unwrap_or(head);
        let Some(name) = head.strip_prefix("fn ") else { continue };
        let name = identifier(name);
        let closing = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let body = lines[start..].split_inclusive(|line| *line == closing).next();
        found.push((name, body.unwrap_or_default().join("\n")));
    }
    found
}

/// Returns true if a body calls a function with this name.
fn calls(body: &str, name: &str) -> bool {
    body.match_indices(name).any(|(place, _)| {
        let before = body[..place].chars().next_back();
        !before.is_some_and(is_of_identifier) && body[place + name.len()..].starts_with('(')
    })
}

/// Returns the tests of a file that satisfy `do_something`, or that call a function of the file
/// that does.
fn tests_that(text: &str, do_something: impl Fn(&str) -> bool) -> Vec<String> {
    let functions = functions(text);
    let mut found: Vec<&str> = Vec::new();
    loop {
        let more = functions.iter().find(|(name, body)| {
            let inside = body.split_once('{').map_or("", |(_, inside)| inside);
            let calls_one = || found.iter().any(|one| calls(inside, one));
            !found.contains(&name.as_str()) && (do_something(inside) || calls_one())
        });
        match more {
            Some((name, _)) => found.push(name),
            None => break,
        }
    }
    tests(text).filter(|name| found.contains(&name.as_str())).collect()
}

/// Returns the tests of a file.
fn tests(text: &str) -> impl Iterator<Item = String> {
    text.split("#[test]").skip(1).filter_map(first_name)
}

/// Returns the tests of a file without a time limit: neither they nor the functions they call use
/// `with_limit`.
fn without_limit(text: &str) -> Vec<String> {
    let limited = tests_that(text, |body| calls(body, "with_limit"));
    tests(text).filter(|name| !limited.contains(name)).collect()
}

/// Returns the name of the first function in a text.
fn first_name(text: &str) -> Option<String> {
    let (_, name) = text.split_once("fn ")?;
    Some(identifier(name))
}

/// Returns the identifier at the beginning of a text.
fn identifier(text: &str) -> String {
    text.chars().take_while(|c| is_of_identifier(*c)).collect()
}

/// Returns true for a character of an identifier, or of a macro parameter in its place.
fn is_of_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns true if a line shows that tests of the file use threads or wait, so that they may hang.
fn may_wait(text: &str) -> bool {
    let waits = ["thread::", "block_on(", "run_now(", "Executor::start", ".recv()", ".join()"];
    waits.iter().any(|wait| text.contains(wait))
}

/// Returns the files of unit tests, with the test code of each. Excludes models, because loom
/// bounds them.
fn unit_tests() -> Vec<(PathBuf, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let ours = all_sources().into_iter().filter(|(path, _)| path.starts_with(&source));
    let tests = ours.filter_map(|(path, text)| {
        let begin = text.find("#[test]")?;
        const OF_MODELS: &str = "#[cfg(all(test, loom))]";
        let models = text[..begin].contains(OF_MODELS);
        let model = path.file_stem().is_some_and(|name| name.to_str().unwrap().ends_with("model"));
        let apart = path.components().any(|part| part.as_os_str() == "tests");
        let whole = apart || path.file_name().is_some_and(|name| name == "tests.rs");
        let text = if whole { &text } else { &text[begin..] };
        let text = text.split(OF_MODELS).next().unwrap_or_default().to_owned();
        (!models && !model).then_some((path, text))
    });
    tests.collect()
}

#[test]
fn unit_tests_that_may_wait_have_time_limits() {
    let mut looked_at = 0;
    for (path, text) in unit_tests() {
        if !may_wait(&text) {
            continue;
        }
        looked_at += text.matches("#[test]").count();
        let free = without_limit(&text);
        assert!(free.is_empty(), "{}: with_limit for {}", path.display(), free.join(", "));
    }
    assert!(looked_at > 80, "only {looked_at} tests looked at");
}

/// Returns the number of databases that a file opens successfully without passing them to its time
/// limit.
fn unwatched(text: &str) -> usize {
    let ways = ["open(", "in_memory(", "open_simulated(", "open_watched("];
    let calls = ways.iter().flat_map(|way| {
        let call = format!("Database::{way}");
        let places = text.match_indices(&call).map(|(place, _)| place + call.len());
        places.collect::<Vec<_>>()
    });
    let rest = calls.map(|place| {
        let mut open = 1;
        let end = text[place..].find(|c| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open == 0
        });
        text[place + end.expect("a call that ends") + 1..].trim_start()
    });
    rest.filter(|rest| {
        let opened = rest.strip_prefix(".unwrap()").map(str::trim_start);
        opened.is_some_and(|more| !more.starts_with(".watched()") && !more.starts_with(".close()"))
    })
    .count()
}

#[test]
fn tests_print_the_state_of_their_databases_when_time_runs_out() {
    let open = "Database::open(path(), options).unwrap()";
    assert_eq!(unwatched(&format!("{open}; {open}.watched(); {open}.close()")), 1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("tests"), &mut files);
    sources(&root.join("src/database/tests"), &mut files);
    // Programs that must not compile, and this one, open no database.
    files.retain(|path| {
        !path.components().any(|part| part.as_os_str() == "programs") && !path.ends_with("house.rs")
    });
    assert!(files.len() > 80, "only {} files", files.len());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let lines: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        assert_eq!(unwatched(&lines), 0, "{}: Watched::watched", path.display());
    }
}

#[test]
fn integration_tests_have_time_limits() {
    assert_eq!(without_limit("#[test]\nfn free() {\n    work();\n}\n"), ["free"]);
    let called = "fn all() {\n    with_limit(1, f);\n}\n#[test]\nfn bound() {\n    all();\n}\n";
    assert!(without_limit(called).is_empty());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut looked_at = 0;
    let mut files = Vec::new();
    sources(&tests, &mut files);
    for path in files {
        // This program opens no database.
        if path.ends_with("house.rs") || path.starts_with(tests.join("house")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        looked_at += text.matches("#[test]").count();
        let free = without_limit(&text);
        assert!(free.is_empty(), "{}: with_limit for {}", path.display(), free.join(", "));
    }
    assert!(looked_at > 150, "only {looked_at} tests looked at");
}

/// Code in tests of other crates that runs an engine in the test process.
const RUNS_AN_ENGINE: [&str; 5] =
    ["Database::open", "Database::in_memory", "Stage::default(", ".measure()", "command.round("];

/// In the other crates, tests that run an engine have time limits, and so do all tests of examples.
#[test]
fn tests_of_dependent_crates_have_time_limits() {
    let runs_one = |body: &str| RUNS_AN_ENGINE.iter().any(|word| body.contains(word));
    let free_of = |text: &str| {
        let mut free = without_limit(text);
        let running = tests_that(text, runs_one);
        free.retain(|name| running.contains(name));
        (free, running.len())
    };
    let opening = "fn open() {\n    Database::open();\n}\n#[test]\nfn $name() {\n    open();\n}\n";
    assert_eq!(free_of(opening), (vec!["$name".to_owned()], 1));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut looked_at = 0;
    for (path, text) in all_sources().into_iter().chain(all_tests()) {
        // Tests of the comparison run the other databases too, which have no time limits.
        if path.starts_with(root) || path.starts_with(repository().join("lab/peers")) {
            continue;
        }
        let (free, count) = free_of(&text);
        looked_at += count;
        assert!(free.is_empty(), "{}: with_limit for {}", path.display(), free.join(", "));
    }
    assert!(looked_at > 30, "only {looked_at} tests looked at");
    let mut examples = Vec::new();
    sources(&root.join("../../examples"), &mut examples);
    let mut looked_at = 0;
    for path in examples {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("#[tokio::test"), "{}: with_limit", path.display());
        looked_at += tests(&text).count();
        let free = without_limit(&text);
        assert!(free.is_empty(), "{}: with_limit for {}", path.display(), free.join(", "));
    }
    assert!(looked_at >= 4, "only {looked_at} tests looked at");
}

/// Fails if too many sentences of some prose are unclear, and shows the first ones.
fn assert_clear(name: &str, prose: &Prose, limit: f64) {
    let shown = &prose.signals[..prose.signals.len().min(40)];
    let rate = prose.rate();
    assert!(
        rate <= limit,
        "{name}: {rate:.1} unclear sentences per 1000 words, of {limit} at most (see \
         docs/internals/writing.md):\n{}",
        shown.join("\n")
    );
}

#[test]
fn front_pages_are_short() {
    for (page, limit) in [("README.md", 150), ("ARCHITECTURE.md", 150)] {
        let lines = fs::read_to_string(repository().join(page)).unwrap().lines().count();
        assert!(lines <= limit, "{page} has {lines} lines, of {limit} at most");
    }
}

/// The crate has copies of the pictures, because rustdoc embeds only files that it contains.
#[test]
fn rustdoc_embeds_the_pictures_of_the_docs() {
    for name in ["braid.svg", "layers.svg", "record-path.svg"] {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        let own = fs::read_to_string(own).unwrap();
        let original = fs::read_to_string(repository().join("docs/pictures").join(name)).unwrap();
        assert!(own == original, "docs/{name} differs from docs/pictures/{name}");
        // A blank line would end the HTML block in which rustdoc embeds the picture.
        assert!(!own.contains("\n\n"), "docs/{name} has a blank line");
    }
}

#[test]
fn prose_is_clear() {
    let mut found = Vec::new();
    for part in PAGES.into_iter().chain(["crates", "lab", "examples"]) {
        let path = repository().join(part);
        match path.is_dir() {
            true => files(&path, &["rs", "md"], &mut found),
            false => found.push(path),
        }
    }
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        Prose::of(path.strip_prefix(repository()).unwrap(), &text)
    };
    let mut files: Vec<_> = found.iter().map(|path| (path, read(path))).collect();
    // The worst files first.
    files.sort_by_key(|(_, prose)| std::cmp::Reverse(prose.signals.len()));
    let total = |folder: &str| {
        let mut total = Prose::default();
        let folder = repository().join(folder);
        for (_, prose) in files.iter().filter(|(path, _)| path.starts_with(&folder)) {
            total += prose.clone();
        }
        total
    };
    for page in PAGES {
        assert_clear(page, &total(page), MAX_SIGNALS_OF_PAGES);
    }
    let all = total("");
    assert!(all.words > 100_000, "only {} words", all.words);
    assert_clear("all files", &all, MAX_SIGNALS);
}
