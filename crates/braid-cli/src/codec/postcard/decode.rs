//! Decodes postcard values to JSON by their shape.

use std::collections::HashSet;

use super::shape::{Enclosing, Plain, Shape, around};
use crate::codec::malformed::{self, Malformed};
use crate::codec::{append_json, to_hex};

/// The reason why a value cannot be decoded.
#[derive(Debug)]
pub enum Undecodable {
    /// The bytes are not an encoding of the shape.
    Malformed(Malformed),
    /// The shape of a part is unknown, or JSON cannot represent the value: it has too many levels or
    /// parts, or a map that repeats a key.
    Opaque,
}

impl From<Malformed> for Undecodable {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

type Result<T> = std::result::Result<T, Undecodable>;

/// Maximum nesting of a value. Readers of JSON have similar limits.
const MAX_DEPTH: usize = 120;
/// Maximum number of parts without bytes, such as those of `Vec<()>`.
const MAX_EMPTY_PARTS: usize = 1 << 16;

/// Appends a value as JSON on one line, by the conventions of serde, except:
/// - bytes are a string of hexadecimal digits,
/// - a floating-point number that is not finite is a string,
/// - `Some` of a value that is `null` itself is `{"Some": null}`,
/// - maps whose keys cannot be names of fields are arrays of pairs.
///
/// # Errors
/// If the bytes are not exactly one value of the shape, or the shape does not suffice.
pub fn append_value(shape: &Shape, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut decoder = Decoder { bytes, at: 0, depth: 0, empty_parts: 0, out };
    decoder.value(shape, None)?;
    match bytes.len() - decoder.at {
        0 => Ok(()),
        more => Err(Malformed::at(decoder.at, format!("{more} bytes follow the value")).into()),
    }
}

/// Decodes an unsigned integer with 7 bits in each byte at the start of `bytes`, and returns it with
/// its length.
///
/// # Errors
/// If the bytes end within it, or it has more than `bits` bits.
pub fn varint(bytes: &[u8], bits: u32) -> std::result::Result<(u128, usize), Malformed> {
    let mut number = 0_u128;
    for (at, byte) in bytes.iter().enumerate() {
        let (shift, part) = (7 * at as u32, u128::from(byte & 0x7f));
        let free = bits.checked_sub(shift).filter(|free| *free > 0);
        if free.is_none_or(|free| free < 7 && part >> free != 0) {
            return Err(Malformed::at(at, format!("an integer has more than {bits} bits")));
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Ok((number, at + 1));
        }
    }
    Err(Malformed::at(bytes.len(), "the value ends within an integer"))
}

struct Decoder<'v> {
    bytes: &'v [u8],
    at: usize,
    depth: usize,
    empty_parts: usize,
    out: &'v mut Vec<u8>,
}

impl<'v> Decoder<'v> {
    fn take(&mut self, bytes: usize, what: &str) -> Result<&'v [u8]> {
        match self.bytes[self.at..].get(..bytes) {
            Some(taken) => {
                self.at += bytes;
                Ok(taken)
            }
            None => {
                let end = self.bytes.len();
                Err(Malformed::at(end, format!("the value ends within {what}")).into())
            }
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(self.take(N, what)?.try_into().expect("it has this length"))
    }

    fn integer(&mut self, bits: u32) -> Result<u128> {
        let read = varint(&self.bytes[self.at..], bits);
        let (number, bytes) = read.map_err(|malformed| malformed.behind(self.at))?;
        self.at += bytes;
        Ok(number)
    }

    fn signed(&mut self, bits: u32) -> Result<i128> {
        let number = self.integer(bits)?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// Reads the length of a text, a list or a map.
    fn length(&mut self) -> Result<usize> {
        let (at, length) = (self.at, self.integer(64)?);
        usize::try_from(length)
            .map_err(|_| Malformed::at(at, format!("a length is {length}")).into())
    }

    /// Reads a byte that has few values.
    fn choice(&mut self, what: &str) -> Result<bool> {
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => {
                let reason = format!("{what} begins with 0 or 1, not with {other}");
                Err(Malformed::at(self.at - 1, reason).into())
            }
        }
    }

