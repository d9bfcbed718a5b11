//! Encodes JSON as postcard values by their shape. The reverse of `decode`.
//!
//! Fields of CSV files have only text. So text is also accepted for numbers and truth values, and as
//! the JSON of lists, maps, structs and enums. An empty text is accepted for an absent value.

use std::collections::HashSet;

use anyhow::{Result, anyhow, bail};
use serde_json::value::RawValue;

use super::decode::bits;
use super::shape::{Enclosing, Plain, Shape, around};
use crate::codec::json_text::Fields;
use crate::codec::{from_hex, json_error, number_error};
use crate::shown::{listed, quoted, shortened};

/// Maximum nesting of a value.
const MAX_DEPTH: usize = 120;

/// Appends the encoding of a JSON value.
///
/// # Errors
/// If the value does not have the shape, with the place within the value.
pub fn encode_value(shape: &Shape, json: &str, out: &mut Vec<u8>) -> Result<()> {
    let raw: &RawValue = serde_json::from_str(json)
        .map_err(|error| anyhow!("{}", json_error::with_place(&error)))?;
    Encoder { place: String::new(), depth: 0, out }.value(shape, raw.get(), None)
}

/// Appends an unsigned integer with 7 bits in each byte.
pub fn append_varint(mut number: u128, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Encoder<'e> {
    /// The place of the part that is being encoded, such as `.address.lines[2]`.
    place: String,
    depth: usize,
    out: &'e mut Vec<u8>,
}

