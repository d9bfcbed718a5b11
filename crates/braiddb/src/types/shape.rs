//! The structure of a serde type: its fields, their types, nested types, and the variants of enums,
//! as requested during deserialization.
//!
//! The type is deserialized repeatedly from meaningless sample values, until each variant of each
//! enum has been seen. If a type rejects a value, another one is tried. If it rejects all, the rest
//! stays unknown: `?`. The result is deterministic, because the description is stored on disk. The
//! sample values, their order and the limits must therefore not change.

mod layout;
mod path;

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::{DeserializeOwned, DeserializeSeed, Error, Visitor};

pub(super) use layout::layout_of;
use path::{CompositeParts, GivenFields, ShapePlace};

/// Limits for one type: the number of sample values, the number of passes, and the depth.
const MAX_STEPS: usize = 100_000;
const MAX_PASSES: usize = 10_000;
const MAX_DEPTH: usize = 48;

/// Longer tuples stay unknown.
const MAX_PARTS: usize = 4_096;

/// Number of times that a variant of an enum may fail. The first failure may be caused by a missing
/// value of the enum itself, which another variant provides.
const MAX_STRIKES: u8 = 2;

const ROOT: usize = 0;

/// The reason why a type was not read completely.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ShapeRefusal {
    /// This field is required.
    MissingField(&'static str),
    /// This field is not allowed.
    UnknownField(String),
    /// Any other reason, such as a rejected value.
    Other,
}

impl Display for ShapeRefusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for ShapeRefusal {}

impl Error for ShapeRefusal {
    fn custom<T: Display>(_: T) -> Self {
        Self::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingField(field)
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownField(field.to_owned())
    }
}

/// Describes the structure of the type: `{owner: str, cents: i64}`, `{Circle(u32), Square {side:
/// u32}}`, `Vec<(u64, str)>`. It contains no names of types. Within a type, `^1` is the type itself
/// and `^2` the enclosing one; `?` is unknown.
pub(super) fn shape_of<T: DeserializeOwned>() -> String {
    let mut tracer = ShapeTracer::default();
    _ = tracer.trace::<T>();
    tracer.text(ROOT)
}

/// Reads a struct, the type itself or a nested one, from a map with only these fields.
///
/// # Errors
/// The reason why it cannot be read.
#[cfg(any(feature = "json", feature = "messagepack"))]
pub(super) fn read_fields<T: DeserializeOwned>(
    path: &[usize],
    fields: &[&str],
    is_human_readable: bool,
) -> Result<(), ShapeRefusal> {
    let names = fields.iter().map(|&field| field.to_owned()).collect();
    let given = Some(Fields { path: path.to_vec(), names });
    ShapeTracer { is_human_readable, given, ..ShapeTracer::default() }.trace::<T>()
}

/// A struct: the type itself or a nested one.
#[cfg(any(feature = "json", feature = "messagepack"))]
#[derive(Debug)]
pub(super) struct Structure {
    /// Its path: names of fields and variants, `[]` for the contents of a list or a map, `[1]` for
    /// the second part of a tuple.
    pub(super) place: String,
    /// The path in the form used by [`read_fields`].
    pub(super) path: Vec<usize>,
    pub(super) fields: &'static [&'static str],
}

/// Returns the nested structs of the type, and the number of sample values used to find them.
#[cfg(any(feature = "json", feature = "messagepack"))]
pub(super) fn structures_within<T: DeserializeOwned>(
    is_human_readable: bool,
) -> (Vec<Structure>, usize) {
    let mut tracer = ShapeTracer { is_human_readable, ..ShapeTracer::default() };
    _ = tracer.trace::<T>();
    let mut found = Vec::new();
    tracer.structures(ROOT, String::new(), &mut Vec::new(), &mut found);
    (found, tracer.steps)
}

/// A named type in this run of the program: its name, and that of its visitor, which identifies the
/// type arguments of a generic type.
type TypeIdentity = (&'static str, &'static str);

#[derive(Clone, Copy, Default)]
enum ShapeKind {
    #[default]
    Unseen,
    /// A plain value, with the number of samples to try.
    Plain(&'static str, u8),
    /// The type this many levels up.
    Around(usize),
    Option,
    List,
    Map,
    Tuple(usize),
    Struct(&'static [&'static str]),
    Enum(&'static [&'static str]),
}

