//! Keys: a text stands for itself, a number for itself, bytes are hexadecimal digits, and a tuple is a JSON
//! array of its parts.

use anyhow::{Context, Result, bail};
use braiddb::{DecodeError, Key, KeyBuffer};
use serde_json::Value;

use super::{append_json, from_hex, to_hex};

/// The type of a table's keys, as the catalog names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Text in UTF-8.
    Text,
    Bytes,
    /// So many bytes.
    Array(usize),
    Number(&'static Number),
    Option(Box<KeyType>),
    Reverse(Box<KeyType>),
    Tuple(Vec<KeyType>),
    /// A program's own, whose keys are shown as their bytes.
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

macro_rules! numbers {
    ($($number:ty),*) => {
        const NUMBERS: &[Number] = &[$(Number {
            name: stringify!($number),
            parse: |text| {
                let mut key = KeyBuffer::new();
                text.parse::<$number>().ok()?.encode(&mut key);
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

impl KeyType {
    /// The type that the catalog calls so.
    pub fn named(name: &str) -> Self {
        match Self::parse(name) {
            Some((key, "")) => key,
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
        if let Some(mut rest) = name.strip_prefix('(') {
            let mut parts = Vec::new();
            loop {
                let (part, after) = Self::parse(rest)?;
                parts.push(part);
                match after.strip_prefix(", ") {
                    Some(next) => rest = next,
                    None => return Some((Self::Tuple(parts), after.strip_prefix(')')?)),
                }
            }
        }
        let end = name.find([',', ')', '>']).unwrap_or(name.len());
        let (word, rest) = name.split_at(end);
        let key = match word {
            "str" => Self::Text,
            "bytes" => Self::Bytes,
            "uuid" => Self::Array(16),
            _ => Self::Number(NUMBERS.iter().find(|number| number.name == word)?),
        };
        Some((key, rest))
    }

    /// Whether keys are text, which has prefixes.
    pub fn is_text(&self) -> bool {
        *self == Self::Text
    }

    /// The key that a word of the command line means.
    ///
    /// # Errors
    /// What keys look like, if it means none.
    pub fn encode(&self, word: &str) -> Result<KeyBuffer> {
        let mut key = KeyBuffer::new();
        let value = match self {
            Self::Option(_) | Self::Reverse(_) | Self::Tuple(_) => {
                serde_json::from_str(word).or_else(|_| self.word(word))
            }
            _ => Ok(Value::String(word.to_owned())),
        };
        let encoded = value.and_then(|value| self.append(&value, true, &mut key));
        encoded.with_context(|| format!("{word:?} is no key of this table"))?;
        Ok(key)
    }

    /// A word that is no JSON, where it may stand for itself.
    fn word(&self, word: &str) -> Result<Value> {
        match self {
            Self::Tuple(_) => bail!("write it as a JSON array, such as {}", self.example()),
            _ => Ok(Value::String(word.to_owned())),
        }
    }

    fn example(&self) -> Value {
        match self {
            Self::Text => "text".into(),
            Self::Bytes | Self::Own(_) => "0x00ff".into(),
            Self::Array(bytes) => to_hex(&vec![0; *bytes]).into(),
            Self::Number(number) if number.name == "bool" => true.into(),
            Self::Number(_) => 7.into(),
            Self::Option(inner) | Self::Reverse(inner) => inner.example(),
            Self::Tuple(parts) => parts.iter().map(Self::example).collect(),
        }
    }

    /// Appends the encoding of a key, which is the last part of the whole one or is not.
    fn append(&self, value: &Value, last: bool, key: &mut KeyBuffer) -> Result<()> {
        match (self, value) {
            (Self::Text, Value::String(text)) if last => text.encode(key),
            (Self::Text, Value::String(text)) => text.encode_part(key),
            (Self::Bytes, Value::String(text)) if last => from_hex(text)?.encode(key),
            (Self::Bytes, Value::String(text)) => from_hex(text)?.encode_part(key),
            (Self::Array(bytes), Value::String(text)) => {
                let digits = text.replace('-', "");
                let array =
                    from_hex(text).or_else(|_| from_hex(&format!("{}{digits}", super::HEX)))?;
                if array.len() != *bytes {
                    bail!("{text:?} has {} bytes, and it takes {bytes}", array.len());
                }
                key.extend_from_slice(&array);
            }
            (Self::Own(name), Value::String(text)) => key.extend_from_slice(
                &from_hex(text).with_context(|| format!("keys are of the type {name}"))?,
            ),
            (Self::Number(number), Value::String(_) | Value::Number(_) | Value::Bool(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let encoded = (number.parse)(&text)
                    .with_context(|| format!("{text} is no {}", number.name))?;
                key.extend_from_slice(&encoded);
            }
            (Self::Option(_), Value::Null) => key.push(0),
            (Self::Option(inner), value) => {
                key.push(1);
                inner.append(value, last, key)?;
            }
            (Self::Reverse(inner), value) => {
                let mut part = KeyBuffer::new();
                inner.append(value, false, &mut part)?;
                part.iter().for_each(|byte| key.push(!byte));
            }
            (Self::Tuple(parts), Value::Array(values)) if parts.len() == values.len() => {
                let (last_part, last_value) = (parts.last(), values.last());
                let before = parts.iter().zip(values).take(parts.len() - 1);
                before.into_iter().try_for_each(|(part, value)| part.append(value, false, key))?;
                if let (Some(part), Some(value)) = (last_part, last_value) {
                    part.append(value, last, key)?;
                }
            }
            _ => bail!("{value} is not like {}", self.example()),
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
        match self.take(bytes, true)? {
            (value, []) => Ok(value),
            _ => Err(DecodeError::new("a key of the table")),
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
            Self::Number(number) => {
                let (text, rest) = (number.take)(bytes)?;
                // Numbers that JSON does not have, to the digit, are texts.
                let number = serde_json::from_str::<Value>(&text).ok();
                let exact = number.filter(|number| text == format!("{number}"));
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
            Self::Tuple(parts) => {
                let (mut values, mut rest) = (Vec::new(), bytes);
                for (number, part) in parts.iter().enumerate() {
                    let (value, after) = part.take(rest, last && number + 1 == parts.len())?;
                    values.push(value);
                    rest = after;
                }
                (Value::Array(values), rest)
            }
        })
    }
}

/// A key of text as it is, nothing copied.
fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    <str as braiddb::Value>::decode(bytes)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use serde_json::json;

    use super::*;

    fn same<K: Key>(key: &K, word: &str, shown: &Value) {
        let kind = KeyType::named(&K::type_name());
        assert!(!matches!(kind, KeyType::Own(_)), "{}", K::type_name());
        let mut bytes = KeyBuffer::new();
        key.encode(&mut bytes);
        assert_eq!(kind.encode(word).unwrap(), bytes, "{word}");
        assert_eq!(kind.decode(&bytes).unwrap(), *shown, "{word}");
    }

    #[test]
    fn keys_are_encoded_as_programs_encode_them() {
        same(&"Ljubljana".to_owned(), "Ljubljana", &json!("Ljubljana"));
        same(&"7".to_owned(), "7", &json!("7"));
        same(&7_u8, "7", &json!(7));
        same(&-7_i64, "-7", &json!(-7));
        same(&1.5_f64, "1.5", &json!(1.5));
        same(&true, "true", &json!(true));
        same(&(u64::from(u32::MAX) + 1), "4294967296", &json!(4_294_967_296_u64));
        same(&vec![0_u8, 255], "0x00ff", &json!("0x00ff"));
        same(&[1_u8, 2], "0x0102", &json!("0x0102"));
        same(&(7_u64, "a\0b".to_owned()), r#"[7, "a\u0000b"]"#, &json!([7, "a\0b"]));
        same(&("a\0b".to_owned(), 7_i32), r#"["a\u0000b", 7]"#, &json!(["a\0b", 7]));
        same(&(vec![0_u8], vec![0_u8]), r#"["0x00", "0x00"]"#, &json!(["0x00", "0x00"]));
        same(&Some("a".to_owned()), r#""a""#, &json!("a"));
        same(&None::<u64>, "null", &Value::Null);
        same(&Reverse("a".to_owned()), r#""a""#, &json!("a"));
        same(&(Reverse(7_u64), Some(3_u8)), "[7, 3]", &json!([7, 3]));
        same(
            &((1_u8, "x".to_owned()), None::<bool>),
            r#"[[1, "x"], null]"#,
            &json!([[1, "x"], null]),
        );
    }

    #[test]
    fn numbers_that_json_does_not_have_are_texts() {
        let kind = KeyType::named("u128");
        let most = u128::MAX.to_string();
        assert_eq!(kind.decode(&kind.encode(&most).unwrap()).unwrap(), json!(most));
        assert_eq!(
            KeyType::named("(u128, u8)").encode(&format!("[\"{most}\", 1]")).unwrap().len(),
            17
        );
        let kind = KeyType::named("f64");
        assert_eq!(kind.decode(&kind.encode("inf").unwrap()).unwrap(), json!("inf"));
    }

    #[test]
    fn words_that_mean_no_key_are_refused_with_what_keys_look_like() {
        let refused = |kind: &str, word: &str| {
            format!("{:#}", KeyType::named(kind).encode(word).unwrap_err())
        };
        assert!(refused("u8", "256").contains("256 is no u8"));
        assert!(refused("u64", "").contains("is no u64"));
        assert!(refused("bytes", "ff").contains("0x00ff"));
        assert!(refused("bytes", "0xf").contains("half a byte"));
        assert!(refused("bytes", "0xgg").contains("hexadecimal"));
        assert!(refused("[u8; 2]", "0x010203").contains("3 bytes, and it takes 2"));
        assert!(refused("(u64, str)", "7").contains(r#"[7,"text"]"#));
        assert!(refused("(u64, str)", "7, x").contains(r#"[7,"text"]"#));
        assert!(refused("(u64, str)", r#"["a", "b"]"#).contains("a is no u64"));
        assert!(refused("shop.queue", "urgent").contains("shop.queue"));
    }

    #[test]
    fn types_of_programs_are_shown_as_their_bytes() {
        for name in ["shop.queue", "(u64, shop.queue)", "Option<", "(u64", "[u8; x]", ""] {
            let kind = KeyType::named(name);
            assert_eq!(kind, KeyType::Own(name.to_owned()));
            assert_eq!(kind.decode(&[1, 2]).unwrap(), json!("0x0102"));
            assert_eq!(&kind.encode("0x0102").unwrap()[..], [1, 2]);
        }
    }
}
