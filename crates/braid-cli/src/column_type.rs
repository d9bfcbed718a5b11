//! Types of the columns of CSV files whose header names them: `name:type`.

use crate::codec::KeyType;
use crate::codec::json_text::field_text;
use crate::shown::quoted;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Values(CellType),
    /// Keys, in the text that [`KeyType::encode`] reads.
    Keys(KeyType),
    /// Keys of this type, as values of another: the records have a field with this name, whose JSON
    /// differs from that of their keys.
    KeysAs(KeyType, CellType),
}

/// The type of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellType {
    Text,
    Number,
    Truth,
    /// JSON of any kind.
    Json,
}

const NAMES: [(&str, CellType); 4] = [
    ("str", CellType::Text),
    ("number", CellType::Number),
    ("bool", CellType::Truth),
    ("json", CellType::Json),
];

/// Separates the type of keys from that of their column.
const AS: &str = " as ";

impl ColumnType {
    /// The header of a column with this name and type.
    pub fn append_to(&self, name: &str) -> String {
        match self {
            Self::Values(cell) => format!("{name}:{}", cell.name()),
            Self::Keys(key) => format!("{name}:{key}"),
            Self::KeysAs(key, cell) => format!("{name}:{key}{AS}{}", cell.name()),
        }
    }

    /// Splits a header into name and type. Only columns with a name in `keys` have types that the
    /// command does not know.
    pub fn split<'h>(header: &'h str, keys: &[&str]) -> Option<(&'h str, Self)> {
        let known = header.match_indices(':').find_map(|(at, _)| {
            Some((&header[..at], Self::of_word(&header[at + 1..], KeyType::of_word)?))
        });
        known.or_else(|| {
            let (name, word) = keys.iter().find_map(|name| {
                let word = header.strip_prefix(name)?.strip_prefix(':')?;
                Some((&header[..name.len()], word))
            })?;
            let named = |word: &str| Some(KeyType::named(word)).filter(|_| !word.is_empty());
            Some((name, Self::of_word(word, named)?))
        })
    }

    fn of_word(word: &str, key: impl Fn(&str) -> Option<KeyType>) -> Option<Self> {
        if let Some(cell) = CellType::of_name(word) {
            return Some(Self::Values(cell));
        }
        if let Some((kind, cell)) = word.rsplit_once(AS)
            && let Some(cell) = CellType::of_name(cell)
        {
            return Some(Self::KeysAs(key(kind)?, cell));
        }
        key(word).map(Self::Keys)
    }

    /// The type of keys in this column, if the header names one.
    pub fn key(&self) -> Option<KeyType> {
        match self {
            Self::Keys(key) | Self::KeysAs(key, _) => Some(key.clone()),
            Self::Values(CellType::Text) => Some(KeyType::Text),
            Self::Values(CellType::Truth) => KeyType::of_word("bool"),
            Self::Values(CellType::Number | CellType::Json) => None,
        }
    }

    /// Checks the text of a cell, and appends its JSON. `is_quoted`: the cell has quotation marks.
    ///
    /// # Errors
    /// If the text is not of this type.
    pub fn append_cell(
        &self,
        text: &str,
        is_quoted: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Self::Values(cell) | Self::KeysAs(_, cell) => cell.append(text, is_quoted, out),
            Self::Keys(key) => append_key(key, text, out),
        }
    }

    /// The text of a cell for a JSON value, and whether it needs quotation marks: an empty text has
    /// them, null has none.
    pub fn text(&self, json: &str) -> (String, bool) {
        let text = match self {
            Self::Keys(key) => key.text_of_json(json),
            Self::Values(_) | Self::KeysAs(..) if json == "null" => return (String::new(), false),
            Self::Values(CellType::Json) | Self::KeysAs(_, CellType::Json) => json.to_owned(),
            Self::Values(_) | Self::KeysAs(..) => field_text(json),
        };
        let is_empty = text.is_empty();
        (text, is_empty)
    }

    /// Appends the JSON of a cell as a part of a key. Numbers stay text, from which keys of any type
    /// can be encoded.
    ///
    /// # Errors
    /// If the text is not of this type.
    pub fn append_key_part(&self, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
        if let Self::Keys(key) | Self::KeysAs(key, _) = self {
            let mut part = Vec::new();
            append_key(key, text, &mut part)?;
            if part.starts_with(b"[") || part.starts_with(b"\"") || part == b"null" {
                out.append(&mut part);
                return Ok(());
            }
        }
        crate::codec::append_json(text, out);
        Ok(())
    }
}