/// The fields that one struct receives, in a map.
struct Fields {
    /// The index of each part on the path from the type itself to the struct.
    path: Vec<usize>,
    names: Vec<String>,
}

#[derive(Default)]
struct ShapeNode {
    kind: ShapeKind,
    parts: Vec<usize>,
    /// The number of steps already taken on the path to the struct that receives fields, if this
    /// node is on it.
    steps_of_path: Option<usize>,
    /// True if everything within has been seen.
    is_done: bool,
    /// Number of rejected values. For a container that may be empty, nonzero if it is left empty.
    refused: u8,
    /// Number of failures as a variant of an enum.
    strikes: u8,
    /// Number of named types around the value, including its own. Zero if it has none.
    level: usize,
}

#[derive(Default)]
struct ShapeTracer {
    nodes: Vec<ShapeNode>,
    /// The named types that are being read.
    around: Vec<TypeIdentity>,
    /// For each enum, the first variant that could be read.
    readable: HashMap<TypeIdentity, usize>,
    steps: usize,
    depth: usize,
    /// The plain value that was provided last.
    last: Option<usize>,
    /// True if the next pass will try another value where this one failed.
    goes_on: bool,
    is_human_readable: bool,
    given: Option<Fields>,
    /// The result for the struct that receives fields, in this pass.
    came_of_given: Option<Result<(), ShapeRefusal>>,
}

impl ShapeTracer {
    fn trace<T: DeserializeOwned>(&mut self) -> Result<(), ShapeRefusal> {
        let steps_of_path = self.given.is_some().then_some(0);
        self.nodes.push(ShapeNode { steps_of_path, ..ShapeNode::default() });
        for _ in 0..MAX_PASSES {
            (self.depth, self.last, self.goes_on) = (0, None, false);
            self.around.clear();
            // Code of the program, which may panic on meaningless values.
            let read = contain(|| self.read(Some(ROOT), PhantomData::<T>).map(drop));
            match self.came_of_given.take() {
                Some(Err(ShapeRefusal::Other)) if self.goes_on => continue,
                Some(outcome) => return outcome,
                None => {}
            }
            match read.unwrap_or(Err(ShapeRefusal::Other)) {
                Ok(()) if self.nodes[ROOT].is_done => break,
                Ok(()) => {}
                Err(ShapeRefusal::Other) if self.goes_on => {}
                Err(refusal) => return Err(refusal),
            }
        }
        // The struct that should receive fields was not reached.
        if self.nodes[ROOT].is_done && self.given.is_none() {
            Ok(())
        } else {
            Err(ShapeRefusal::Other)
        }
    }

    fn step(&mut self) -> Result<(), ShapeRefusal> {
        self.steps += 1;
        let goes = self.steps <= MAX_STEPS && self.depth <= MAX_DEPTH;
        if goes { Ok(()) } else { Err(ShapeRefusal::Other) }
    }

    fn part(&mut self, node: usize, part: usize) -> usize {
        while self.nodes[node].parts.len() <= part {
            let new = self.nodes.len();
            let steps_of_path = self.nodes[node].steps_of_path.and_then(|steps| {
                let path = &self.given.as_ref()?.path;
                let leads_here = path.get(steps) == Some(&self.nodes[node].parts.len());
                leads_here.then_some(steps + 1)
            });
            self.nodes.push(ShapeNode { steps_of_path, ..ShapeNode::default() });
            self.nodes[node].parts.push(new);
        }
        self.nodes[node].parts[part]
    }

