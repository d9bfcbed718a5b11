//! Keys: a text stands for itself, a number for itself, bytes are hexadecimal digits, a UUID has dashes, a time stamp is
//! one of RFC 3339, and a tuple, or a struct, is a JSON array of its parts.

use anyhow::{Context, Result, bail};
use braiddb::{DecodeError, Key, KeyBuffer};
use chrono::{DateTime, SecondsFormat, Utc};
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
                let given = serde_json::from_str(word);
                let Ok(Value::Array(values)) = given else {
                    bail!(
                        "write the first parts as a JSON array, such as [{}]",
                        parts[0].example()
                    );
                };
                if values.len() >= parts.len() {
                    return self.encode(word);
                }
                for (part, value) in parts.iter().zip(&values) {
                    let encoded = part.append(value, false, &mut prefix);
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
        let value = match self {
            Self::Option(_) | Self::Reverse(_) | Self::Tuple(_) | Self::Struct(_) => {
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
            Self::Tuple(_) | Self::Struct(_) => {
                bail!("write it as a JSON array, such as {}", self.example())
            }
            _ => Ok(Value::String(word.to_owned())),
        }
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

    /// Appends the encoding of a key, which is the last part of the whole one or is not.
    fn append(&self, value: &Value, last: bool, key: &mut KeyBuffer) -> Result<()> {
        match (self, value) {
            (Self::Text, Value::String(text)) if last => text.encode(key),
            (Self::Text, Value::String(text)) => text.encode_part(key),
            (Self::Bytes, Value::String(text)) if last => from_hex(text)?.encode(key),
            (Self::Bytes, Value::String(text)) => from_hex(text)?.encode_part(key),
            (Self::Time, Value::String(text)) => {
                let time = DateTime::parse_from_rfc3339(text);
                let time =
                    time.with_context(|| format!("{text:?} is not like {}", self.example()))?;
                (time.timestamp(), time.timestamp_subsec_nanos()).encode(key);
            }
            (Self::Array(_) | Self::Uuid, Value::String(text)) => {
                let bytes = self.width().unwrap_or(0);
                let digits = text.replace('-', "");
                let array =
                    from_hex(text).or_else(|_| from_hex(&format!("{}{digits}", super::HEX)))?;
                if array.len() != bytes {
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
            (Self::Tuple(parts) | Self::Struct(parts), Value::Array(values))
                if parts.len() == values.len() =>
            {
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
    fn uuids_and_time_stamps_are_read_and_written_as_people_do() {
        let both = |kind: &str, word: &str, bytes: &[u8]| {
            let kind = KeyType::named(kind);
            assert_eq!(&kind.encode(word).unwrap()[..], bytes, "{word}");
            let mut shown = Vec::new();
            kind.append_text(bytes, &mut shown).unwrap();
            assert_eq!(String::from_utf8(shown).unwrap(), word);
        };
        let uuid: Vec<u8> = (0x10..0x20).collect();
        let dashed = "10111213-1415-1617-1819-1a1b1c1d1e1f";
        both("uuid", dashed, &uuid);
        let hexadecimal = to_hex(&uuid);
        assert_eq!(&KeyType::named("uuid").encode(&hexadecimal).unwrap()[..], uuid);
        both("(uuid, u8)", &format!("[\"{dashed}\",7]"), &[&uuid[..], &[7]].concat());
        for (word, seconds, nanoseconds) in [
            ("1970-01-01T00:00:00Z", 0_i64, 0_u32),
            ("1969-12-31T23:59:59.500Z", -1, 500_000_000),
            ("2026-01-31T12:00:00.000000001Z", 1_769_860_800, 1),
        ] {
            let mut bytes = KeyBuffer::new();
            (seconds, nanoseconds).encode(&mut bytes);
            both("time stamp in UTC", word, &bytes);
            both(
                "(time stamp in UTC, str)",
                &format!("[\"{word}\",\"x\"]"),
                &[&bytes[..], b"x"].concat(),
            );
        }
        let refused = KeyType::named("time stamp in UTC").encode("yesterday").unwrap_err();
        assert!(format!("{refused:#}").contains("2026-01-31T12:00:00Z"), "{refused:#}");
        assert!(KeyType::named("uuid").decode(&[0; 15]).is_err());
        assert!(KeyType::named("time stamp in UTC").decode(&[0; 12]).is_err(), "no such year");
    }

    fn same_bytes(kind: &KeyType, bytes: &[u8]) {
        assert_eq!(kind.decode(bytes).unwrap(), json!(to_hex(bytes)), "{kind:?}");
        assert_eq!(&kind.encode(&to_hex(bytes)).unwrap()[..], bytes, "{kind:?}");
    }

    #[test]
    fn parts_that_are_known_are_shown_beside_one_that_is_not() {
        let same = |name: &str, word: &str, bytes: &[u8]| {
            let kind = KeyType::named(name);
            assert_eq!(kind.decode(bytes).unwrap().to_string(), word, "{name}");
            assert_eq!(&kind.encode(word).unwrap()[..], bytes, "{name}");
        };
        same("(shop.queue, u16)", r#"["0x0201",7]"#, &[2, 1, 0, 7]);
        same("(u8, shop.queue)", r#"[7,"0x0201"]"#, &[7, 2, 1]);
        same("(u8, shop.queue, u8, bool)", r#"[7,"0x02",1,true]"#, &[7, 2, 1, 1]);
        same("shop.order(u8, str)", r#"[7,"a"]"#, &[7, b'a']);
        same("shop.line(shop.order(u8, u8), shop.queue)", r#"[[7,8],"0x02"]"#, &[7, 8, 2]);
        same("(u8, Option<shop.queue>)", r#"[7,"0x02"]"#, &[7, 1, 2]);
        assert!(KeyType::named("(shop.queue, u16)").decode(&[1]).is_err());
        // Named like a struct, and encoded otherwise.
        for kind in ["shop.id(u64)", "(u8, shop.id(u64))"] {
            same_bytes(&KeyType::named(kind), &[1, 2]);
            same_bytes(&KeyType::named(kind), &[0; 12]);
        }
    }

    #[test]
    fn prefixes_are_the_first_parts_or_bytes() {
        let prefix = |name: &str, word: &str| KeyType::named(name).encode_prefix(word);
        let begins = |name: &str, word: &str, key: &str| {
            let key = KeyType::named(name).encode(key).unwrap();
            key.starts_with(&prefix(name, word).unwrap())
        };
        assert!(begins("str", "Lj", "Ljubljana"));
        assert!(begins("bytes", "0x00", "0x00ff"));
        assert!(begins("(str, u64)", r#"["eu"]"#, r#"["eu", 7]"#));
        assert!(!begins("(str, u64)", r#"["e"]"#, r#"["eu", 7]"#));
        assert!(begins("(u64, str)", r#"[7, "a"]"#, r#"[7, "ab"]"#));
        assert!(!begins("(u64, str)", "[8]", r#"[7, "ab"]"#));
        assert!(begins("(u64, str)", "[]", r#"[7, "ab"]"#));
        assert!(format!("{:#}", prefix("(str, u64)", "eu").unwrap_err()).contains(r#"["text"]"#));
        assert!(prefix("(str, u64)", r#"["eu", 7, 8]"#).is_err());
        assert!(prefix("(u64, str)", r#"["eu"]"#).is_err());
        assert!(format!("{:#}", prefix("u64", "7").unwrap_err()).contains("--from and --to"));
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
        let unknown =
            ["shop.queue", "(shop.queue, str)", "Reverse<shop.queue>", "(u64, ", "(, u64)", "a, b"];
        for name in unknown.into_iter().chain(["Option<", "(u64", "[u8; x]", ""]) {
            let kind = KeyType::named(name);
            assert_eq!(kind, KeyType::Own(name.to_owned()));
            assert_eq!(kind.decode(&[1, 2]).unwrap(), json!("0x0102"));
            assert_eq!(&kind.encode("0x0102").unwrap()[..], [1, 2]);
        }
    }
}
