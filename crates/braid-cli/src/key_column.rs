//! The columns that hold the key of imported rows, and the type of new tables' keys.

use anyhow::{Result, bail};

use crate::codec::KeyType;

/// A column of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    /// The type of its values in the catalog, if the user chose it.
    pub kind: Option<&'static str>,
}

/// Types that a user can choose, and their names in the catalog.
const TYPES: [(&str, &str); 17] = [
    ("str", "str"),
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("u128", "u128"),
    ("i8", "i8"),
    ("i16", "i16"),
    ("i32", "i32"),
    ("i64", "i64"),
    ("i128", "i128"),
    ("f32", "f32"),
    ("f64", "f64"),
    ("bool", "bool"),
    ("bytes", "bytes"),
    ("uuid", "uuid"),
    ("time", "time stamp in UTC"),
];

impl KeyColumn {
    /// Parses `name` or `name:type`.
    ///
    /// # Errors
    /// If the name is empty.
    pub fn parse(word: &str) -> Result<Self, String> {
        let typed = word.rsplit_once(':').and_then(|(name, kind)| {
            let (_, kind) = TYPES.iter().find(|(word, _)| *word == kind)?;
            Some(Self { name: name.to_owned(), kind: Some(*kind) })
        });
        let column = typed.unwrap_or_else(|| Self { name: word.to_owned(), kind: None });
        match column.name.is_empty() {
            true => Err("give the name of a column".to_owned()),
            false => Ok(column),
        }
    }
}

/// Chooses the type of a new table's keys by the keys of some rows, as words of the command line: a
/// text, or a JSON array of the values of several columns.
pub fn key_type<'k>(columns: &[KeyColumn], keys: impl Iterator<Item = &'k str>) -> String {
    let mut seen = vec![Seen::default(); columns.len().max(1)];
    if columns.iter().any(|column| column.kind.is_none()) {
        for key in keys {
            match columns {
                [_] => seen[0].see(key),
                _ => {
                    let parts: Vec<serde_json::Value> =
                        serde_json::from_str(key).unwrap_or_default();
                    for (seen, part) in seen.iter_mut().zip(parts) {
                        match part {
                            serde_json::Value::String(text) => seen.see(&text),
                            other => seen.see(&other.to_string()),
                        }
                    }
                }
            }
        }
    }
    let kinds = columns.iter().zip(seen);
    let kinds: Vec<&str> =
        kinds.map(|(column, seen)| column.kind.unwrap_or_else(|| seen.kind())).collect();
    match &kinds[..] {
        // The number of the row.
        [] => "u64".to_owned(),
        [kind] => (*kind).to_owned(),
        kinds => format!("({})", kinds.join(", ")),
    }
}

/// Checks the chosen types against those of an existing table.
///
/// # Errors
/// If they differ, with the remedy.
pub fn check_types(columns: &[KeyColumn], table: &KeyType) -> Result<()> {
    let parts: Vec<&KeyType> = match (table, columns) {
        (KeyType::Tuple(parts) | KeyType::Struct(parts), [_, _, ..]) => parts.iter().collect(),
        (other, _) => vec![other],
    };
    for (column, part) in columns.iter().zip(parts) {
        if let Some(kind) = column.kind
            && KeyType::named(kind) != *part
        {
            bail!(
                "the table exists, and the keys in its column {:?} do not have the type {kind}; \
                 import with --key without types",
                column.name
            );
        }
    }
    Ok(())
}

/// The types that represent each value of a column exactly.
#[derive(Clone, Copy, Debug)]
struct Seen {
    any: bool,
    u64: bool,
    i64: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { any: false, u64: true, i64: true }
    }
}

impl Seen {
    fn see(&mut self, text: &str) {
        let same = |number: Option<String>| number.is_some_and(|number| number == text);
        self.any = true;
        self.u64 &= same(text.parse::<u64>().ok().map(|number| number.to_string()));
        self.i64 &= same(text.parse::<i64>().ok().map(|number| number.to_string()));
    }

    fn kind(self) -> &'static str {
        match self {
            Self { any: true, u64: true, .. } => "u64",
            Self { any: true, i64: true, .. } => "i64",
            _ => "str",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(words: &[&str]) -> Vec<KeyColumn> {
        words.iter().map(|word| KeyColumn::parse(word).unwrap()).collect()
    }

    #[test]
    fn types_follow_the_name() {
        let column = |word: &str| {
            let column = KeyColumn::parse(word).unwrap();
            (column.name, column.kind)
        };
        assert_eq!(column("id:u64"), ("id".to_owned(), Some("u64")));
        assert_eq!(column("at:time"), ("at".to_owned(), Some("time stamp in UTC")));
        // A colon that belongs to the name.
        assert_eq!(column("xml:lang"), ("xml:lang".to_owned(), None));
        assert_eq!(column("xml:lang:str"), ("xml:lang".to_owned(), Some("str")));
        assert!(KeyColumn::parse(":u64").is_err() && KeyColumn::parse("").is_err());
    }

    #[test]
    fn the_first_rows_decide_the_type() {
        let kind = |words: &[&str], keys: &[&str]| key_type(&columns(words), keys.iter().copied());
        assert_eq!(kind(&["id"], &["1", "2", "10"]), "u64");
        assert_eq!(kind(&["id"], &["-1", "2"]), "i64");
        for other in ["007", "+7", "7.0", "", "x", "99999999999999999999"] {
            assert_eq!(kind(&["id"], &["1", other]), "str", "{other}");
        }
        assert_eq!(kind(&["id"], &[]), "str");
        assert_eq!(kind(&["id:str"], &["1"]), "str");
        assert_eq!(kind(&["a", "b"], &["[\"eu\",\"7\"]", "[\"1\",8]"]), "(str, u64)");
        assert_eq!(kind(&["a:u8", "b"], &["[\"7\",\"x\"]"]), "(u8, str)");
        assert_eq!(kind(&[], &["1"]), "u64");
    }

    #[test]
    fn chosen_types_must_be_those_of_the_table() {
        let check =
            |words: &[&str], kind: &str| check_types(&columns(words), &KeyType::named(kind));
        check(&["id"], "str").unwrap();
        check(&["id:u64"], "u64").unwrap();
        check(&["a:str", "b"], "(str, u64)").unwrap();
        assert!(check(&["id:u64"], "str").is_err());
        assert!(check(&["a", "b:u32"], "(str, u64)").unwrap_err().to_string().contains("\"b\""));
    }
}
