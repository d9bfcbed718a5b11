//! JSON objects as text. They keep their digits and the order of their fields, and lose only
//! whitespace. Objects with two fields of the same name are rejected.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::json_error;
use crate::shown::quoted;

/// The fields of a JSON object, with the text of each value.
#[derive(Debug)]
pub struct Fields<'a>(IndexMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Parses an object.
    ///
    /// # Errors
    /// If the text is not a JSON object, or if it or a nested object has two fields of the same name.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let kind = match text.trim_ascii_start().as_bytes().first() {
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "true or false",
            Some(b'n') => "null",
            Some(b'-' | b'0'..=b'9') => "a number",
            _ => "",
        };
        let malformed = |error: serde_json::Error| json_error::with_place(&error);
        if !kind.is_empty() {
            let _: &RawValue = serde_json::from_str(text).map_err(malformed)?;
            return Err(format!("it is {kind}, not an object such as {{\"name\": 7}}"));
        }
        let fields: Self = serde_json::from_str(text).map_err(malformed)?;
        fields.0.values().try_for_each(|value| check(value.get()))?;
        Ok(fields)
    }

    /// The names and texts of all fields, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.get()))
    }

    /// The text of a field.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.get())
    }
}

/// Maximum nesting of objects and arrays. Later readers may recurse into each level.
const MAX_DEPTH: usize = 128;

/// Searches well-formed JSON for objects with two fields of the same name, in one pass.
pub(super) fn check(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    // The names of each open object so far, and no names for an open array.
    let mut open: Vec<Option<HashSet<Cow<'_, str>>>> = Vec::new();
    let (mut at, mut is_name_next) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' if open.len() == MAX_DEPTH => {
                return Err(format!("it has more than {MAX_DEPTH} nested objects and arrays"));
            }
            b'{' => {
                open.push(Some(HashSet::new()));
                is_name_next = true;
            }
            b'[' => open.push(None),
            b'}' | b']' => {
                open.pop();
                is_name_next = false;
            }
            b',' => is_name_next = matches!(open.last(), Some(Some(_))),
            b'"' => {
                let begin = at;
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if let Some(names) = open.last_mut().and_then(Option::as_mut)
                    && is_name_next
                {
                    let name = match &text[begin + 1..at] {
                        name if name.contains('\\') => unquoted(&text[begin..=at])?.into(),
                        name => Cow::Borrowed(name),
                    };
                    if names.contains(&name) {
                        return Err(two_fields(&name));
                    }
                    names.insert(name);
                    is_name_next = false;
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn two_fields(name: &str) -> String {
    format!("two fields have the name {}; rename or remove one", quoted(name))
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = IndexMap::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            match fields.entry(name) {
                Entry::Occupied(other) => return Err(A::Error::custom(two_fields(other.key()))),
                Entry::Vacant(new) => new.insert(value),
            };
        }
        Ok(Fields(fields))
    }
}

/// Parses a JSON string.
///
/// # Errors
/// If the text is not a JSON string.
pub fn unquoted(json: &str) -> Result<String, String> {
    serde_json::from_str(json).map_err(|error| json_error::without_place(&error))
}

/// The text of a field: the content of a string, an empty text for `null`, and the JSON of others.
pub fn field_text(json: &str) -> String {
    match json {
        "null" => String::new(),
        text if text.starts_with('"') => unquoted(text).unwrap_or_else(|_| text.to_owned()),
        other => other.to_owned(),
    }
}

/// Removes the whitespace between the tokens of JSON text.
pub fn compact(text: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    text.chars()
        .filter(|c| {
            let keep = quoted || !c.is_ascii_whitespace();
            match c {
                '"' if !escaped => quoted = !quoted,
                '\\' if quoted && !escaped => {
                    escaped = true;
                    return keep;
                }
                _ => {}
            }
            escaped = false;
            keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_removes_only_whitespace() {
        for (text, kept) in [
            (
                r#"{ "b" : 1.10,  "a": 12345678901234567890123 }"#,
                r#"{"b":1.10,"a":12345678901234567890123}"#,
            ),
            (
                r#"{"x": "two  words", "y": "a \" b", "z": "\\" }"#,
                r#"{"x":"two  words","y":"a \" b","z":"\\"}"#,
            ),
            ("{\t\"a\": [1 , -0.0 , 1e400]}", r#"{"a":[1,-0.0,1e400]}"#),
        ] {
            Fields::parse(text).unwrap();
            assert_eq!(compact(text), kept);
        }
    }

    #[test]
    fn too_deep_nesting_is_rejected() {
        let nested =
            |depth: usize| format!(r#"{{"x": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        Fields::parse(&nested(MAX_DEPTH)).unwrap();
        for depth in [MAX_DEPTH + 1, 1_000_000] {
            let error = Fields::parse(&nested(depth)).unwrap_err();
            assert!(error.contains("more than 128 nested"), "{error}");
        }
    }

    #[test]
    fn duplicate_fields_are_rejected_at_any_depth() {
        for text in [
            r#"{"a": 1, "a": 2}"#,
            r#"{"x": {"a": 1, "a": 1}}"#,
            r#"{"x": [1, {"y": [{"a": 1, "\u0061": 1}]}]}"#,
        ] {
            let error = Fields::parse(text).unwrap_err();
            assert!(error.contains("two fields have the name \"a\""), "{error}");
        }
        for text in [
            r#"{"x": {"a": [{"a": 1}, {"a": {"b": 1}}], "b": 1}, "b": "\"a\": {"}"#,
            r#"{"x": ["a", "a", {}], "y": {"a": "a", "b": "a"}}"#,
        ] {
            Fields::parse(text).unwrap();
        }
    }

    #[test]
    fn the_error_names_the_kind_of_value() {
        for (text, what) in [
            (" [1]", "it is an array, not an object"),
            ("7", "it is a number,"),
            ("\"x\"", "it is a string,"),
            ("null", "it is null,"),
            ("true", "it is true or false,"),
            ("[1", "it is not valid JSON: "),
            ("nul", "it is not valid JSON: "),
            ("{oops", "it is not valid JSON: "),
            ("{} {}", "it is not valid JSON: text follows"),
            ("id,n", "it is not valid JSON: expected a value"),
            ("", "it is not valid JSON: "),
        ] {
            let said = Fields::parse(text).unwrap_err();
            assert!(said.starts_with(what), "{text}: {said}");
        }
    }
}