    fn text(&mut self) -> Result<&'v str> {
        let length = self.length()?;
        let text = self.take(length, "a text")?;
        let begin = self.at - length;
        Ok(malformed::text(text).map_err(|malformed| malformed.behind(begin))?)
    }

    fn push(&mut self, text: impl AsRef<[u8]>) {
        self.out.extend_from_slice(text.as_ref());
    }

    fn value(&mut self, shape: &Shape, enclosing: Option<&Enclosing<'_>>) -> Result<()> {
        let here = Enclosing { shape, outer: enclosing };
        let inner = Some(&here);
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Undecodable::Opaque);
        }
        match shape {
            Shape::Unknown => return Err(Undecodable::Opaque),
            Shape::Around(levels) => {
                let (shape, outer) = around(enclosing, *levels).ok_or(Undecodable::Opaque)?;
                self.value(shape, outer)?;
            }
            Shape::Plain(plain) => self.plain(*plain)?,
            Shape::Option(part) => match self.choice("an optional value")? {
                false => self.push("null"),
                true if part.may_be_null(inner) => {
                    self.push("{\"Some\":");
                    self.value(part, inner)?;
                    self.push("}");
                }
                true => self.value(part, inner)?,
            },
            Shape::List(part) => {
                let count = self.length()?;
                self.sequence(std::iter::repeat_n(&**part, count), inner)?;
            }
            Shape::Array(part, count) => {
                self.sequence(std::iter::repeat_n(&**part, *count), inner)?;
            }
            Shape::Tuple(parts) => self.sequence(parts.iter(), inner)?,
            Shape::Map(key, value) => self.map(key, value, inner)?,
            Shape::Struct(fields) => {
                self.push("{");
                for (number, (name, shape)) in fields.iter().enumerate() {
                    self.push(if number > 0 { "," } else { "" });
                    append_json(name, self.out);
                    self.push(":");
                    self.value(shape, inner)?;
                }
                self.push("}");
            }
            Shape::Enum(cases) => {
                let (at, number) = (self.at, self.integer(32)?);
                let case = usize::try_from(number).ok().and_then(|number| cases.get(number));
                let (name, content) = case.ok_or_else(|| {
                    let count = cases.len();
                    Malformed::at(at, format!("variant {number} of an enum with {count}"))
                })?;
                if let Shape::Plain(Plain::Unit) = content {
                    append_json(name, self.out);
                } else {
                    self.push("{");
                    append_json(name, self.out);
                    self.push(":");
                    self.value(content, inner)?;
                    self.push("}");
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn sequence<'s>(
        &mut self,
        parts: impl Iterator<Item = &'s Shape>,
        enclosing: Option<&Enclosing<'_>>,
    ) -> Result<()> {
        self.push("[");
        for (number, part) in parts.enumerate() {
            self.push(if number > 0 { "," } else { "" });
            self.part(part, enclosing)?;
        }
        self.push("]");
        Ok(())
    }

    /// Decodes a part of a list or a map, whose number may be wrong.
    fn part(&mut self, shape: &Shape, enclosing: Option<&Enclosing<'_>>) -> Result<()> {
        let at = self.at;
        self.value(shape, enclosing)?;
        self.empty_parts += usize::from(at == self.at);
        if self.empty_parts > MAX_EMPTY_PARTS { Err(Undecodable::Opaque) } else { Ok(()) }
    }

    fn map(&mut self, key: &Shape, value: &Shape, enclosing: Option<&Enclosing<'_>>) -> Result<()> {
        let (count, is_object, mut names) = (self.length()?, key.is_name(), HashSet::new());
        self.push(if is_object { "{" } else { "[" });
        for number in 0..count {
            self.push(if number > 0 { "," } else { "" });
            if is_object {
                let begin = self.out.len();
                self.value(key, enclosing)?;
                if self.out[begin] != b'"' {
                    // A number or a truth value.
                    self.out.insert(begin, b'"');
                    self.push("\"");
                }
                if !names.insert(self.out[begin..].to_vec()) {
                    return Err(Undecodable::Opaque);
                }
                self.push(":");
                self.value(value, enclosing)?;
            } else {
                self.push("[");
                self.value(key, enclosing)?;
                self.push(",");
                self.part(value, enclosing)?;
                self.push("]");
            }
        }
        self.push(if is_object { "}" } else { "]" });
        Ok(())
    }

    fn plain(&mut self, plain: Plain) -> Result<()> {
        let name = plain.name();
        match plain {
            Plain::Unit => self.push("null"),
            Plain::Bool => {
                let bool = self.choice("a bool")?;
                self.push(bool.to_string());
            }
            Plain::U8 => {
                let [byte] = self.array(name)?;
                self.push(byte.to_string());
            }
            Plain::I8 => {
                let byte = i8::from_le_bytes(self.array(name)?);
                self.push(byte.to_string());
            }
            Plain::U16 | Plain::U32 | Plain::U64 | Plain::U128 => {
                let number = self.integer(bits(plain))?;
                self.push(number.to_string());
            }
            Plain::I16 | Plain::I32 | Plain::I64 | Plain::I128 => {
                let number = self.signed(bits(plain))?;
                self.push(number.to_string());
            }
            Plain::F32 => {
                let number = f32::from_le_bytes(self.array(name)?);
                self.float(number.is_finite(), number);
            }
            Plain::F64 => {
                let number = f64::from_le_bytes(self.array(name)?);
                self.float(number.is_finite(), number);
            }
            Plain::Str => append_json(self.text()?, self.out),
            Plain::Char => {
                let (at, text) = (self.at, self.text()?);
                if text.chars().count() != 1 {
                    return Err(Malformed::at(at, "a char has not exactly one character").into());
                }
                append_json(text, self.out);
            }
            Plain::Bytes => {
                let length = self.length()?;
                let bytes = self.take(length, "bytes")?;
                append_json(&to_hex(bytes), self.out);
            }
        }
        Ok(())
    }

    fn float(&mut self, is_finite: bool, number: impl std::fmt::Debug) {
        match is_finite {
            true => self.push(format!("{number:?}")),
            false => self.push(format!("\"{number:?}\"")),
        }
    }
}

/// The number of bits of an integer.
pub fn bits(plain: Plain) -> u32 {
    plain.name()[1..].parse().expect("the name of an integer ends with its bits")
}
