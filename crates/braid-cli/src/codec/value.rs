//! Values as words of the command line and as JSON. Text and numbers are written unchanged, bytes
//! as hexadecimal digits, postcard values as JSON. Values of types that only the program can decode
//! are written as bytes.

use anyhow::{Context, Result, anyhow, bail};
use braiddb::DecodeError;
use braiddb::tables::ValueShape;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::malformed::{Malformed, text};
use super::postcard::PostcardType;
use super::{append_json, from_hex, is_hex, json_error, json_text, number_error, to_hex};
use crate::shown::{quoted, shortened};

/// The type of a table's values, parsed from its name in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text in UTF-8.
    Text,
    Bytes,
    Number(&'static Number),
    /// `()`.
    Nothing,
    /// A type of the program, stored as JSON.
    Json,
    /// A type of the program, stored as MessagePack.
    MessagePack,
    /// A type of the program, stored by postcard.
    Postcard(Box<PostcardType>),
    /// A type that only the program can decode. Its values are read and written as bytes.
    Own(String),
}

/// A number type, or `bool`.
#[derive(Debug)]
pub struct Number {
    name: &'static str,
    parse: fn(&str) -> Option<Vec<u8>>,
    show: fn(&[u8]) -> Result<String, DecodeError>,
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
                let number = text.parse::<$number>().ok()?;
                Some(<$number as braiddb::Value>::encode(&number).ok()?.to_vec())
            },
            show: |bytes| Ok(<$number as braiddb::Value>::decode(bytes)?.to_string()),
        }),*];
    };
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, bool);

impl ValueType {
    /// Parses the name of a type in the catalog. `shapes`: the shapes that the catalog lists.
    pub fn named(name: &str, shapes: &[ValueShape]) -> Self {
        match name {
            "str" => Self::Text,
            "bytes" => Self::Bytes,
            "()" => Self::Nothing,
            _ => match NUMBERS.iter().find(|number| number.name == name) {
                Some(number) => Self::Number(number),
                None if name.starts_with("json ") => Self::Json,
                None if name.starts_with("messagepack ") => Self::MessagePack,
                None => match name.strip_prefix("postcard ") {
                    Some(name) => Self::Postcard(Box::new(PostcardType::new(name, shapes))),
                    None => Self::Own(name.to_owned()),
                },
            },
        }
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// If the word is not a value of this type, with the expected form.
    pub fn encode(&self, word: &str) -> Result<Vec<u8>> {
        match self {
            Self::Text => Ok(word.as_bytes().to_vec()),
            Self::Bytes => from_hex(word),
            Self::Number(number) => {
                (number.parse)(word).with_context(|| number_error(word, number.name))
            }
            Self::Nothing if word.is_empty() => Ok(Vec::new()),
            Self::Nothing => bail!("values of this table are empty; give an empty string"),
            Self::Json => {
                let json: &RawValue =
                    serde_json::from_str(word).map_err(|error| json_value_error(word, &error))?;
                Ok(json.get().as_bytes().to_vec())
            }
            Self::MessagePack if is_hex(word) => message_pack_bytes(word),
            Self::MessagePack => {
                let json: serde_json::Value =
                    serde_json::from_str(word).map_err(|error| json_value_error(word, &error))?;
                if let Some(number) = number_beyond_64_bits(word) {
                    bail!(
                        "MessagePack cannot hold {}: its whole numbers are from {} to {}; \
                         write the number as a string",
                        shortened(number),
                        i64::MIN,
                        u64::MAX
                    );
                }
                rmp_serde::to_vec_named(&json).context("MessagePack cannot hold this value")
            }
            Self::Postcard(kind) => kind.encode(word),
            Self::Own(_) if is_hex(word) => from_hex(word),
            Self::Own(name) => bail!(
                "values of this table have the type {name}, which only the program can encode; \
                 give the value as bytes, such as 0x00ff"
            ),
        }
    }

    /// Encodes a JSON value of a file, in the form that [`ValueType::append_json`] writes.
    ///
    /// # Errors
    /// If the value is not of this type, with the expected form.
    pub fn encode_json(&self, json: &str) -> Result<Vec<u8>> {
        let word = match json.starts_with('"') {
            true => Some(json_text::unquoted(json).map_err(|reason| anyhow!(reason))?),
            false => None,
        };
        match (self, word) {
            (Self::Postcard(kind), _) => kind.encode_json(json),
            // A string, or the bytes of a value that JSON cannot represent.
            (Self::MessagePack, Some(word)) if is_hex(&word) => {
                message_pack_bytes(&word).or_else(|_| self.encode(json))
            }
            (Self::Json | Self::MessagePack, _) | (_, None) => self.encode(json),
            (_, Some(word)) => self.encode(&word),
        }
    }

    /// Appends a value as text.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a value.
    pub fn append_text(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Text | Self::Json => out.extend_from_slice(text(bytes)?.as_bytes()),
            Self::Number(number) => out.extend_from_slice((number.show)(bytes)?.as_bytes()),
            Self::MessagePack => match from_message_pack(bytes) {
                Some(json) => out.extend_from_slice(json.as_bytes()),
                None => out.extend_from_slice(to_hex(bytes).as_bytes()),
            },
            Self::Postcard(kind) => kind.append_text(bytes, out)?,
            Self::Nothing => {}
            Self::Bytes | Self::Own(_) => out.extend_from_slice(to_hex(bytes).as_bytes()),
        }
        Ok(())
    }