    /// Reads the value at a node; without a node, any value of the type.
    fn read<'de, S>(&mut self, node: Option<usize>, seed: S) -> Result<S::Value, ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        self.depth += 1;
        let read = seed.deserialize(ShapePlace { tracer: &mut *self, node });
        self.depth -= 1;
        let read = at_the_top(node, read);
        match (&read, node) {
            (Err(refusal), _) => _ = self.is_open(refusal),
            // It requested nothing.
            (Ok(_), Some(node)) if matches!(self.nodes[node].kind, ShapeKind::Unseen) => {
                self.nodes[node].is_done = true;
            }
            (Ok(_), _) => {}
        }
        read
    }

    /// Returns whether the enclosing types must try something else after a failure. First, other
    /// samples replace the plain value that was provided last.
    fn is_open(&mut self, refusal: &ShapeRefusal) -> bool {
        if self.goes_on || *refusal != ShapeRefusal::Other || self.steps > MAX_STEPS {
            return false;
        }
        if let Some(last) = self.last
            && let ShapeNode { kind: ShapeKind::Plain(_, values), refused, .. } =
                &mut self.nodes[last]
            && *refused < *values
        {
            // After the last sample the first one is used again, so this value was not the cause.
            *refused += 1;
            self.goes_on = *refused < *values;
        }
        !self.goes_on
    }

    /// Records the result of reading a value with parts.
    fn finish<V>(&mut self, node: usize, read: Result<V, ShapeRefusal>) -> Result<V, ShapeRefusal> {
        let may_be_empty =
            matches!(self.nodes[node].kind, ShapeKind::Option | ShapeKind::List | ShapeKind::Map);
        if let Err(refusal) = &read
            && self.is_open(refusal)
            && may_be_empty
            && self.nodes[node].refused == 0
        {
            self.nodes[node].refused = 1;
            self.goes_on = true;
        }
        let is_done = self.nodes[node].parts.iter().all(|&part| {
            let part = &self.nodes[part];
            part.is_done || part.strikes >= MAX_STRIKES
        });
        let node = &mut self.nodes[node];
        node.is_done = match node.kind {
            ShapeKind::Option | ShapeKind::List | ShapeKind::Map => is_done || node.refused > 0,
            ShapeKind::Enum(cases) => is_done && node.parts.len() == cases.len(),
            _ => is_done && read.is_ok(),
        };
        read
    }

    /// Reads a named type. If it is already being read, it is not examined again, and any value
    /// suffices.
    fn named<V>(
        &mut self,
        identity: TypeIdentity,
        node: Option<usize>,
        read: impl FnOnce(&mut Self, Option<usize>) -> Result<V, ShapeRefusal>,
    ) -> Result<V, ShapeRefusal> {
        self.step()?;
        let levels = self.around.iter().rev().position(|&around| around == identity);
        let node = match (node, levels) {
            (Some(node), Some(levels)) => {
                self.nodes[node].kind = ShapeKind::Around(levels + 1);
                self.nodes[node].is_done = true;
                None
            }
            _ => node,
        };
        self.around.push(identity);
        if let Some(node) = node {
            self.nodes[node].level = self.around.len();
        }
        let value = read(self, node);
        self.around.pop();
        value
    }

    /// Reads a number of parts, one after another.
    fn parts<'de, V: Visitor<'de>>(
        &mut self,
        node: Option<usize>,
        kind: ShapeKind,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.step()?;
        if count > MAX_PARTS {
            return Err(ShapeRefusal::Other);
        }
        let Some(node) = node else {
            return visitor.visit_seq(CompositeParts { tracer: self, node: None, next: 0, count });
        };
        self.nodes[node].kind = kind;
        let read = visitor.visit_seq(CompositeParts {
            tracer: &mut *self,
            node: Some(node),
            next: 0,
            count,
        });
        self.finish(node, read)
    }

    /// Reads a struct: from a list of all its fields, or from a map of the fields to provide.
    fn fields<'de, V: Visitor<'de>>(
        &mut self,
        node: Option<usize>,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        let given = node.and_then(|node| {
            let Fields { path, names } = self.given.as_ref()?;
            (self.nodes[node].steps_of_path? == path.len()).then(|| (node, names.clone()))
        });
        let Some((node, names)) = given else {
            return self.parts(node, ShapeKind::Struct(fields), fields.len(), visitor);
        };
        self.nodes[node].kind = ShapeKind::Struct(fields);
        let read =
            visitor.visit_map(GivenFields { tracer: &mut *self, node, fields, names: &names });
        let read = self.finish(node, read);
        self.came_of_given = Some(read.as_ref().map(drop).map_err(ShapeRefusal::clone));
        read
    }

    /// Returns the variant of an enum to read next: one with unseen parts, or else one that can be
    /// read.
    fn case(&mut self, node: usize, cases: usize, readable: Option<usize>) -> usize {
        let parts: Vec<usize> = (0..cases).map(|case| self.part(node, case)).collect();
        let strikes = |case: &usize| self.nodes[parts[*case]].strikes;
        let is_open =
            |case: &usize| !self.nodes[parts[*case]].is_done && strikes(case) < MAX_STRIKES;
        (0..cases).filter(is_open).min_by_key(strikes).or(readable).unwrap_or(0)
    }

    /// Records the structs within a node.
    #[cfg(any(feature = "json", feature = "messagepack"))]
    fn structures(
        &self,
        node: usize,
        place: String,
        path: &mut Vec<usize>,
        found: &mut Vec<Structure>,
    ) {
        let ShapeNode { kind, parts, .. } = &self.nodes[node];
        if let ShapeKind::Struct(fields) = *kind
            && !path.is_empty()
        {
            found.push(Structure { place: place.clone(), path: path.clone(), fields });
        }
        let named = |name: &str| match place.is_empty() {
            true => name.to_owned(),
            false => format!("{place}.{name}"),
        };
        for (index, part) in parts.iter().enumerate() {
            let place = match *kind {
                ShapeKind::Struct(names) | ShapeKind::Enum(names) => {
                    names.get(index).map(|name| named(name))
                }
                ShapeKind::Option => Some(place.clone()),
                ShapeKind::Tuple(_) => Some(format!("{place}[{index}]")),
                // In a map, only the values: its keys are text.
                ShapeKind::Map if index == 0 => None,
                ShapeKind::List | ShapeKind::Map => Some(format!("{place}[]")),
                ShapeKind::Unseen | ShapeKind::Plain(..) | ShapeKind::Around(_) => None,
            };
            if let Some(place) = place {
                path.push(index);
                self.structures(*part, place, path, found);
                path.pop();
            }
        }
    }

    fn text(&self, node: usize) -> String {
        let ShapeNode { kind, parts, .. } = &self.nodes[node];
        let part = |part: usize| match parts.get(part) {
            Some(&part) => self.text(part),
            None => "?".to_owned(),
        };
        let parts = |count: usize| (0..count).map(part).collect::<Vec<String>>();
        match *kind {
            ShapeKind::Unseen => "?".to_owned(),
            ShapeKind::Plain(name, _) => name.to_owned(),
            ShapeKind::Around(levels) => format!("^{levels}"),
            ShapeKind::Option => format!("Option<{}>", part(0)),
            ShapeKind::List => format!("Vec<{}>", part(0)),
            ShapeKind::Map => format!("Map<{}, {}>", part(0), part(1)),
            ShapeKind::Tuple(1) => format!("({},)", part(0)),
            ShapeKind::Tuple(count) => {
                let parts = parts(count);
                let are_same = parts.iter().all(|part| *part == parts[0] && part != "?");
                match are_same && count > 2 {
                    true => format!("[{}; {count}]", parts[0]),
                    false => format!("({})", parts.join(", ")),
                }
            }
            ShapeKind::Struct(fields) => {
                let parts = fields.iter().zip(parts(fields.len()));
                let fields: Vec<String> =
                    parts.map(|(field, part)| format!("{field}: {part}")).collect();
                format!("{{{}}}", fields.join(", "))
            }
            ShapeKind::Enum(cases) => {
                let parts = cases.iter().zip(parts(cases.len()));
                let cases: Vec<String> = parts.map(|(case, part)| with_case(case, &part)).collect();
                format!("{{{}}}", cases.join(", "))
            }
        }
    }
}

/// Runs code of the program. Returns `None` if it panics.
fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|payload| {
            // The destructor is code of the program too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        })
        .ok()
}

/// Missing and unknown fields matter only at the top level.
fn at_the_top<V>(node: Option<usize>, read: Result<V, ShapeRefusal>) -> Result<V, ShapeRefusal> {
    if node == Some(ROOT) { read } else { read.map_err(|_| ShapeRefusal::Other) }
}

/// Returns the path of a part within a variant of an enum.
fn with_case(case: &str, part: &str) -> String {
    match part.chars().next() {
        _ if part == "()" => case.to_owned(),
        Some('(' | '?') => format!("{case}{part}"),
        Some('{') => format!("{case} {part}"),
        _ => format!("{case}({part})"),
    }
}
