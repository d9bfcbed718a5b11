//! Postcard values as JSON and back, by the shapes that the catalog lists for each version of their
//! type.

mod decode;
mod encode;
mod shape;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, anyhow};
use braiddb::tables::ValueShape;

use self::decode::{Undecodable, append_value, varint};
use self::encode::{append_varint, encode_value, opaque};
use self::shape::{Plain, Shape};
use super::malformed::Malformed;
use super::{HEX, append_json, to_hex};

/// The type of postcard values: a shape for each known version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostcardType {
    name: String,
    /// The version of new values.
    version: u32,
    shapes: Vec<(u32, Shape)>,
}

impl PostcardType {
    /// The type with this description in the catalog, which follows the word `postcard`.
    pub fn new(name: &str, listed: &[ValueShape]) -> Self {
        let shapes =
            listed.iter().filter_map(|listed| Some((listed.version, Shape::parse(&listed.shape)?)));
        let mut shapes: Vec<(u32, Shape)> = shapes.collect();
        let (version, shape) = described(name);
        // The table was last opened by a version of the engine that does not list shapes.
        if let Some(shape) = shape
            && shapes.iter().all(|(other, _)| *other != version)
        {
            shapes.push((version, shape));
        }
        Self { name: name.to_owned(), version, shapes }
    }

    fn shape(&self, version: u32) -> Option<&Shape> {
        self.shapes.iter().find(|(other, _)| *other == version).map(|(_, shape)| shape)
    }

    /// Appends a value as JSON, or as a string of bytes if no shape of its version is known or JSON
    /// cannot represent the value.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a value.
    pub fn append_json(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (version, length) = varint(bytes, 32)?;
        let version = u32::try_from(version).expect("it has 32 bits");
        let begin = out.len();
        let decoded = match self.shape(version) {
            Some(shape) => append_value(shape, &bytes[length..], out),
            None => Err(Undecodable::Opaque),
        };
        match decoded {
            Ok(()) => Ok(()),
            Err(Undecodable::Malformed(malformed)) => Err(malformed.behind(length)),
            Err(Undecodable::Opaque) => {
                out.truncate(begin);
                append_json(&to_hex(bytes), out);
                Ok(())
            }
        }
    }

    /// Appends a value as text: its JSON, but a text, the name of a variant, or the bytes of a value
    /// without quotation marks.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a value.
    pub fn append_text(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let begin = out.len();
        self.append_json(bytes, out)?;
        // Within an optional value, a text must differ from null.
        let is_plain = |shape: &Shape| matches!(shape, Shape::Plain(_) | Shape::Enum(_));
        let is_text = out[begin] == b'"'
            && (self.shape(self.version).is_none_or(is_plain)
                || out[begin + 1..].starts_with(b"0x"));
        if is_text {
            let text: String = serde_json::from_slice(&out[begin..]).expect("the codec wrote it");
            out.truncate(begin);
            out.extend_from_slice(text.as_bytes());
        }
        Ok(())
    }

    /// Encodes a value from the text that [`PostcardType::append_text`] writes.
    ///
    /// # Errors
    /// If the word is not a value of this type, with the place that is wrong.
    pub fn encode(&self, word: &str) -> Result<Vec<u8>> {
        let Some(shape) = self.shape(self.version) else { return opaque(word, &self.name) };
        // The word is the text itself.
        if matches!(shape, Shape::Plain(Plain::Str | Plain::Char)) {
            return self.encode_json(&serde_json::to_string(word)?);
        }
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(word).is_ok();
        match is_json || word.starts_with(['{', '[', '"']) {
            true => self.encode_json(word),
            // The name of a variant, or bytes.
            false => self.encode_json(&serde_json::to_string(word)?),
        }
    }

    /// Encodes a JSON value in the current version.
    ///
    /// # Errors
    /// If the value does not have the shape, with the place that is wrong.
    pub fn encode_json(&self, json: &str) -> Result<Vec<u8>> {
        let word = || serde_json::from_str::<String>(json).ok();
        let Some(shape) = self.shape(self.version) else {
            return opaque(word().as_deref().unwrap_or(json), &self.name);
        };
        let mut bytes = Vec::new();
        append_varint(self.version.into(), &mut bytes);
        match encode_value(shape, json, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => match word().filter(|word| word.starts_with(HEX)) {
                Some(word) => self.encode_bytes(&word),
                None => {
                    Err(error).with_context(|| format!("it is not a value of type {}", self.name))
                }
            },
        }
    }

    /// Parses the bytes of a whole value, which begin with the version. Checks them if their shape
    /// is known.
    fn encode_bytes(&self, word: &str) -> Result<Vec<u8>> {
        let bytes = opaque(word, &self.name)?;
        self.append_json(&bytes, &mut Vec::new()).map_err(|malformed| {
            anyhow!("the bytes are not a value of type {}: {malformed}", self.name)
        })?;
        Ok(bytes)
    }

    /// The names of the fields of all known versions.
    pub fn all_fields(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.fields().into_iter().flatten().map(str::to_owned).collect();
        for (_, shape) in &self.shapes {
            if let Shape::Struct(fields) = shape {
                for (name, _) in fields {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
        }
        names
    }

    /// Returns whether a value of some version may have a column: a field, or a part by its path.
    pub fn may_have(&self, column: &str) -> bool {
        let path: Vec<&str> = column.split('.').collect();
        self.shapes.is_empty()
            || self
                .shapes
                .iter()
                .any(|(_, shape)| shape.may_have(&path) || shape.may_have(&[column]))
    }

    /// The names of the fields, if the current version is a struct.
    pub fn fields(&self) -> Option<impl Iterator<Item = &str>> {
        match self.shape(self.version)? {
            Shape::Struct(fields) => Some(fields.iter().map(|(name, _)| &**name)),
            _ => None,
        }
    }
}

/// Parses the description of a type: its version, and its shape unless that has references, which
/// count differently, or may be abbreviated to the names of its fields or variants.
fn described(name: &str) -> (u32, Option<Shape>) {
    let is_unit = |(_, content): &(String, Shape)| *content == Shape::Plain(Plain::Unit);
    let is_outline =
        |shape: &Shape| matches!(shape, Shape::Enum(cases) if cases.iter().all(is_unit));
    let shape =
        |text: &str| Shape::parse(text).filter(|shape| !text.contains('^') && !is_outline(shape));
    if let Some(shape) = shape(name) {
        return (1, Some(shape));
    }
    let version = |name: &str| {
        name.rsplit_once(" v").and_then(|(_, version)| version.parse().ok()).unwrap_or(1)
    };
    for (separator, begin) in [(" = ", 3), (" {", 1)] {
        for (at, _) in name.match_indices(separator) {
            if let Some(shape) = shape(&name[at + begin..]) {
                return (version(&name[..at]), Some(shape));
            }
        }
    }
    let name = name.split_once(" {").map_or(name, |(name, _)| name);
    (version(name.split_once(" #").map_or(name, |(name, _)| name)), None)
}
