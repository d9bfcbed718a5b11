//! The columns that hold the key of imported rows, and the type of new tables' keys.

use anyhow::{Result, bail};

use crate::codec::KeyType;

/// A column of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    /// The type of its values, if the user or the header of the file names it.
    pub kind: Option<KeyType>,
}

/// Types that a user can choose, and tuples of them.
const TYPES: [&str; 17] = [
    "str", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64",
    "bool", "bytes", "uuid", "time",
];

/// Parses the columns of an argument, separated by commas, each with or without a type.
///
/// # Errors
/// If a name is empty, or a tuple type has no end or unknown parts.
pub fn parse(word: &str) -> Result<Vec<KeyColumn>, String> {
    split(word)?.into_iter().map(KeyColumn::parse).collect()
}

/// Splits an argument at the commas outside of tuple types, which begin with `:(`.
fn split(word: &str) -> Result<Vec<&str>, String> {
    let (mut columns, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, c) in word.char_indices() {
        match c {
            '(' if depth > 0 || word[..at].ends_with(':') => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                columns.push(&word[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(format!("the type in {:?} has no end; ) is missing", &word[begin..]));
    }
    columns.push(&word[begin..]);
    Ok(columns)
}

impl KeyColumn {
    /// Parses `name` or `name:type`.
    fn parse(word: &str) -> Result<Self, String> {
        let (name, kind) = match word.split_once(":(") {
            Some((name, _)) => {
                let kind = &word[name.len() + 1..];
                let known = KeyType::of_word(kind).filter(can_be_chosen);
                (name, Some(known.ok_or_else(|| unknown(kind))?))
            }
            None => {
                let typed = word.rsplit_once(':').and_then(|(name, kind)| {
                    Some((name, KeyType::of_word(kind).filter(can_be_chosen)?))
                });
                typed.map_or((word, None), |(name, kind)| (name, Some(kind)))
            }
        };
        match name.is_empty() {
            true => Err("give the name of a column".to_owned()),
            false => Ok(Self { name: name.to_owned(), kind }),
        }
    }

    /// The word that [`parse`] reads.
    pub fn word(&self) -> String {
        match &self.kind {
            Some(kind) => format!("{}:{kind}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Returns whether a user can choose a type: a row then has a key of this type in any file.
fn can_be_chosen(kind: &KeyType) -> bool {
    match kind {
        KeyType::Tuple(parts) => parts.iter().all(can_be_chosen),
        other => TYPES.contains(&&*other.to_string()),
    }
}

fn unknown(kind: &str) -> String {
    format!("{kind:?} is not a tuple of known types; they are {}", TYPES.join(", "))
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
    let kinds = kinds.map(|(column, seen)| match &column.kind {
        Some(kind) => kind.catalog_name(),
        None => seen.kind().to_owned(),
    });
    let kinds: Vec<String> = kinds.collect();
    match &kinds[..] {
        // The number of the row.
        [] => "u64".to_owned(),
        [kind] => kind.clone(),
        kinds => format!("({})", kinds.join(", ")),
    }
}

/// Checks the chosen types against those of an existing table.
///
/// # Errors
/// If they differ, with the remedy.
pub fn check_types(columns: &[KeyColumn], table: &KeyType) -> Result<()> {
    let parts: Vec<&KeyType> = match (table, columns) {
        (KeyType::Tuple(parts) | KeyType::Struct(_, parts), [_, _, ..]) => parts.iter().collect(),
        (other, _) => vec![other],
    };
    for (column, part) in columns.iter().zip(parts) {
        if let Some(kind) = &column.kind
            && kind != part
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
        words.iter().flat_map(|word| parse(word).unwrap()).collect()
    }

    #[test]
    fn types_follow_the_name() {
        let column = |word: &str| {
            let column = KeyColumn::parse(word).unwrap();
            (column.name, column.kind.map(|kind| kind.catalog_name()))
        };
        let typed = |name: &str, kind: &str| (name.to_owned(), Some(kind.to_owned()));
        assert_eq!(column("id:u64"), typed("id", "u64"));
        assert_eq!(column("at:time"), typed("at", "time stamp in UTC"));
        // A colon that belongs to the name.
        assert_eq!(column("xml:lang"), ("xml:lang".to_owned(), None));
        assert_eq!(column("xml:lang:str"), typed("xml:lang", "str"));
        assert_eq!(column("id:shop.queue"), ("id:shop.queue".to_owned(), None));
        assert!(KeyColumn::parse(":u64").is_err() && KeyColumn::parse("").is_err());
        for kind in TYPES {
            assert_eq!(KeyType::of_word(kind).unwrap().to_string(), kind);
        }
    }

    #[test]
    fn types_may_be_tuples() {
        let columns = parse("a:(str,u64),b,c:(time, (bytes,u8)),d(x").unwrap();
        let words: Vec<String> = columns.iter().map(KeyColumn::word).collect();
        assert_eq!(words, ["a:(str, u64)", "b", "c:(time, (bytes, u8))", "d(x"]);
        assert_eq!(
            columns[2].kind.as_ref().unwrap().catalog_name(),
            "(time stamp in UTC, (bytes, u8))"
        );
        assert!(parse("a:(str,u7)").unwrap_err().contains("they are str, u8"));
        assert!(parse("a:(str,Option<u8>)").is_err());
        assert!(parse("a:(str,u64").unwrap_err().contains(") is missing"));
        assert!(parse("a,,b").is_err());
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
