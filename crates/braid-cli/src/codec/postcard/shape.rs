//! The shape of postcard values, parsed from its text in the catalog (`docs/format.md`).

/// The shape of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The catalog does not know it.
    Unknown,
    Plain(Plain),
    Option(Box<Shape>),
    List(Box<Shape>),
    Map(Box<Shape>, Box<Shape>),
    Tuple(Vec<Shape>),
    Array(Box<Shape>, usize),
    /// Fields, with their names.
    Struct(Vec<(String, Shape)>),
    /// Variants, with their names.
    Enum(Vec<(String, Shape)>),
    /// The shape this many levels up.
    Around(usize),
}

macro_rules! plain {
    ($($variant:ident $name:literal)*) => {
        /// A value without parts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plain { $($variant),* }

        impl Plain {
            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name of the type.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

plain! {
    Bool "bool" U8 "u8" U16 "u16" U32 "u32" U64 "u64" U128 "u128" I8 "i8" I16 "i16" I32 "i32"
    I64 "i64" I128 "i128" F32 "f32" F64 "f64" Char "char" Str "str" Bytes "bytes" Unit "()"
}

/// The shapes around a part.
#[derive(Clone, Copy, Debug)]
pub struct Enclosing<'s> {
    pub shape: &'s Shape,
    pub outer: Option<&'s Enclosing<'s>>,
}

/// Returns the shape that is `levels` levels up, and what encloses it.
pub fn around<'s>(
    mut enclosing: Option<&'s Enclosing<'s>>,
    levels: usize,
) -> Option<(&'s Shape, Option<&'s Enclosing<'s>>)> {
    for _ in 1..levels {
        enclosing = enclosing?.outer;
    }
    enclosing.map(|found| (found.shape, found.outer))
}

impl Shape {
    /// Parses a whole text. Returns `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = ShapeParser { rest: text, depth: 0 };
        let shape = parser.shape()?;
        parser.rest.is_empty().then_some(shape)
    }

    /// Returns whether a part of this shape is printed as `null`.
    pub fn may_be_null(&self, enclosing: Option<&Enclosing<'_>>) -> bool {
        match self {
            Self::Option(_) | Self::Plain(Plain::Unit) => true,
            Self::Around(levels) => {
                // Only shapes with parts are referenced.
                around(enclosing, *levels)
                    .is_some_and(|(shape, _)| matches!(shape, Self::Option(_)))
            }
            _ => false,
        }
    }

    /// Returns whether a value of this shape may have a part at a path: names of fields and variants,
    /// and numbers of elements.
    pub fn may_have(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let number = first.parse::<usize>().ok();
        match self {
            Self::Unknown | Self::Map(..) | Self::Around(_) => true,
            Self::Plain(_) => false,
            Self::Option(inner) => inner.may_have(path) || *first == "Some" && inner.may_have(rest),
            Self::List(inner) => number.is_some() && inner.may_have(rest),
            Self::Array(inner, count) => {
                number.is_some_and(|number| number < *count) && inner.may_have(rest)
            }
            Self::Tuple(parts) => {
                number.and_then(|number| parts.get(number)).is_some_and(|part| part.may_have(rest))
            }
            Self::Struct(parts) | Self::Enum(parts) => {
                parts.iter().any(|(name, part)| name == first && part.may_have(rest))
            }
        }
    }

    /// Returns whether keys of maps with this shape are strings of a JSON object.
    pub fn is_name(&self) -> bool {
        match self {
            Self::Plain(plain) => !matches!(plain, Plain::Unit | Plain::F32 | Plain::F64),
            Self::Enum(cases) => {
                cases.iter().all(|(_, content)| *content == Self::Plain(Plain::Unit))
            }
            _ => false,
        }
    }
}

/// Maximum nesting of shapes. The engine describes at most 48 levels.
const MAX_DEPTH: usize = 128;

struct ShapeParser<'t> {
    rest: &'t str,
    /// Number of shapes around the next one.
    depth: usize,
}

