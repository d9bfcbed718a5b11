//! Checks that public methods have examples. A method has one if its documentation contains an
//! example, if an example of its type calls it, or if its documentation says "for an example see"
//! another method whose example calls it.

use std::collections::BTreeMap;

/// Attributes of methods that are not for users of the library.
const OF_NO_USER: [&str; 4] =
    ["#[doc(hidden)]", "#[cfg(any(test", "#[cfg(braid_", "#[cfg(feature = \"experiment\")]"];
/// The type whose setters a macro generates from a list of its fields.
const WITH_SETTERS: [&str; 2] = ["Options", "Tuning"];

/// A public method and its documentation.
struct Method {
    owner: String,
    name: String,
    place: String,
    documentation: String,
}

/// The public items of a library.
#[derive(Default)]
pub struct Documented {
    /// The documentation above each type and trait.
    types: BTreeMap<String, String>,
    methods: Vec<Method>,
}

impl Documented {
    /// Collects the types and traits of `exported` from formatted sources, each with its place.
    pub fn of(exported: &[String], sources: &[(String, String)]) -> Self {
        let mut documented = Self::default();
        for (place, text) in sources {
            documented.add(exported, place, text);
        }
        documented
    }

    fn add(&mut self, exported: &[String], place: &str, text: &str) {
        let (mut above, mut owner, mut hidden) = (String::new(), None, false);
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if let Some(documentation) = code.strip_prefix("///") {
                above.push_str(documentation);
                above.push('\n');
                continue;
            }
            // Attributes, which may have several lines.
            if code.starts_with("#[") || (!above.is_empty() && is_of_attribute(code)) {
                hidden |= OF_NO_USER.iter().any(|attribute| code.starts_with(attribute));
                continue;
            }
            let documentation = std::mem::take(&mut above);
            let hidden = std::mem::take(&mut hidden);
            let is_outer = code.len() == line.len();
            if is_outer && line.starts_with('}') {
                owner = None;
            }
            if let Some((name, is_trait)) = is_outer.then(|| declared(code)).flatten() {
                if exported.contains(&name) {
                    self.types.entry(name.clone()).or_default().push_str(&documentation);
                    owner = is_trait.then_some((name, true));
                }
            } else if let Some(name) = is_outer.then(|| implemented(code)).flatten() {
                owner = (exported.contains(&name) && !hidden).then_some((name, false));
            } else if let Some(setters) = code.strip_prefix("setters! { ") {
                owner = (!hidden).then(|| (identifier(setters), false));
            } else if let Some((owner, is_trait)) = &owner
                && line.len() - code.len() == 4
                && let Some(name) = method(code, *is_trait).or_else(|| setter(owner, code))
                && !hidden
            {
                let (owner, place) = (owner.clone(), format!("{place}:{}", number + 1));
                self.methods.push(Method { owner, name, place, documentation });
            }
        }
    }

    /// Returns the documentation of the method that this method's documentation refers to for an
    /// example.
    fn elsewhere(&self, method: &Method) -> Option<&str> {
        let words: Vec<&str> = method.documentation.split_whitespace().collect();
        let documentation = words.join(" ").replace("For an example", "for an example");
        let (_, referred) = documentation.split_once("for an example see [`")?;
        let (referred, _) = referred.split_once("`]")?;
        let (owner, name) = referred.split_once("::")?;
        let found = self.methods.iter().find(|other| other.owner == owner && other.name == name);
        found.map(|found| &*found.documentation)
    }

    /// Returns the number of methods.
    pub fn count(&self) -> usize {
        self.methods.len()
    }

    /// Returns the methods without an example.
    pub fn without_example(&self) -> Vec<String> {
        let shown = |method: &Method| {
            let call = &method.name;
            let of_type = self.types.get(&method.owner).map_or("", String::as_str);
            !examples(&method.documentation).is_empty()
                || calls(&examples(of_type), call)
                || self
                    .elsewhere(method)
                    .is_some_and(|documentation| calls(&examples(documentation), call))
        };
        let missing = self.methods.iter().filter(|method| !shown(method));
        missing
            .map(|Method { owner, name, place, .. }| format!("{place}: {owner}::{name}"))
            .collect()
    }
}

/// Returns the names that a library exports.
pub fn exported(library: &str) -> Vec<String> {
    let uses = library.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let mut names = Vec::new();
    for (used, _) in uses {
        let listed = used.split_once('{').map_or(used, |(_, listed)| listed);
        names.extend(listed.split(',').filter_map(|name| {
            let name = name.trim_matches(|c: char| c.is_whitespace() || c == '}');
            let last = name.rsplit([' ', ':']).next()?;
            (!last.is_empty()).then(|| last.to_owned())
        }));
    }
    names
}

/// Returns the public item that a line declares, and true if it is a trait.
fn declared(line: &str) -> Option<(String, bool)> {
    let line = line.strip_prefix("pub ")?;
    let kinds = [("struct ", false), ("enum ", false), ("trait ", true)];
    kinds.iter().find_map(|(kind, is_trait)| {
        let rest = line.strip_prefix(kind)?;
        Some((identifier(rest), *is_trait))
    })
}

/// Returns the type whose inherent implementation begins in a line.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    if rest.contains(" for ") {
        return None;
    }
    let rest = match rest.strip_prefix('<') {
        Some(generic) => {
            let mut open = 1;
            let end = generic.find(|c| {
                open += i32::from(c == '<') - i32::from(c == '>');
                open == 0
            })?;
            &generic[end + 1..]
        }
        None => rest,
    };
    Some(identifier(rest.trim_start()))
}

/// Returns the method that a line declares: a public one, or any method of a trait.
fn method(line: &str, of_trait: bool) -> Option<String> {
    let line = if of_trait { line } else { line.strip_prefix("pub ")? };
    let line = ["const ", "async ", "unsafe "]
        .iter()
        .fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    line.strip_prefix("fn ").map(identifier)
}

/// Returns the setter that a line in a list of fields generates.
fn setter(owner: &str, line: &str) -> Option<String> {
    let (field, kind) = line.split_once(": ")?;
    (WITH_SETTERS.contains(&owner) && identifier(field) == field && kind.ends_with(','))
        .then(|| field.to_owned())
}

/// Returns true if a line continues an attribute that began above.
fn is_of_attribute(line: &str) -> bool {
    line.starts_with([')', '"'])
        || ["note = ", "message = ", "label = "].iter().any(|word| line.starts_with(word))
}

/// Returns the code of the examples in a documentation.
fn examples(documentation: &str) -> String {
    let mut code = String::new();
    let mut fences = documentation.split("```");
    fences.next();
    while let (Some(example), rest) = (fences.next(), fences.next()) {
        // A fence with another language is no example.
        if !example.starts_with("text") && rest.is_some() {
            code.push_str(example);
        }
    }
    code
}

/// Returns true if the code calls a method.
fn calls(code: &str, method: &str) -> bool {
    code.match_indices(method).any(|(at, _)| {
        let behind = &code[at + method.len()..];
        code[..at].ends_with(['.', ':']) && (behind.starts_with('(') || behind.starts_with("::<"))
    })
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}
