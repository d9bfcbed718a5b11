//! The structure of a serde type as the catalog lists it, so that other programs can decode values.
//! `docs/format.md` specifies the text.

use serde::de::DeserializeOwned;

use super::{ROOT, ShapeKind, ShapeNode, ShapeTracer, with_case};

/// Describes the structure of the type like [`shape_of`](super::shape_of), with two differences.
/// `^1` is the enclosing list, tuple, struct or enum, whether or not it is a named type, and `^2`
/// the one around that. Names with special characters are quoted.
pub(in crate::types) fn layout_of<T: DeserializeOwned>() -> String {
    let mut tracer = ShapeTracer::default();
    _ = tracer.trace::<T>();
    tracer.layout(ROOT, 0, &mut Vec::new())
}

impl ShapeTracer {
    /// Describes a node within `depth` others. `named` has the depth of each named type around it.
    fn layout(&self, node: usize, depth: usize, named: &mut Vec<usize>) -> String {
        let ShapeNode { kind, parts, level, .. } = &self.nodes[node];
        let outside = named.len();
        named.resize((*level).max(outside), depth);
        let mut part = |part: usize| match parts.get(part) {
            Some(&part) => self.layout(part, depth + 1, named),
            None => "?".to_owned(),
        };
        let text = match *kind {
            ShapeKind::Unseen => "?".to_owned(),
            ShapeKind::Plain(name, _) => name.to_owned(),
            ShapeKind::Around(levels) => match named.len().checked_sub(levels) {
                Some(target) => format!("^{}", depth - named[target]),
                None => "?".to_owned(),
            },
            ShapeKind::Option => format!("Option<{}>", part(0)),
            ShapeKind::List => format!("Vec<{}>", part(0)),
            ShapeKind::Map => format!("Map<{}, {}>", part(0), part(1)),
            ShapeKind::Tuple(1) => format!("({},)", part(0)),
            ShapeKind::Tuple(count) => {
                let parts: Vec<String> = (0..count).map(part).collect();
                match count > 2 && parts.iter().all(|part| *part == parts[0]) {
                    true => format!("[{}; {count}]", parts[0]),
                    false => format!("({})", parts.join(", ")),
                }
            }
            ShapeKind::Struct(fields) => {
                let field = |(at, field): (usize, &&str)| format!("{}: {}", name(field), part(at));
                let fields: Vec<String> = fields.iter().enumerate().map(field).collect();
                format!("{{{}}}", fields.join(", "))
            }
            ShapeKind::Enum(cases) => {
                let case = |(at, case): (usize, &&str)| with_case(&name(case), &part(at));
                let cases: Vec<String> = cases.iter().enumerate().map(case).collect();
                format!("{{{}}}", cases.join(", "))
            }
        };
        named.truncate(outside);
        text
    }
}

/// The name of a field or a variant, quoted if it has other characters than letters, digits, `_`
/// and `-`.
fn name(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "the fields describe the type")]
    struct Wrapped(Option<Box<Tree>>);

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "the fields describe the type")]
    struct Tree {
        left: Wrapped,
        right: Option<Box<Tree>>,
        names: (u8, Vec<Tree>),
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "the fields describe the type")]
    enum Shape {
        Empty,
        Pair(u8, Box<Shape>),
        Inner(Box<Shape>),
        #[serde(rename = "two words: \"x\"")]
        Named {
            side: f64,
        },
    }

    #[test]
    fn references_count_the_enclosing_parts_of_the_text() {
        // The newtype adds no part.
        assert_eq!(
            layout_of::<Tree>(),
            "{left: Option<^2>, right: Option<^2>, names: (u8, Vec<^3>)}"
        );
        assert_eq!(
            layout_of::<Wrapped>(),
            "Option<{left: ^2, right: Option<^2>, names: (u8, Vec<^3>)}>"
        );
    }

    #[test]
    fn names_with_special_characters_are_quoted() {
        assert_eq!(
            layout_of::<Shape>(),
            "{Empty, Pair(u8, ^2), Inner(^1), \"two words: \\\"x\\\"\" {side: f64}}"
        );
        assert_eq!(layout_of::<(BTreeMap<String, [u8; 3]>, (i8,))>(), "(Map<str, [u8; 3]>, (i8,))");
    }
}
