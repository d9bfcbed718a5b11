//! Keys as words of the command line and as JSON. Text and numbers are written unchanged, bytes as
//! hexadecimal digits, UUIDs with dashes, time stamps by RFC 3339, tuples and structs as JSON
//! arrays.

mod name;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{DecodeError, Key, KeyBuffer};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_text::field_text;
use super::malformed::{Malformed, text};
use super::{append_json, from_hex, number_error, to_hex};
use crate::shown::{quoted, shortened};

/// The type of a table's keys, parsed from its name in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Text in UTF-8.
    Text,
    Bytes,
    /// A fixed number of bytes.
    Array(usize),
    Uuid,
    /// Seconds and nanoseconds since 1970.
    Time,
    Number(&'static Number),
    Option(Box<KeyType>),
    Reverse(Box<KeyType>),
    Tuple(Vec<KeyType>),
    /// A type of the program, by its name, that looks like an encoded tuple. Keys that do not decode
    /// as this tuple are shown as bytes.
    Struct(String, Vec<KeyType>),
    /// An opaque type of the program, shown as bytes: a whole key, or a part of a tuple with a
    /// detectable end.
    Own(String),
}

/// Decodes a number at the start of the bytes. Returns its text and the rest of the bytes.
type TakeNumber = fn(&[u8]) -> Result<(String, &[u8]), DecodeError>;

/// A number type, or `bool`.
#[derive(Debug)]
pub struct Number {
    name: &'static str,
    parse: fn(&str) -> Option<KeyBuffer>,
    take: TakeNumber,
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Number {}

impl Number {
    /// Parses a number and appends its encoding.
    fn append(&self, text: &str, key: &mut KeyBuffer) -> Result<()> {
        let encoded = (self.parse)(text).with_context(|| number_error(text, self.name))?;
        key.extend_from_slice(&encoded);
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        const NUMBERS: &[Number] = &[$(Number {
            name: stringify!($number),
            parse: |text| {
                let mut key = KeyBuffer::new();
                let number = text.parse::<$number>().ok()?;
                // Rejects numbers that overflow to infinity. Infinity itself is written as a word.
                let is_float = stringify!($number).starts_with('f');
                if is_float && text.contains(|c: char| c.is_ascii_digit()) && number.to_string().contains("inf") {
                    return None;
                }
                number.encode(&mut key);
                Some(key)
            },
            take: |bytes| {
                let (number, rest) = <$number as Key>::decode_part(bytes)?;
                Ok((number.to_string(), rest))
            },
        }),*];
    };
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool);

/// A key or a part of a key, parsed from JSON.
enum JsonKey<'a> {
    Null,
    Text(String),
    /// The text of a number, `true` or `false`. A number keeps all its digits.
    Word(&'a str),
    Array(Vec<&'a RawValue>),
    Object,
}

impl<'a> JsonKey<'a> {
    fn parse(json: &'a str) -> serde_json::Result<Self> {
        let json = serde_json::from_str::<&RawValue>(json)?.get();
        Ok(match json.as_bytes()[0] {
            b'n' => Self::Null,
            b'"' => Self::Text(serde_json::from_str(json)?),
            b'[' => Self::Array(serde_json::from_str(json)?),
            b'{' => Self::Object,
            _ => Self::Word(json),
        })
    }
}

impl KeyType {
    /// The length of the encoded key, if all keys of this type have the same length.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Array(bytes) => Some(*bytes),
            Self::Uuid => Some(16),
            Self::Time => Some(12),
            Self::Number(number) => {
                Some((number.parse)("0").or_else(|| (number.parse)("true"))?.len())
            }
            Self::Reverse(inner) => inner.width(),
            Self::Tuple(parts) | Self::Struct(_, parts) => Self::width_of_all(parts),
            Self::Text | Self::Bytes | Self::Option(_) | Self::Own(_) => None,
        }
    }