    /// Appends a value as JSON on one line. Numbers and text that is a JSON object are copied
    /// unchanged. Any other text becomes a JSON string.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a value.
    pub fn append_json(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Text => {
                let text = text(bytes)?;
                match is_object(text) {
                    true => out.extend_from_slice(bytes),
                    false => append_json(text, out),
                }
                Ok(())
            }
            Self::Json => {
                let json = text(bytes)?;
                let parsed: Result<&RawValue, _> = serde_json::from_str(json);
                parsed.map_err(|error| {
                    Malformed::at(offset(json, &error), json_error::with_place(&error))
                })?;
                // Copies the stored text, so that numbers keep their digits. Drops line ends, which
                // JSON allows only between tokens.
                out.extend(bytes.iter().filter(|byte| !matches!(byte, b'\n' | b'\r')));
                Ok(())
            }
            Self::MessagePack if from_message_pack(bytes).is_none() => {
                append_json(&to_hex(bytes), out);
                Ok(())
            }
            Self::Postcard(kind) => kind.append_json(bytes, out),
            Self::Number(_) | Self::MessagePack => self.append_text(bytes, out),
            Self::Nothing | Self::Bytes | Self::Own(_) => {
                out.push(b'"');
                self.append_text(bytes, out)?;
                out.push(b'"');
                Ok(())
            }
        }
    }
}

/// The offset in a text at which it is not JSON.
fn offset(json: &str, error: &serde_json::Error) -> usize {
    let lines = json.split_inclusive('\n').take(error.line().saturating_sub(1));
    (lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1)).min(json.len())
}

/// The error for a word that is not JSON, where values are JSON.
fn json_value_error(word: &str, error: &serde_json::Error) -> anyhow::Error {
    let reason = json_error::with_place(error);
    anyhow!("values of this table are JSON, and {} is not: {reason}", quoted(word))
}

/// Parses the bytes of MessagePack that JSON cannot represent. Rejects all other MessagePack.
fn message_pack_bytes(word: &str) -> Result<Vec<u8>> {
    let bytes = from_hex(word)?;
    let mut rest = &bytes[..];
    let is_whole = IgnoredAny::deserialize(&mut rmp_serde::Deserializer::new(&mut rest)).is_ok();
    if !is_whole || !rest.is_empty() {
        bail!(
            "values of this table are MessagePack, and {} is not the bytes of one value",
            quoted(word)
        );
    }
    match from_message_pack(&bytes) {
        Some(json) => bail!(
            "JSON can represent {}; give the value as JSON: {}",
            quoted(word),
            shortened(&json)
        ),
        None => Ok(bytes),
    }
}

