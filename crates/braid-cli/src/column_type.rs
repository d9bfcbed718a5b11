//! Types of the columns of CSV files whose header names them: `name:type`.

use crate::shown::quoted;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Number,
    Truth,
    /// JSON of any kind.
    Json,
}

const NAMES: [(&str, ColumnType); 4] = [
    ("str", ColumnType::Text),
    ("number", ColumnType::Number),
    ("bool", ColumnType::Truth),
    ("json", ColumnType::Json),
];

impl ColumnType {
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

    /// The header of a column with this name and type.
    pub fn append_to(self, name: &str) -> String {
        let (kind, _) = NAMES.iter().find(|(_, kind)| *kind == self).expect("all have names");
        format!("{name}:{kind}")
    }

    /// Splits a header into name and type.
    pub fn split(header: &str) -> Option<(&str, Self)> {
        let (name, word) = header.rsplit_once(':')?;
        let (_, kind) = NAMES.iter().find(|(other, _)| *other == word)?;
        Some((name, *kind))
    }

    /// Checks the text of a cell, and appends its JSON. `is_quoted`: the cell has quotation marks.
    ///
    /// # Errors
    /// If the text is not of this type.
    pub fn append_cell(self, text: &str, is_quoted: bool, out: &mut Vec<u8>) -> Result<(), String> {
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
                return Err(format!(
                    "{} does not have the type of {:?}",
                    quoted(text),
                    kind.append_to("")
                ));
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
            let (_, kind) = ColumnType::split(header).unwrap();
            kind.append_cell(text, is_quoted, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        for (header, text, is_quoted, json) in [
            ("a:str", "", false, "null"),
            ("a:str", "", true, "\"\""),
            ("a:b:str", "7", false, "\"7\""),
            ("a:number", "7.10", false, "7.10"),
            ("a:bool", "true", false, "true"),
            ("a:json", "[1, \"x y\"]", true, "[1,\"x y\"]"),
        ] {
            assert_eq!(cell(header, text, is_quoted).unwrap(), json, "{header}");
        }
        for (header, text) in
            [("a:number", "x"), ("a:number", "true"), ("a:bool", "1"), ("a:json", "{")]
        {
            assert!(cell(header, text, false).is_err(), "{header} {text}");
        }
        assert_eq!(ColumnType::split("a:b"), None);
        assert_eq!(ColumnType::Text.append_to("a"), "a:str");
    }
}