    /// Returns whether the end of each part can be determined. `last`: this type is the last part
    /// of the whole key.
    fn has_ends(&self, last: bool) -> bool {
        match self {
            Self::Own(_) => last,
            Self::Option(inner) => inner.has_ends(last),
            Self::Reverse(inner) => inner.has_ends(false),
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                parts.iter().enumerate().all(|(at, part)| match part {
                    Self::Own(_) => last && Self::width_of_all(&parts[at + 1..]).is_some(),
                    part => part.has_ends(last && at + 1 == parts.len()),
                })
            }
            _ => true,
        }
    }

    fn width_of_all(parts: &[Self]) -> Option<usize> {
        parts.iter().map(Self::width).sum()
    }

    /// Encodes a prefix of keys. For a tuple the word is a JSON array of its first parts.
    ///
    /// # Errors
    /// If the word is not a prefix, with an example; or if keys of this type have no prefixes.
    pub fn encode_prefix(&self, word: &str) -> Result<KeyBuffer> {
        let mut prefix = KeyBuffer::new();
        match self {
            Self::Text => return self.encode(word),
            Self::Bytes | Self::Own(_) | Self::Array(_) => {
                prefix.extend_from_slice(&from_hex(word)?);
            }
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                let Ok(JsonKey::Array(values)) = JsonKey::parse(word) else {
                    bail!(
                        "write the first parts as a JSON array, such as [{}]",
                        parts[0].example()
                    );
                };
                if values.len() >= parts.len() {
                    return self.encode(word);
                }
                for (part, value) in parts.iter().zip(&values) {
                    let encoded = part.append(value.get(), false, &mut prefix);
                    encoded.with_context(|| {
                        format!("{} is not a prefix of keys of this table", shortened(word))
                    })?;
                }
            }
            _ => bail!("--prefix needs keys of text, bytes or several parts; use --from and --to"),
        }
        Ok(prefix)
    }

    /// Encodes a key.
    ///
    /// # Errors
    /// If the word is not a key of this type, with an example.
    pub fn encode(&self, word: &str) -> Result<KeyBuffer> {
        let mut key = KeyBuffer::new();
        if let (true, Ok(bytes)) = (self.has_struct(), from_hex(word)) {
            key.extend_from_slice(&bytes);
            return Ok(key);
        }
        let is_json = match self {
            Self::Option(_) | Self::Reverse(_) | Self::Tuple(_) | Self::Struct(..) => {
                JsonKey::parse(word).is_ok()
            }
            _ => false,
        };
        if is_json && self.append(word, true, &mut key).is_ok() {
            return Ok(key);
        }
        key = KeyBuffer::new();
        let encoded = match self {
            Self::Tuple(_) | Self::Struct(..) if !is_json => {
                Err(anyhow!("write the key as a JSON array, such as {}", self.example()))
            }
            Self::Tuple(_) | Self::Struct(..) => self.append(word, true, &mut key),
            // The word is the text of the key.
            _ => self.append(&Value::from(word).to_string(), true, &mut key),
        };
        encoded.with_context(|| format!("{} is not a key of this table", quoted(word)))?;
        Ok(key)
    }

    fn example(&self) -> Value {
        match self {
            Self::Text => "text".into(),
            Self::Bytes | Self::Own(_) => "0x00ff".into(),
            Self::Array(bytes) => to_hex(&vec![0; *bytes]).into(),
            Self::Uuid => dashed(&[0; 16]).into(),
            Self::Time => "2026-01-31T12:00:00Z".into(),
            Self::Number(number) if number.name == "bool" => true.into(),
            Self::Number(_) => 7.into(),
            Self::Option(inner) | Self::Reverse(inner) => inner.example(),
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                parts.iter().map(Self::example).collect()
            }
        }
    }

    /// Appends the encoding of a JSON key. `last`: it is the last part of the whole key.
    fn append(&self, json: &str, last: bool, key: &mut KeyBuffer) -> Result<()> {
        match (self, JsonKey::parse(json)?) {
            (Self::Text, JsonKey::Text(text)) if last => text.encode(key),
            (Self::Text, JsonKey::Text(text)) => text.encode_part(key),
            (Self::Bytes, JsonKey::Text(text)) if last => from_hex(&text)?.encode(key),
            (Self::Bytes, JsonKey::Text(text)) => from_hex(&text)?.encode_part(key),
            (Self::Time, JsonKey::Text(text)) => {
                let time = text.parse::<DateTime<Utc>>().with_context(|| {
                    format!("{} does not have the form of {}", quoted(&text), self.example())
                })?;
                (time.timestamp(), time.timestamp_subsec_nanos()).encode(key);
            }
            (Self::Array(_) | Self::Uuid, JsonKey::Text(text)) => {
                let bytes = self.width().unwrap_or(0);
                let digits = text.replace('-', "");
                let array =
                    from_hex(&text).or_else(|_| from_hex(&format!("{}{digits}", super::HEX)))?;
                if array.len() != bytes {
                    bail!("{} has {} bytes instead of {bytes}", quoted(&text), array.len());
                }
                key.extend_from_slice(&array);
            }
            (Self::Own(name), JsonKey::Text(text)) => key.extend_from_slice(
                &from_hex(&text).with_context(|| format!("keys have the type {name}"))?,
            ),
            (Self::Number(number), JsonKey::Text(text)) => number.append(&text, key)?,
            (Self::Number(number), JsonKey::Word(word)) => number.append(word, key)?,
            (Self::Option(_), JsonKey::Null) => key.push(0),
            (Self::Option(inner), _) => {
                key.push(1);
                inner.append(json, last, key)?;
            }
            (Self::Reverse(inner), _) => {
                let mut part = KeyBuffer::new();
                inner.append(json, false, &mut part)?;
                part.iter().for_each(|byte| key.push(!byte));
            }
            (Self::Tuple(parts) | Self::Struct(_, parts), JsonKey::Array(values))
                if parts.len() == values.len() =>
            {
                for (at, (part, value)) in parts.iter().zip(values).enumerate() {
                    part.append(value.get(), last && at + 1 == parts.len(), key)?;
                }
            }
            _ => bail!(
                "{} does not have the form of {}",
                shortened(json.trim_ascii()),
                self.example()
            ),
        }
        Ok(())
    }

    /// Appends a key as text.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a key.
    pub fn append_text(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Text => out.extend_from_slice(text(bytes)?.as_bytes()),
            _ => match self.decode(bytes)? {
                Value::String(text) if self.is_bare(&text, bytes) => {
                    out.extend_from_slice(text.as_bytes());
                }
                key => out.extend_from_slice(key.to_string().as_bytes()),
            },
        }
        Ok(())
    }

    /// Returns whether a text without quotation marks is the word of a key. Within an optional key,
    /// the text `null` differs from null.
    fn is_bare(&self, text: &str, key: &[u8]) -> bool {
        let may_be_json = matches!(self, Self::Option(_) | Self::Reverse(_));
        !may_be_json || self.encode(text).is_ok_and(|encoded| encoded[..] == *key)
    }

    /// The text of a key in JSON, from which [`KeyType::encode`] makes the same key.
    pub fn text_of_json(&self, json: &str) -> String {
        let (mut key, mut shown) = (KeyBuffer::new(), Vec::new());
        let is_shown =
            self.append(json, true, &mut key).is_ok() && self.append_text(&key, &mut shown).is_ok();
        match String::from_utf8(shown) {
            Ok(shown) if is_shown => shown,
            // The bytes of a key that its type does not describe.
            _ => field_text(json),
        }
    }

    /// Appends a key as JSON.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a key.
    pub fn append_json(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Text => append_json(text(bytes)?, out),
            _ => out.extend_from_slice(self.decode(bytes)?.to_string().as_bytes()),
        }
        Ok(())
    }

    /// Decodes a key to JSON.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a key.
    fn decode(&self, bytes: &[u8]) -> Result<Value, Malformed> {
        match self.take(bytes, true) {
            Ok((value, [])) => Ok(value),
            _ if self.has_struct() => Ok(to_hex(bytes).into()),
            Ok((_, rest)) => {
                Err(Malformed::at(bytes.len() - rest.len(), "more bytes follow the key"))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether a key may have a part at a path: numbers of parts.
    pub fn may_have(&self, path: &str) -> bool {
        match self {
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                let (number, rest) = match path.split_once('.') {
                    Some((number, rest)) => (number, Some(rest)),
                    None => (path, None),
                };
                let part = number.parse::<usize>().ok().and_then(|number| parts.get(number));
                part.is_some_and(|part| rest.is_none_or(|rest| part.may_have(rest)))
            }
            Self::Option(inner) | Self::Reverse(inner) => inner.may_have(path),
            _ => false,
        }
    }

    /// Returns whether the keys have a part of type `Struct`.
    fn has_struct(&self) -> bool {
        match self {
            Self::Struct(..) => true,
            Self::Option(inner) | Self::Reverse(inner) => inner.has_struct(),
            Self::Tuple(parts) => parts.iter().any(Self::has_struct),
            _ => false,
        }
    }

    /// Decodes a key at the start of `bytes`. Returns it and the rest. `last`: it is the last part
    /// of the whole key.
    fn take<'b>(&self, bytes: &'b [u8], last: bool) -> Result<(Value, &'b [u8]), Malformed> {
        let short = |what: &str| Malformed::at(bytes.len(), format!("the key ends within {what}"));
        Ok(match self {
            Self::Text if last => (text(bytes)?.into(), &[]),
            Self::Text => {
                let (text, rest) = String::decode_part(bytes)?;
                (text.into(), rest)
            }
            Self::Bytes if last => (to_hex(bytes).into(), &[]),
            Self::Bytes => {
                let (part, rest) = <[u8] as Key>::decode_part(bytes)?;
                (to_hex(&part).into(), rest)
            }
            Self::Own(_) => (to_hex(bytes).into(), &[]),
            Self::Array(count) => {
                let split = bytes.split_at_checked(*count);
                let (array, rest) = split.ok_or_else(|| short("bytes"))?;
                (to_hex(array).into(), rest)
            }
            Self::Uuid => {
                let split = bytes.split_first_chunk();
                let (uuid, rest) = split.ok_or_else(|| short("a UUID"))?;
                (dashed(uuid).into(), rest)
            }
            Self::Time => {
                let ((seconds, nanoseconds), rest) = <(i64, u32)>::decode_part(bytes)?;
                let time = DateTime::<Utc>::from_timestamp(seconds, nanoseconds);
                let time =
                    time.ok_or_else(|| Malformed::at(0, "the time stamp is out of range"))?;
                (time.to_rfc3339_opts(SecondsFormat::AutoSi, true).into(), rest)
            }
            Self::Number(number) => {
                let (text, rest) = (number.take)(bytes)?;
                // A number that JSON cannot represent exactly becomes a string.
                let key = &bytes[..bytes.len() - rest.len()];
                let is_exact = |json: &Value| {
                    (number.parse)(&json.to_string()).is_some_and(|again| again[..] == *key)
                };
                let exact = serde_json::from_str(&text).ok().filter(is_exact);
                (exact.unwrap_or(Value::String(text)), rest)
            }
            Self::Option(inner) => match bytes {
                [0, rest @ ..] => (Value::Null, rest),
                [1, rest @ ..] => inner.take(rest, last).map_err(|error| error.behind(1))?,
                _ => return Err(Malformed::at(0, "an optional key begins with 0 or 1")),
            },
            Self::Reverse(inner) => {
                let complement: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                let (value, rest) = inner.take(&complement, false)?;
                (value, &bytes[complement.len() - rest.len()..])
            }
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                let (mut values, mut rest) = (Vec::new(), bytes);
                for (number, part) in parts.iter().enumerate() {
                    let behind = Self::width_of_all(&parts[number + 1..]);
                    let (value, after) = match (part, behind) {
                        (Self::Own(_), Some(behind)) if last => {
                            let end = rest.len().checked_sub(behind);
                            let end = end.ok_or_else(|| short("a part of the key"))?;
                            (to_hex(&rest[..end]).into(), &rest[end..])
                        }
                        _ => {
                            let taken = part.take(rest, last && number + 1 == parts.len());
                            taken.map_err(|error| error.behind(bytes.len() - rest.len()))?
                        }
                    };
                    values.push(value);
                    rest = after;
                }
                (Value::Array(values), rest)
            }
        })
    }
}

/// Formats a UUID with dashes.
pub fn dashed(uuid: &[u8; 16]) -> String {
    let digits = |bytes: &[u8]| to_hex(bytes)[super::HEX.len()..].to_owned();
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    parts.map(digits).join("-")
}