impl ShapeParser<'_> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    /// Parses a part of the shape that is being parsed.
    fn part(&mut self) -> Option<Shape> {
        self.depth += 1;
        let part = if self.depth > MAX_DEPTH { None } else { self.shape() };
        self.depth -= 1;
        part
    }

    fn shape(&mut self) -> Option<Shape> {
        if self.take("()") {
            return Some(Shape::Plain(Plain::Unit));
        }
        if self.take("(") {
            let (parts, is_tuple) = self.parts()?;
            return is_tuple.then_some(Shape::Tuple(parts));
        }
        if self.take("{") {
            return self.fields();
        }
        if self.take("[") {
            let part = self.part()?;
            self.expect("; ")?;
            let (count, rest) = self.rest.split_once(']')?;
            self.rest = rest;
            return Some(Shape::Array(Box::new(part), count.parse().ok()?));
        }
        if self.take("^") {
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (levels, rest) = self.rest.split_at(end);
            self.rest = rest;
            let levels = levels.parse().ok()?;
            return (1..=self.depth).contains(&levels).then_some(Shape::Around(levels));
        }
        for unknown in ["?", "any"] {
            if self.take(unknown) {
                return Some(Shape::Unknown);
            }
        }
        let wrap: fn(Box<Shape>) -> Shape = match () {
            () if self.take("Option<") => Shape::Option,
            // The catalogs of older databases name sets.
            () if self.take("Vec<") || self.take("Set<") => Shape::List,
            () if self.take("Map<") => {
                let key = self.part()?;
                self.expect(", ")?;
                let value = self.part()?;
                self.expect(">")?;
                return Some(Shape::Map(Box::new(key), Box::new(value)));
            }
            () => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
                let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                return Plain::named(name).map(Shape::Plain);
            }
        };
        let part = self.part()?;
        self.expect(">")?;
        Some(wrap(Box::new(part)))
    }

    /// Parses the rest of `(a, b)`, `(a,)` or `(a)`. Returns the parts, and whether they are a tuple,
    /// which `(a)` is not.
    fn parts(&mut self) -> Option<(Vec<Shape>, bool)> {
        let mut parts = vec![self.part()?];
        loop {
            if self.take(",)") {
                return Some((parts, true));
            }
            if self.take(")") {
                let is_tuple = parts.len() > 1;
                return Some((parts, is_tuple));
            }
            self.expect(", ")?;
            parts.push(self.part()?);
        }
    }

    /// Parses the name of a field or a variant.
    fn name(&mut self) -> Option<String> {
        if !self.take("\"") {
            let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
            let end = self.rest.find(|c| !is_plain(c))?;
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            return (end > 0).then(|| name.to_owned());
        }
        let (mut name, mut escaped) = (String::new(), false);
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if escaped => name.push(c),
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(name);
                }
                '\\' => {
                    escaped = true;
                    continue;
                }
                c => name.push(c),
            }
            escaped = false;
        }
        None
    }

    /// Parses the rest of a struct or an enum.
    fn fields(&mut self) -> Option<Shape> {
        let (mut parts, mut is_struct) = (Vec::new(), true);
        while !self.take("}") {
            if !parts.is_empty() {
                self.expect(", ")?;
            }
            let name = self.name()?;
            let is_field = self.take(": ");
            if is_field != is_struct && !parts.is_empty() {
                return None;
            }
            is_struct = is_field;
            let part = if is_field { self.part()? } else { self.content()? };
            parts.push((name, part));
        }
        Some(if is_struct { Shape::Struct(parts) } else { Shape::Enum(parts) })
    }

    /// Parses the content of a variant.
    fn content(&mut self) -> Option<Shape> {
        if self.rest.starts_with(" {") {
            self.rest = &self.rest[1..];
            return self.part();
        }
        if self.rest.starts_with('?') {
            return self.part();
        }
        if !self.rest.starts_with('(') {
            return Some(Shape::Plain(Plain::Unit));
        }
        self.expect("(")?;
        self.depth += 1;
        let content = self.parts();
        self.depth -= 1;
        // A single part is the content itself.
        Some(match content? {
            (mut parts, false) => parts.pop()?,
            (parts, true) => Shape::Tuple(parts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(plain: Plain) -> Shape {
        Shape::Plain(plain)
    }

    #[test]
    fn all_forms_are_parsed() {
        let name = |name: &str, shape: Shape| (name.to_owned(), shape);
        let boxed = |shape: Shape| Box::new(shape);
        for (text, shape) in [
            ("u8", plain(Plain::U8)),
            ("Option<str>", Shape::Option(boxed(plain(Plain::Str)))),
            ("(u8,)", Shape::Tuple(vec![plain(Plain::U8)])),
            ("[u8; 16]", Shape::Array(boxed(plain(Plain::U8)), 16)),
            (
                "{name: str, \"a \\\"b\": Map<u8, ?>}",
                Shape::Struct(vec![
                    name("name", plain(Plain::Str)),
                    name("a \"b", Shape::Map(boxed(plain(Plain::U8)), boxed(Shape::Unknown))),
                ]),
            ),
            (
                "{Leaf, Node(^2, u8), Inner(^1), Old?, One(u8,), Named {side: f64}, Of(())}",
                Shape::Enum(vec![
                    name("Leaf", plain(Plain::Unit)),
                    name("Node", Shape::Tuple(vec![Shape::Around(2), plain(Plain::U8)])),
                    name("Inner", Shape::Around(1)),
                    name("Old", Shape::Unknown),
                    name("One", Shape::Tuple(vec![plain(Plain::U8)])),
                    name("Named", Shape::Struct(vec![name("side", plain(Plain::F64))])),
                    name("Of", plain(Plain::Unit)),
                ]),
            ),
            ("{}", Shape::Struct(vec![])),
        ] {
            assert_eq!(Shape::parse(text), Some(shape), "{text}");
        }
    }

    #[test]
    fn malformed_texts_have_no_shape() {
        let whole = "{a: Option<(u8, [str; 3])>, \"b c\": {A(^2), B {d: Map<u8, ()>}}}";
        assert!(Shape::parse(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(Shape::parse(&whole[..end]), None, "{end}");
        }
        for text in ["^1", "{a: ^2}", "u9", "u8 ", "{a: u8, B}", "{A, b: u8}"] {
            assert_eq!(Shape::parse(text), None, "{text}");
        }
        assert_eq!(Shape::parse(&"Vec<".repeat(100_000)), None);
        assert_eq!(Shape::parse(&"{A(".repeat(30)), None);
    }
}
