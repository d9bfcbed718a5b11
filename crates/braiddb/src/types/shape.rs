//! What a serde type asks for when it is read, in depth: its fields, their types, theirs in turn, and the cases of enums.
//!
//! The type is read again and again, each time from values that mean nothing, until each case of each enum has been
//! seen. Where a type refuses such a value another one is tried; where it refuses all, what is behind stays unknown: `?`.
//! All of it is the same each time, for the text is on disk. So the values to try, their order and the limits stay as
//! they are, too.

mod path;

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::{DeserializeOwned, DeserializeSeed, Error, Visitor};

use path::{CompositeParts, GivenFields, ShapePlace};

/// How many values are given at most to see one type, how often it is read, and how deep it may be.
const MAX_STEPS: usize = 100_000;
const MAX_PASSES: usize = 10_000;
const MAX_DEPTH: usize = 48;

/// Longer tuples stay unknown.
const MAX_PARTS: usize = 4_096;

/// How often a case of an enum may fail: the first time it may lack a value of the enum itself, which another case has.
const MAX_STRIKES: u8 = 2;

const ROOT: usize = 0;

/// Why a type was not read to its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ShapeRefusal {
    /// This field must be there.
    MissingField(&'static str),
    /// This field must not be there.
    UnknownField(String),
    /// Anything else, such as a value that is refused.
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

/// The type as a text: `{owner: str, cents: i64}`, `{Circle(u32), Square {side: u32}}`, `Vec<(u64, str)>`. Names
/// of types are not in it. `^1` is, within a type, the type itself, `^2` the one around it, and `?` is not known.
pub(super) fn shape_of<T: DeserializeOwned>() -> String {
    let mut tracer = ShapeTracer::default();
    _ = tracer.trace::<T>();
    tracer.text(ROOT)
}

/// Reads a struct, the type itself or one within it, from a map with these fields only.
///
/// # Errors
/// Why it cannot be read.
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

/// A struct, the type itself or one within it.
#[cfg(any(feature = "json", feature = "messagepack"))]
#[derive(Debug)]
pub(super) struct Structure {
    /// Where it is: names of fields and cases, `[]` for what is in a list or a map, `[1]` for the second part of a tuple.
    pub(super) place: String,
    /// The same as [`read_fields`] has it.
    pub(super) path: Vec<usize>,
    pub(super) fields: &'static [&'static str],
}

/// The structs within the type, and how many values it took to see them.
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

/// A type with a name, as this run of the program knows it: the name, and that of its visitor, which says of what types
/// it is made if it is generic.
type TypeIdentity = (&'static str, &'static str);

#[derive(Clone, Copy, Default)]
enum ShapeKind {
    #[default]
    Unseen,
    /// One of so many values to try.
    Plain(&'static str, u8),
    /// The type that is so many levels up.
    Around(usize),
    Option,
    List,
    Map,
    Tuple(usize),
    Struct(&'static [&'static str]),
    Enum(&'static [&'static str]),
}

/// The fields that one struct gets, in a map.
struct Fields {
    /// Which part the struct is, of which part, and so on, from the type itself.
    path: Vec<usize>,
    names: Vec<String>,
}

#[derive(Default)]
struct ShapeNode {
    kind: ShapeKind,
    parts: Vec<usize>,
    /// How many steps of the path to the struct that gets fields lead here, if they do.
    steps_of_path: Option<usize>,
    /// Whether all has been seen that is to be seen within.
    is_done: bool,
    /// How many values were refused; of what may be empty, whether it is left empty.
    refused: u8,
    /// How often it failed as a case of an enum.
    strikes: u8,
}

#[derive(Default)]
struct ShapeTracer {
    nodes: Vec<ShapeNode>,
    /// The types with names that are being read.
    around: Vec<TypeIdentity>,
    /// Of enums, the first case that could be read.
    readable: HashMap<TypeIdentity, usize>,
    steps: usize,
    depth: usize,
    /// The plain value that was given last.
    last: Option<usize>,
    /// Whether the next pass is going to try something else where this one failed.
    goes_on: bool,
    is_human_readable: bool,
    given: Option<Fields>,
    /// What came of reading the struct that gets them, in this pass.
    came_of_given: Option<Result<(), ShapeRefusal>>,
}

impl ShapeTracer {
    fn trace<T: DeserializeOwned>(&mut self) -> Result<(), ShapeRefusal> {
        let steps_of_path = self.given.is_some().then_some(0);
        self.nodes.push(ShapeNode { steps_of_path, ..ShapeNode::default() });
        for _ in 0..MAX_PASSES {
            (self.depth, self.last, self.goes_on) = (0, None, false);
            self.around.clear();
            // The program's code, for which values that mean nothing may be too much.
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
        // What was to get fields was not met.
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

    /// Reads what is at a node; without one, any value of the type.
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
            // It asked for nothing.
            (Ok(_), Some(node)) if matches!(self.nodes[node].kind, ShapeKind::Unseen) => {
                self.nodes[node].is_done = true;
            }
            (Ok(_), _) => {}
        }
        read
    }

    /// Whether it is for those around what failed to try something else: first other values take the place of the one
    /// that was given last.
    fn is_open(&mut self, refusal: &ShapeRefusal) -> bool {
        if self.goes_on || *refusal != ShapeRefusal::Other || self.steps > MAX_STEPS {
            return false;
        }
        if let Some(last) = self.last
            && let ShapeNode { kind: ShapeKind::Plain(_, values), refused, .. } =
                &mut self.nodes[last]
            && *refused < *values
        {
            // After the last value the first comes again: that it was not.
            *refused += 1;
            self.goes_on = *refused < *values;
        }
        !self.goes_on
    }

    /// Notes what came of reading what has parts.
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

    /// Reads a type with a name. One that is being read is not looked at again: any value will do.
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
        let value = read(self, node);
        self.around.pop();
        value
    }

    /// Reads so many parts, one after another.
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

    /// Reads a struct: from a list of all its fields, or from a map of those that it is to get.
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

    /// The case of an enum to be read next: one that has more to see, or else one that can be read.
    fn case(&mut self, node: usize, cases: usize, readable: Option<usize>) -> usize {
        let parts: Vec<usize> = (0..cases).map(|case| self.part(node, case)).collect();
        let strikes = |case: &usize| self.nodes[parts[*case]].strikes;
        let is_open =
            |case: &usize| !self.nodes[parts[*case]].is_done && strikes(case) < MAX_STRIKES;
        (0..cases).filter(is_open).min_by_key(strikes).or(readable).unwrap_or(0)
    }

    /// Notes the structs within what is at a node.
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
                // Of a map the values: its keys are texts.
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

/// Runs the program's code; nothing if it panics.
fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|payload| {
            // Its destructor is the program's, too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        })
        .ok()
}

/// Which fields are missing or unknown is of interest at the top only.
fn at_the_top<V>(node: Option<usize>, read: Result<V, ShapeRefusal>) -> Result<V, ShapeRefusal> {
    if node == Some(ROOT) { read } else { read.map_err(|_| ShapeRefusal::Other) }
}

/// A case of an enum and what is in it.
fn with_case(case: &str, part: &str) -> String {
    match part.chars().next() {
        _ if part == "()" => case.to_owned(),
        Some('(' | '?') => format!("{case}{part}"),
        Some('{') => format!("{case} {part}"),
        _ => format!("{case}({part})"),
    }
}
