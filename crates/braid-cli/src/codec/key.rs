//! Keys: a text stands for itself, a number for itself, bytes are hexadecimal digits, a UUID has dashes, a time stamp is
//! one of RFC 3339, and a tuple, or a struct, is a JSON array of its parts.

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{DecodeError, Key, KeyBuffer};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{append_json, from_hex, no_number, to_hex};

/// The type of a table's keys, as the catalog names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Text in UTF-8.
    Text,
    Bytes,
    /// So many bytes.
    Array(usize),
    Uuid,
    /// Seconds and nanoseconds since 1970.
    Time,
    Number(&'static Number),
    Option(Box<KeyType>),
    Reverse(Box<KeyType>),
    Tuple(Vec<KeyType>),
    /// A program's own, by its name one that is encoded as a tuple; if it is not after all, it is shown as its bytes.
    Struct(Vec<KeyType>),
    /// A program's own, whose keys are shown as their bytes: the whole key, or a part of a tuple whose end can be told.
    Own(String),
}

/// The number in front of some bytes, as text, and the rest.
type TakeNumber = fn(&[u8]) -> Result<(String, &[u8]), DecodeError>;

/// A type of numbers, or `bool`.
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
    /// Appends the encoding of a number that is written so.
    fn append(&self, text: &str, key: &mut KeyBuffer) -> Result<()> {
        let encoded = (self.parse)(text).with_context(|| no_number(text, self.name))?;
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
                // A fraction that is too large for its type is none of it; infinity is written as a word.
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

/// A key, or a part of one, that is given as JSON.
enum Given<'a> {
    Null,
    Text(String),
    /// A number, or `true` or `false`, as it is written: no number loses a digit.
    Word(&'a str),
    Array(Vec<&'a RawValue>),
    Object,
}

impl<'a> Given<'a> {
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
    /// The type that the catalog calls so.
    pub fn named(name: &str) -> Self {
        match Self::parse(name) {
            Some((key, "")) if key.has_ends(true) => key,
            _ => Self::Own(name.to_owned()),
        }
    }

    /// A type at the start of `name`, and what follows it.
    fn parse(name: &str) -> Option<(Self, &str)> {
        let inner = |rest, wrap: fn(Box<Self>) -> Self| {
            let (key, rest) = Self::parse(rest)?;
            Some((wrap(Box::new(key)), rest.strip_prefix('>')?))
        };
        if let Some(rest) = name.strip_prefix("Option<") {
            return inner(rest, Self::Option);
        }
        if let Some(rest) = name.strip_prefix("Reverse<") {
            return inner(rest, Self::Reverse);
        }
        if let Some(rest) = name.strip_prefix("[u8; ") {
            let (count, rest) = rest.split_once(']')?;
            return Some((Self::Array(count.parse().ok()?), rest));
        }
        let end = name.find(['(', ',', ')', '>']).unwrap_or(name.len());
        // A struct's type is named with those of its fields, which it is encoded as.
        if let Some(mut rest) = name[end..].strip_prefix('(') {
            let mut parts = Vec::new();
            loop {
                let (part, after) = Self::parse(rest)?;
                parts.push(part);
                match after.strip_prefix(", ") {
                    Some(next) => rest = next,
                    None => {
                        let key = if end == 0 { Self::Tuple(parts) } else { Self::Struct(parts) };
                        return Some((key, after.strip_prefix(')')?));
                    }
                }
            }
        }
        let (word, rest) = name.split_at(end);
        let key = match word {
            "str" => Self::Text,
            "bytes" => Self::Bytes,
            "uuid" => Self::Uuid,
            "time stamp in UTC" => Self::Time,
            "" => return None,
            _ => match NUMBERS.iter().find(|number| number.name == word) {
                Some(number) => Self::Number(number),
                None => Self::Own(word.to_owned()),
            },
        };
        Some((key, rest))
    }

    /// The bytes of a key, if all have as many.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Array(bytes) => Some(*bytes),
            Self::Uuid => Some(16),
            Self::Time => Some(12),
            Self::Number(number) => {
                Some((number.parse)("0").or_else(|| (number.parse)("true"))?.len())
            }
            Self::Reverse(inner) => inner.width(),
            Self::Tuple(parts) | Self::Struct(parts) => Self::width_of_all(parts),
            Self::Text | Self::Bytes | Self::Option(_) | Self::Own(_) => None,
        }
    }

    /// Whether it can be told where each part of a key ends, of one that is last in the whole key or is not.
    fn has_ends(&self, last: bool) -> bool {
        match self {
            Self::Own(_) => last,
            Self::Option(inner) => inner.has_ends(last),
            Self::Reverse(inner) => inner.has_ends(false),
            Self::Tuple(parts) | Self::Struct(parts) => {
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

    /// What the keys begin with that a word of the command line means: of a tuple, a JSON array of its first parts.
    ///
    /// # Errors
    /// What it looks like, if it means none, or if such keys have no prefixes.
    pub fn encode_prefix(&self, word: &str) -> Result<KeyBuffer> {
        let mut prefix = KeyBuffer::new();
        match self {
            Self::Text => return self.encode(word),
            Self::Bytes | Self::Own(_) | Self::Array(_) => {
                prefix.extend_from_slice(&from_hex(word)?);
            }
            Self::Tuple(parts) | Self::Struct(parts) => {
                let Ok(Given::Array(values)) = Given::parse(word) else {
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
                    encoded.with_context(|| format!("no key of this table begins with {word}"))?;
                }
            }
            _ => bail!(
                "--prefix is for keys of text, of bytes, and of several parts; use --from and --to"
            ),
        }
        Ok(prefix)
    }

    /// The key that a word of the command line means.
    ///
    /// # Errors
    /// What keys look like, if it means none.
    pub fn encode(&self, word: &str) -> Result<KeyBuffer> {
        let mut key = KeyBuffer::new();
        if let (true, Ok(bytes)) = (self.has_struct(), from_hex(word)) {
            key.extend_from_slice(&bytes);
            return Ok(key);
        }
        let is_json = match self {
            Self::Option(_) | Self::Reverse(_) | Self::Tuple(_) | Self::Struct(_) => {
                Given::parse(word).is_ok()
            }
            _ => false,
        };
        let encoded = match (is_json, self) {
            (true, _) => self.append(word, true, &mut key),
            (false, Self::Tuple(_) | Self::Struct(_)) => {
                Err(anyhow!("write it as a JSON array, such as {}", self.example()))
            }
            // It stands for itself.
            (false, _) => self.append(&Value::from(word).to_string(), true, &mut key),
        };
        encoded.with_context(|| format!("{word:?} is no key of this table"))?;
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
            Self::Tuple(parts) | Self::Struct(parts) => parts.iter().map(Self::example).collect(),
        }
    }

    /// Appends the encoding of a key that is given as JSON, and is the last part of the whole one or is not.
    fn append(&self, json: &str, last: bool, key: &mut KeyBuffer) -> Result<()> {
        match (self, Given::parse(json)?) {
            (Self::Text, Given::Text(text)) if last => text.encode(key),
            (Self::Text, Given::Text(text)) => text.encode_part(key),
            (Self::Bytes, Given::Text(text)) if last => from_hex(&text)?.encode(key),
            (Self::Bytes, Given::Text(text)) => from_hex(&text)?.encode_part(key),
            (Self::Time, Given::Text(text)) => {
                let time = DateTime::parse_from_rfc3339(&text);
                let time =
                    time.with_context(|| format!("{text:?} is not like {}", self.example()))?;
                (time.timestamp(), time.timestamp_subsec_nanos()).encode(key);
            }
            (Self::Array(_) | Self::Uuid, Given::Text(text)) => {
                let bytes = self.width().unwrap_or(0);
                let digits = text.replace('-', "");
                let array =
                    from_hex(&text).or_else(|_| from_hex(&format!("{}{digits}", super::HEX)))?;
                if array.len() != bytes {
                    bail!("{text:?} has {} bytes, and it takes {bytes}", array.len());
                }
                key.extend_from_slice(&array);
            }
            (Self::Own(name), Given::Text(text)) => key.extend_from_slice(
                &from_hex(&text).with_context(|| format!("keys are of the type {name}"))?,
            ),
            (Self::Number(number), Given::Text(text)) => number.append(&text, key)?,
            (Self::Number(number), Given::Word(word)) => number.append(word, key)?,
            (Self::Option(_), Given::Null) => key.push(0),
            (Self::Option(inner), _) => {
                key.push(1);
                inner.append(json, last, key)?;
            }
            (Self::Reverse(inner), _) => {
                let mut part = KeyBuffer::new();
                inner.append(json, false, &mut part)?;
                part.iter().for_each(|byte| key.push(!byte));
            }
            (Self::Tuple(parts) | Self::Struct(parts), Given::Array(values))
                if parts.len() == values.len() =>
            {
                for (at, (part, value)) in parts.iter().zip(values).enumerate() {
                    part.append(value.get(), last && at + 1 == parts.len(), key)?;
                }
            }
            _ => bail!("{} is not like {}", json.trim_ascii(), self.example()),
        }
        Ok(())
    }

    /// Appends a key as text.
    ///
    /// # Errors
    /// If the bytes encode none.
    pub fn append_text(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        match self {
            Self::Text => out.extend_from_slice(text(bytes)?.as_bytes()),
            _ => match self.decode(bytes)? {
                Value::String(text) => out.extend_from_slice(text.as_bytes()),
                key => out.extend_from_slice(key.to_string().as_bytes()),
            },
        }
        Ok(())
    }

    /// Appends a key as JSON.
    ///
    /// # Errors
    /// If the bytes encode none.
    pub fn append_json(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        match self {
            Self::Text => append_json(text(bytes)?, out),
            _ => out.extend_from_slice(self.decode(bytes)?.to_string().as_bytes()),
        }
        Ok(())
    }

    /// A key as JSON.
    ///
    /// # Errors
    /// If the bytes encode none.
    fn decode(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        match self.take(bytes, true) {
            Ok((value, [])) => Ok(value),
            _ if self.has_struct() => Ok(to_hex(bytes).into()),
            Ok(_) => Err(DecodeError::new("a key of the table")),
            Err(error) => Err(error),
        }
    }

    /// Whether some part of the keys is of a type of the program's that is taken for a tuple by its name.
    fn has_struct(&self) -> bool {
        match self {
            Self::Struct(_) => true,
            Self::Option(inner) | Self::Reverse(inner) => inner.has_struct(),
            Self::Tuple(parts) => parts.iter().any(Self::has_struct),
            _ => false,
        }
    }

    /// A key in front of `bytes`, which is the last part of the whole one or is not; and the rest.
    fn take<'b>(&self, bytes: &'b [u8], last: bool) -> Result<(Value, &'b [u8]), DecodeError> {
        Ok(match self {
            Self::Text if last => (String::decode(bytes)?.into(), &[]),
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
                let (array, rest) = split.ok_or_else(|| DecodeError::new("bytes"))?;
                (to_hex(array).into(), rest)
            }
            Self::Uuid => {
                let split = bytes.split_first_chunk();
                let (uuid, rest) = split.ok_or_else(|| DecodeError::new("uuid"))?;
                (dashed(uuid).into(), rest)
            }
            Self::Time => {
                let ((seconds, nanoseconds), rest) = <(i64, u32)>::decode_part(bytes)?;
                let time = DateTime::<Utc>::from_timestamp(seconds, nanoseconds);
                let time = time.ok_or_else(|| DecodeError::new("time stamp in UTC"))?;
                (time.to_rfc3339_opts(SecondsFormat::AutoSi, true).into(), rest)
            }
            Self::Number(number) => {
                let (text, rest) = (number.take)(bytes)?;
                // Numbers that JSON does not have, to the digit, are texts.
                let key = &bytes[..bytes.len() - rest.len()];
                let is_exact = |shown: &Value| {
                    (number.parse)(&shown.to_string()).is_some_and(|again| again[..] == *key)
                };
                let exact = serde_json::from_str(&text).ok().filter(is_exact);
                (exact.unwrap_or(Value::String(text)), rest)
            }
            Self::Option(inner) => match bytes {
                [0, rest @ ..] => (Value::Null, rest),
                [1, rest @ ..] => inner.take(rest, last)?,
                _ => return Err(DecodeError::new("an optional key")),
            },
            Self::Reverse(inner) => {
                let complement: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                let (value, rest) = inner.take(&complement, false)?;
                (value, &bytes[complement.len() - rest.len()..])
            }
            Self::Tuple(parts) | Self::Struct(parts) => {
                let (mut values, mut rest) = (Vec::new(), bytes);
                for (number, part) in parts.iter().enumerate() {
                    let behind = Self::width_of_all(&parts[number + 1..]);
                    let (value, after) = match (part, behind) {
                        (Self::Own(_), Some(behind)) if last => {
                            let end = rest.len().checked_sub(behind);
                            let end = end.ok_or_else(|| DecodeError::new("a key of the table"))?;
                            (to_hex(&rest[..end]).into(), &rest[end..])
                        }
                        _ => part.take(rest, last && number + 1 == parts.len())?,
                    };
                    values.push(value);
                    rest = after;
                }
                (Value::Array(values), rest)
            }
        })
    }
}

/// A UUID as people write it.
fn dashed(uuid: &[u8; 16]) -> String {
    let digits = |bytes: &[u8]| to_hex(bytes)[super::HEX.len()..].to_owned();
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    parts.map(digits).join("-")
}

/// A key of text as it is, nothing copied.
fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    <str as braiddb::Value>::decode(bytes)
}

#[cfg(test)]
mod tests;