/// Finds a whole number in JSON text that does not fit into 64 bits and would be rounded.
fn number_beyond_64_bits(json: &str) -> Option<&str> {
    let (mut quoted, mut at) = (false, 0);
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    while let Some(c) = json[at..].chars().next() {
        let mut end = at + c.len_utf8();
        if quoted && c == '\\' {
            // An escaped quotation mark does not end the string.
            end += json[end..].chars().next().map_or(0, char::len_utf8);
        } else if c == '"' {
            quoted = !quoted;
        } else if !quoted && (c == '-' || c.is_ascii_digit()) {
            let rest = &json[at..];
            let number = &rest[..rest.find(|c| !is_of_number(c)).unwrap_or(rest.len())];
            let is_whole = !number.contains(['.', 'e', 'E']);
            if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                return Some(number);
            }
            end = at + number.len();
        }
        at = end;
    }
    None
}

/// Converts MessagePack to JSON. Returns `None` if JSON cannot represent it, for example bytes.
fn from_message_pack(bytes: &[u8]) -> Option<String> {
    Some(rmp_serde::from_slice::<serde_json::Value>(bytes).ok()?.to_string())
}

/// Returns whether a text is a JSON object on one line that an import accepts.
fn is_object(text: &str) -> bool {
    text.starts_with('{')
        && !text.contains(['\n', '\r'])
        && serde_json::from_str::<&RawValue>(text).is_ok()
        && json_text::check(text).is_ok()
}

#[cfg(test)]
mod tests {
    use braiddb::Value;

    use super::*;

