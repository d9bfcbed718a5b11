//! Checks that code has a written argument next to it where the compiler cannot check it. Unsafe
//! code needs a `SAFETY:` comment or a `# Safety` section. An ordering weaker than `SeqCst` needs a
//! comment that names it.

use std::path::Path;

/// The maximum number of lines between the beginning of a SAFETY comment and the unsafe code.
const SAFETY_LINES: usize = 5;
/// The maximum number of lines between a comment that names an ordering and its use, in the same
/// function.
const ORDERING_LINES: usize = 8;
const WEAK: [&str; 4] = ["Relaxed", "Acquire", "Release", "AcqRel"];
/// The names of atomic accesses.
const ACCESSES: [&str; 5] = [".load(", ".store(", ".swap(", ".fetch_", ".compare_exchange"];
/// The beginnings of comments that only refer to another argument.
const DEFERRING: [&str; 5] = ["as ", "likewise", "the same", "see ", "ditto"];

/// The number of places that need an argument, and the line numbers of those without one.
#[derive(Debug, Default)]
pub struct Argued {
    pub places: usize,
    pub missing: Vec<usize>,
}

impl Argued {
    fn note(&mut self, number: usize, is_argued: bool) {
        self.places += 1;
        if !is_argued {
            self.missing.push(number + 1);
        }
    }
}

/// Returns true if a file contains tests or models.
pub fn is_of_tests(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem.ends_with("tests") || stem.ends_with("model") || path.iter().any(|part| part == "tests")
}

/// Returns the code of a line and the comment after it.
fn split(line: &str) -> (&str, &str) {
    let is_outside = |place: &usize| line[..*place].matches('"').count().is_multiple_of(2);
    let slashes = line.match_indices("//").map(|(place, _)| place).find(is_outside);
    line.split_at(slashes.unwrap_or(line.len()))
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the positions at which a word occurs as a whole word.
fn places_of(text: &str, word: &str) -> Vec<usize> {
    let places = text.match_indices(word).map(|(place, _)| place);
    let alone = |place: &usize| {
        !text[..*place].ends_with(is_of_word)
            && !text[*place + word.len()..].starts_with(is_of_word)
    };
    places.filter(alone).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    !places_of(text, word).is_empty()
}

/// Returns the comments, documentation and attributes directly above a line.
fn written_above<'t>(lines: &'t [&'t str], number: usize) -> impl Iterator<Item = &'t str> {
    let above = lines[..number].iter().rev().map(|line| line.trim_start());
    above.take_while(|line| line.starts_with("//") || line.starts_with("#["))
}

/// Checks the arguments for unsafe code in a file. A comment that only refers to another argument
/// does not count.
pub fn unsafe_code(text: &str) -> Argued {
    let lines: Vec<&str> = text.lines().collect();
    let argues = |line: &&str| {
        let reason = split(line).1.split_once("SAFETY:").map(|(_, reason)| reason.trim_start());
        reason.is_some_and(|reason| {
            !DEFERRING.iter().any(|word| reason.starts_with(word)) && !reason.contains("as above")
        })
    };
    let mut argued = Argued::default();
    for (number, line) in lines.iter().enumerate() {
        let code = split(line).0;
        for place in places_of(code, "unsafe") {
            let what = code[place + "unsafe".len()..].trim_start();
            if what.starts_with("fn ") || what.starts_with("trait ") {
                let mut documentation = written_above(&lines, number);
                argued.note(number, documentation.any(|line| line.starts_with("/// # Safety")));
            } else if what.is_empty() || what.starts_with('{') || what.starts_with("impl") {
                let above = &lines[number.saturating_sub(SAFETY_LINES)..=number];
                argued.note(number, above.iter().any(argues));
            }
        }
        // Also checks comments that only refer to another argument.
        if line.contains("SAFETY:") {
            argued.note(number, argues(line));
        }
    }
    argued
}

/// Checks the arguments for orderings weaker than `SeqCst` in a file, except in the tests at its
/// end.
pub fn orderings(text: &str) -> Argued {
    let lines: Vec<&str> = text.lines().collect();
    let imported = imported(text);
    let (mut argued, mut is_test) = (Argued::default(), false);
    for (number, line) in lines.iter().enumerate() {
        let begins = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        is_test |= begins && lines.get(number + 1).is_some_and(|next| next.ends_with(" {"));
        is_test &= *line != "}";
        let code = split(line).0;
        if is_test || code.trim_start().starts_with("use ") {
            continue;
        }
        for ordering in WEAK {
            let is_used = places_of(code, ordering).into_iter().any(|place| {
                let before = &code[..place];
                before.ends_with("Ordering::")
                    || (imported.contains(&ordering) && !before.ends_with(':'))
            });
            if is_used {
                argued.note(number, is_argued(&lines, number, ordering));
            }
        }
    }
    argued
}

/// Returns the orderings that a file imports by name.
fn imported(text: &str) -> Vec<&'static str> {
    let imports = text.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let listed: String =
        imports.filter_map(|(import, _)| import.split_once("Ordering::")).map(|(_, l)| l).collect();
    WEAK.into_iter().filter(|weak| listed.contains('*') || listed.contains(weak)).collect()
}

/// Returns true if a comment names an ordering. For `AcqRel`, naming either half is enough.
fn names(line: &str, ordering: &str) -> bool {
    let comment = split(line).1;
    let is_half =
        ordering == "AcqRel" && ["Acquire", "Release"].iter().any(|o| has_word(comment, o));
    is_half || has_word(comment, ordering)
}

/// Returns true if an ordering is named at the end of its line, above it in the function, above the
/// function, or in the documentation of the atomic field, if the same file declares it.
fn is_argued(lines: &[&str], number: usize, ordering: &str) -> bool {
    let is_head = |line: &str| has_word(split(line).0, "fn");
    for place in (number.saturating_sub(ORDERING_LINES)..=number).rev() {
        if names(lines[place], ordering) {
            return true;
        }
        if is_head(lines[place]) {
            return written_above(lines, place).any(|line| names(line, ordering))
                || is_argued_at_field(lines, number, ordering);
        }
    }
    is_argued_at_field(lines, number, ordering)
}

fn is_argued_at_field(lines: &[&str], number: usize, ordering: &str) -> bool {
    let code = split(lines[number]).0;
    let accessed = ACCESSES.iter().flat_map(|access| code.match_indices(access));
    accessed.map(|(place, _)| atomic(&code[..place])).any(|atomic| {
        let fields = (0..lines.len()).filter(|place| declared(lines[*place]) == Some(atomic));
        fields
            .into_iter()
            .any(|field| written_above(lines, field).any(|line| names(line, ordering)))
    })
}

/// Returns the name of the atomic, possibly an array element, at the end of some code.
fn atomic(code: &str) -> &str {
    let code =
        code.strip_suffix(']').and_then(|code| code.rsplit_once('[')).map_or(code, |(c, _)| c);
    let name = code.trim_end_matches(is_of_word);
    &code[name.len()..]
}

/// Returns the field that a line declares.
fn declared(line: &str) -> Option<&str> {
    split(line).0.split_whitespace().find_map(|word| word.strip_suffix(':'))
}