impl Encoder<'_> {
    fn error(&self, reason: impl std::fmt::Display) -> anyhow::Error {
        match self.place.strip_prefix('.').unwrap_or(&self.place) {
            "" => anyhow!("{reason}"),
            place => anyhow!("{place}: {reason}"),
        }
    }

    fn expected(&self, expected: &str, json: &str) -> anyhow::Error {
        self.error(format!("expected {expected}, not {}", shortened(json)))
    }

    fn value(
        &mut self,
        shape: &Shape,
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        let here = Enclosing { shape, outer: enclosing };
        let inner = Some(&here);
        let json = json.trim_ascii();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("the value has more than {MAX_DEPTH} levels")));
        }
        match shape {
            Shape::Unknown => {
                return Err(self.error(
                    "only the program knows the type of this part; give the whole value as bytes, \
                     such as 0x00ff",
                ));
            }
            Shape::Around(levels) => {
                let (shape, outer) = around(enclosing, *levels)
                    .ok_or_else(|| self.error("the catalog's shape is malformed"))?;
                self.value(shape, json, outer)?;
            }
            Shape::Plain(plain) => self.plain(*plain, json)?,
            Shape::Option(part) => self.option(part, json, inner)?,
            Shape::List(part) => {
                let parts = self.parts(json, "an array")?;
                append_varint(parts.len() as u128, self.out);
                self.sequence(std::iter::repeat(&**part), &parts, inner)?;
            }
            Shape::Array(part, count) => {
                let parts = self.counted(json, *count)?;
                self.sequence(std::iter::repeat(&**part), &parts, inner)?;
            }
            Shape::Tuple(shapes) => {
                let parts = self.counted(json, shapes.len())?;
                self.sequence(shapes.iter(), &parts, inner)?;
            }
            Shape::Map(key, value) => self.map(key, value, json, inner)?,
            Shape::Struct(fields) => self.fields(fields, json, inner)?,
            Shape::Enum(cases) => self.case(cases, json, inner)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// Encodes a part at a place below the current one.
    fn part(
        &mut self,
        place: &str,
        shape: &Shape,
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        let length = self.place.len();
        self.place.push_str(place);
        self.value(shape, json, enclosing)?;
        self.place.truncate(length);
        Ok(())
    }

    fn sequence<'s>(
        &mut self,
        shapes: impl Iterator<Item = &'s Shape>,
        parts: &[Box<RawValue>],
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        for (number, (shape, part)) in shapes.zip(parts).enumerate() {
            self.part(&format!("[{number}]"), shape, part.get(), enclosing)?;
        }
        Ok(())
    }

    /// Parses an array.
    fn parts(&self, json: &str, what: &str) -> Result<Vec<Box<RawValue>>> {
        let content = self.content(json)?;
        serde_json::from_str(&content).map_err(|_| self.expected(what, json))
    }

    fn counted(&self, json: &str, count: usize) -> Result<Vec<Box<RawValue>>> {
        let what = format!("an array of {count}");
        let parts = self.parts(json, &what)?;
        match parts.len() == count {
            true => Ok(parts),
            false => Err(self.expected(&what, json)),
        }
    }

    /// Returns the JSON within a string, or the JSON itself.
    fn content(&self, json: &str) -> Result<String> {
        match json.starts_with('"') {
            true => Ok(serde_json::from_str(json)
                .map_err(|error| self.error(json_error::without_place(&error)))?),
            false => Ok(json.to_owned()),
        }
    }

    fn option(
        &mut self,
        part: &Shape,
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        let is_text = matches!(part, Shape::Plain(Plain::Str | Plain::Char | Plain::Bytes));
        if json == "null" || json == "\"\"" && !is_text {
            self.out.push(0);
            return Ok(());
        }
        self.out.push(1);
        if part.may_be_null(enclosing) {
            let some = Fields::parse(json).ok().filter(|fields| fields.iter().len() == 1);
            let some = some.and_then(|fields| fields.get("Some").map(str::to_owned));
            let some =
                some.ok_or_else(|| self.expected("null or an object {\"Some\": …}", json))?;
            return self.value(part, &some, enclosing);
        }
        self.value(part, json, enclosing)
    }

    fn map(
        &mut self,
        key: &Shape,
        value: &Shape,
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        if key.is_name() {
            let content = self.content(json)?;
            let fields = Fields::parse(&content).map_err(|reason| self.error(reason))?;
            append_varint(fields.iter().len() as u128, self.out);
            for (name, part) in fields.iter() {
                let (quoted, place) =
                    (serde_json::to_string(name)?, format!(".{}", shortened(name)));
                self.part(&place, key, &quoted, enclosing)?;
                self.part(&place, value, part, enclosing)?;
            }
            return Ok(());
        }
        let pairs = self.parts(json, "an array of pairs")?;
        append_varint(pairs.len() as u128, self.out);
        for (number, pair) in pairs.iter().enumerate() {
            let parts = self.counted(pair.get(), 2)?;
            for (at, shape) in [key, value].into_iter().enumerate() {
                self.part(&format!("[{number}][{at}]"), shape, parts[at].get(), enclosing)?;
            }
        }
        Ok(())
    }

    fn fields(
        &mut self,
        shapes: &[(String, Shape)],
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        let content = self.content(json)?;
        let fields = Fields::parse(&content).map_err(|reason| self.error(reason))?;
        let known: HashSet<&str> = shapes.iter().map(|(name, _)| &**name).collect();
        if let Some((unknown, _)) = fields.iter().find(|(name, _)| !known.contains(name)) {
            return Err(self.error(format!(
                "there is no field {}; the fields are {}",
                quoted(unknown),
                names(shapes)
            )));
        }
        for (name, shape) in shapes {
            let part = match fields.get(name) {
                Some(part) => part,
                None if shape.may_be_null(enclosing) => "null",
                None => return Err(self.error(format!("the field {name:?} is missing"))),
            };
            self.part(&format!(".{name}"), shape, part, enclosing)?;
        }
        Ok(())
    }

    fn case(
        &mut self,
        cases: &[(String, Shape)],
        json: &str,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        let find = |name: &str| cases.iter().position(|(case, _)| case == name);
        let unknown = |name: &str| {
            self.error(format!(
                "there is no variant {}; the variants are {}",
                quoted(name),
                names(cases)
            ))
        };
        let content = self.content(json)?;
        if !content.trim_ascii_start().starts_with('{') {
            let number = find(&content).ok_or_else(|| unknown(&content))?;
            let (name, content) = &cases[number];
            if *content != Shape::Plain(Plain::Unit) {
                return Err(self.error(format!(
                    "the variant {name:?} has content; write {{{name:?}: content}}"
                )));
            }
            append_varint(number as u128, self.out);
            return Ok(());
        }
        let fields = Fields::parse(&content).map_err(|reason| self.error(reason))?;
        let mut fields = fields.iter();
        let (Some((name, part)), None) = (fields.next(), fields.next()) else {
            return Err(self.expected("an object with one variant", json));
        };
        let number = find(name).ok_or_else(|| unknown(name))?;
        append_varint(number as u128, self.out);
        self.part(&format!(".{name}"), &cases[number].1, part, enclosing)
    }

    fn plain(&mut self, plain: Plain, json: &str) -> Result<()> {
        let is_string = json.starts_with('"');
        if json.starts_with(['[', '{']) || json == "null" && plain != Plain::Unit {
            return Err(self.expected(plain.name(), json));
        }
        let text = self.content(json)?;
        let wrong = |place: &Self| place.error(number_error(&text, plain.name()));
        macro_rules! parse {
            ($number:ty) => {
                text.parse::<$number>().map_err(|_| wrong(self))?
            };
        }
        match plain {
            Plain::Unit if json == "null" || json == "\"\"" => {}
            Plain::Unit => return Err(self.expected("null", json)),
            Plain::Bool => self.out.push(u8::from(parse!(bool))),
            Plain::U8 => self.out.push(parse!(u8)),
            Plain::I8 => self.out.extend_from_slice(&parse!(i8).to_le_bytes()),
            Plain::U16 | Plain::U32 | Plain::U64 | Plain::U128 => {
                let number = parse!(u128);
                if number.checked_shr(bits(plain)).is_some_and(|over| over > 0) {
                    return Err(wrong(self));
                }
                append_varint(number, self.out);
            }
            Plain::I16 | Plain::I32 | Plain::I64 | Plain::I128 => {
                let number = parse!(i128);
                let sign = number >> (bits(plain) - 1);
                if sign != 0 && sign != -1 {
                    return Err(wrong(self));
                }
                append_varint((number << 1 ^ number >> 127) as u128, self.out);
            }
            Plain::F32 => {
                let number = parse!(f32);
                check_float(number.is_infinite(), &text).map_err(|()| wrong(self))?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Plain::F64 => {
                let number = parse!(f64);
                check_float(number.is_infinite(), &text).map_err(|()| wrong(self))?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Plain::Str | Plain::Char | Plain::Bytes if !is_string => {
                return Err(self.expected("a string", json));
            }
            Plain::Char if text.chars().count() != 1 => {
                return Err(self.expected("one character", json));
            }
            Plain::Str | Plain::Char => {
                append_varint(text.len() as u128, self.out);
                self.out.extend_from_slice(text.as_bytes());
            }
            Plain::Bytes => {
                let bytes = from_hex(&text).map_err(|error| self.error(error))?;
                append_varint(bytes.len() as u128, self.out);
                self.out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }
}

/// The names of fields or variants, for an error.
fn names(parts: &[(String, Shape)]) -> String {
    listed(parts.iter().map(|(name, _)| &**name))
}

/// Rejects digits of a number that is too large. Infinity is written as a word.
fn check_float(is_infinite: bool, text: &str) -> Result<(), ()> {
    let has_digits = text.contains(|c: char| c.is_ascii_digit());
    if is_infinite && has_digits { Err(()) } else { Ok(()) }
}

/// Returns the bytes of a value that the shape cannot represent.
///
/// # Errors
/// If the word is not bytes.
pub fn opaque(word: &str, type_name: &str) -> Result<Vec<u8>> {
    match from_hex(word) {
        Ok(bytes) => Ok(bytes),
        Err(error) if word.starts_with(crate::codec::HEX) => Err(error),
        Err(_) => bail!(
            "values of this table have the type {type_name}, which only the program can encode; \
             give the value as bytes, such as 0x00ff"
        ),
    }
}