    fn text(kind: &ValueType, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        kind.append_text(bytes, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn same<V: Value + ?Sized>(value: &V::Input, word: &str) {
        let kind = ValueType::named(&V::type_name(), &[]);
        let bytes = V::encode(value).unwrap();
        assert_eq!(kind.encode(word).unwrap(), *bytes, "{word}");
        assert_eq!(text(&kind, &bytes), word);
    }

    #[test]
    fn encoding_equals_that_of_programs() {
        same::<str>("a text", "a text");
        same::<[u8]>(&[0, 255], "0x00ff");
        same::<u64>(&7, "7");
        same::<i32>(&-7, "-7");
        same::<bool>(&true, "true");
        same::<()>(&(), "");
    }

    #[test]
    fn wrong_numbers_are_rejected_with_the_expected_range() {
        let refused = |kind: &str, word: &str| {
            ValueType::named(kind, &[]).encode(word).unwrap_err().to_string()
        };
        assert_eq!(
            refused("u8", "xyz"),
            "\"xyz\" is not a valid u8: expected a whole number from 0 to 255"
        );
        assert_eq!(
            refused("i16", "32768"),
            "\"32768\" is not a valid i16: expected a whole number from -32768 to 32767"
        );
        assert_eq!(refused("bool", ""), "\"\" is not a valid bool: expected true or false");
    }

    #[test]
    fn opaque_values_are_read_and_written_as_bytes() {
        let kind = ValueType::named("postcard order {article, pieces}", &[]);
        assert_eq!(text(&kind, &[1, 2]), "0x0102");
        assert_eq!(kind.encode("0x0102").unwrap(), [1, 2]);
        let refused = |word: &str| kind.encode(word).unwrap_err().to_string();
        for word in ["nails", "0102", "{}", ""] {
            let said = refused(word);
            assert!(said.contains("order {article, pieces}") && said.contains("0x00ff"), "{said}");
        }
        assert!(refused("0x010").contains("even number of hexadecimal digits"));
    }

    #[test]
    fn message_pack_beyond_json_is_written_as_bytes() {
        let kind = ValueType::MessagePack;
        // Bytes, alone and in an object.
        for word in ["0xc401ff", "0x81a161c401ff"] {
            assert_eq!(text(&kind, &kind.encode(word).unwrap()), word);
        }
        // Truncated bytes, several values, and values that JSON can represent.
        for (word, why) in [
            ("0xc402ff", "are MessagePack"),
            ("0xc401ff00", "are MessagePack"),
            ("0xa161", "\"a\""),
        ] {
            let said = kind.encode(word).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        assert!(ValueType::Json.encode("0xc401ff").is_err());
    }

    #[test]
    fn values_with_named_fields_are_json() {
        let json = r#"{"article":"nails","pieces":[7,-8,2.5],"sold":null}"#;
        for kind in ["json order", "messagepack order"].map(|kind| ValueType::named(kind, &[])) {
            let bytes = kind.encode(json).unwrap();
            assert_eq!(text(&kind, &bytes), json);
            let mut out = Vec::new();
            kind.append_json(&bytes, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), json);
            let said = kind.encode("{oops").unwrap_err().to_string();
            assert!(said.contains("\"{oops\"") && said.contains("the name of a field"), "{said}");
        }
        let mut out = Vec::new();
        let lines = b"{\r\n\"a\": 18446744073709551616,\n\"b\": 1.10}";
        ValueType::Json.append_json(lines, &mut out).unwrap();
        assert_eq!(out, br#"{"a": 18446744073709551616,"b": 1.10}"#);
        assert!(ValueType::Json.append_json(b"{\n", &mut Vec::new()).is_err());
        // Whole numbers are exact or rejected.
        let kind = ValueType::named("messagepack order", &[]);
        for json in [
            r#"{"a":18446744073709551615,"b":[-9223372036854775808,0]}"#,
            r#"{"a":"18446744073709551616","\"1":"\\"}"#,
        ] {
            assert_eq!(text(&kind, &kind.encode(json).unwrap()), json);
        }
        for number in ["18446744073709551616", "-9223372036854775809", &u128::MAX.to_string()] {
            for json in [number.to_owned(), format!(r#"{{"é\"":1,"b":[{number}]}}"#)] {
                let said = kind.encode(&json).unwrap_err().to_string();
                assert!(said.contains(&format!("cannot hold {number}")), "{said}");
            }
            let kind = ValueType::named("json order", &[]);
            assert_eq!(text(&kind, &kind.encode(number).unwrap()), number);
        }
        // JSON cannot represent bytes.
        assert_eq!(text(&ValueType::MessagePack, &[0xc4, 1, 255]), "0xc401ff");
    }

    #[test]
    fn strings_of_json_values_are_kept() {
        for name in ["json note", "messagepack note"] {
            let kind = ValueType::named(name, &[]);
            for json in [r#""7""#, r#""null""#, r#""{}""#, r#""\"a\"""#, r#""0xa161""#, r#""a""#] {
                let (mut out, bytes) = (Vec::new(), kind.encode_json(json).unwrap());
                kind.append_json(&bytes, &mut out).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), json, "{name}");
            }
        }
        let kind = ValueType::MessagePack;
        assert_eq!(kind.encode_json("\"0xc401ff\"").unwrap(), [0xc4, 1, 255]);
    }

    #[test]
    fn json_values_take_one_line() {
        let json = |kind: &str, bytes: &[u8]| {
            let mut out = Vec::new();
            ValueType::named(kind, &[]).append_json(bytes, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(json("str", b"{\"a\": 1.10}"), "{\"a\": 1.10}");
        assert_eq!(json("str", b"{\"a\":\n1}"), "\"{\\\"a\\\":\\n1}\"");
        assert_eq!(json("str", b"{oops"), "\"{oops\"");
        // An import would reject these objects.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(128), "]".repeat(128));
        for text in ["{\"a\":1,\"a\":2}", "{\"a\":{\"b\":1,\"\\u0062\":1}}", &deep] {
            assert_eq!(json("str", text.as_bytes()), serde_json::to_string(text).unwrap());
        }
        assert_eq!(json("str", b"7"), "\"7\"");
        assert_eq!(json("u64", &<u64 as Value>::encode(&7).unwrap()), "7");
        assert_eq!(json("bytes", &[0, 255]), "\"0x00ff\"");
        assert_eq!(json("()", &[]), "\"\"");
    }
}