/// Appends the JSON of a key.
fn append_key(kind: &KeyType, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let key = kind.encode(text).map_err(|error| format!("{error:#}"))?;
    kind.append_json(&key, out).map_err(|malformed| malformed.to_string())
}

impl CellType {
    fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).expect("all have names").0
    }

    fn of_name(word: &str) -> Option<Self> {
        NAMES.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    }

    /// The type of a JSON value. `None` for null, which every column can hold.
    pub fn of(json: &str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'n' => None,
            b'"' => Some(Self::Text),
            b't' | b'f' => Some(Self::Truth),
            b'{' | b'[' => Some(Self::Json),
            _ => Some(Self::Number),
        }
    }

    /// The type of a column with values of both types.
    pub fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (None, kind) | (kind, None) => kind,
            (Some(one), Some(other)) if one == other => Some(one),
            _ => Some(Self::Json),
        }
    }

    /// Checks the text of a cell, and appends its JSON.
    fn append(self, text: &str, is_quoted: bool, out: &mut Vec<u8>) -> Result<(), String> {
        if text.is_empty() && !is_quoted {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        let json: Option<&serde_json::value::RawValue> = serde_json::from_str(text).ok();
        match (self, json.map(|json| json.get().trim_ascii())) {
            (Self::Text, _) => crate::codec::append_json(text, out),
            (Self::Number, Some(json)) if Self::of(json) == Some(Self::Number) => {
                out.extend_from_slice(json.as_bytes());
            }
            (Self::Truth, Some(json @ ("true" | "false"))) => {
                out.extend_from_slice(json.as_bytes())
            }
            (Self::Json, Some(json)) => {
                out.extend_from_slice(crate::codec::json_text::compact(json).as_bytes());
            }
            (kind, _) => {
                return Err(format!("{} does not have the type {}", quoted(text), kind.name()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_keep_null_and_types() {
        let cell = |header: &str, text: &str, is_quoted| {
            let mut out = Vec::new();
            let (_, kind) = ColumnType::split(header, &["a"]).unwrap();
            kind.append_cell(text, is_quoted, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        for (header, text, is_quoted, json) in [
            ("a:str", "", false, "null"),
            ("a:str", "", true, "\"\""),
            ("a:b:str", "7", false, "\"7\""),
            ("a:number", "7.10", false, "7.10"),
            ("a:bool", "true", false, "true"),
            ("a:json", "[1, \"x y\"]", true, "[1,\"x y\"]"),
            ("a:u8", "7", false, "7"),
            ("a:bytes", "0x07", false, "\"0x07\""),
            ("a:(str, u8)", "[\"x\", 7]", true, "[\"x\",7]"),
            ("a:Option<str>", "null", false, "null"),
            ("a:u8 as str", "7", false, "\"7\""),
            ("a:shop.queue", "0x07", false, "\"0x07\""),
        ] {
            assert_eq!(cell(header, text, is_quoted).unwrap(), json, "{header}");
        }
        for (header, text) in [
            ("a:number", "x"),
            ("a:number", "true"),
            ("a:bool", "1"),
            ("a:json", "{"),
            ("a:u8", "256"),
            ("a:u8", ""),
        ] {
            assert!(cell(header, text, false).is_err(), "{header} {text}");
        }
        for header in ["a:b", "a:", "a", "a:u8 as u8"] {
            assert_eq!(ColumnType::split(header, &[]), None, "{header}");
        }
        for header in ["a:str", "a:b:u8", "a:time", "a:(u8, time) as json", "a:[u8; 4]", "a:x(u8)"]
        {
            let (name, kind) = ColumnType::split(header, &[]).unwrap();
            assert_eq!(kind.append_to(name), header);
        }
        let (name, kind) = ColumnType::split("a:(shop::queue, u8)", &["a"]).unwrap();
        assert_eq!(kind.append_to(name), "a:(shop::queue, u8)");
    }
}
