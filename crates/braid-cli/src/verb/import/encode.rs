//! Encoding of imported rows by the types of their table.

use anyhow::{Context, Result, bail};
use braiddb::{MAX_KEY_BYTES, MAX_PAGED_KEY_BYTES, MAX_VALUE_BYTES};

use super::rows::{Rejected, Rejections, Rows};
use crate::any_table::AnyTable;
use crate::arguments::{Format, Import};
use crate::codec::json_text::Fields;
use crate::codec::{KeyType, ValueType, append_json};
use crate::key_column::{self, KeyColumn};

/// The types of the rows, and the form in which they were read.
#[derive(Clone, Debug)]
pub struct RowTypes {
    pub key_name: String,
    key: KeyType,
    value: ValueType,
    /// The form of the values that were read.
    form: Form,
    /// Advice for rows whose key has another type.
    advice: Option<String>,
}

/// The form of the values that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Text of a field of CSV.
    Word,
    /// A JSON value.
    Json,
    /// A JSON object that is the whole row, with the columns of the key.
    Row(Vec<String>),
}

impl Form {
    fn of(import: &Import, format: Format) -> Self {
        match (&import.value, format) {
            (None, _) => Self::Row(import.key().map(|column| column.name.clone()).collect()),
            (Some(_), Format::Csv) if !import.typed => Self::Word,
            (Some(_), _) => Self::Json,
        }
    }
}

impl RowTypes {
    /// The types of a new table. The user chooses the type of its keys, or the file names it
    /// (`named`), or the keys of its first rows decide it.
    pub fn of_new_table(
        import: &Import,
        format: Format,
        named: &[Option<KeyType>],
        first: &Rows,
    ) -> Self {
        let named = named.iter().cloned().chain(std::iter::repeat(None));
        let columns = import.key().zip(named).map(|(column, named)| KeyColumn {
            name: column.name.clone(),
            kind: column.kind.clone().or(named),
        });
        let columns: Vec<KeyColumn> = columns.collect();
        let keys = (0..first.len()).filter_map(|row| std::str::from_utf8(first.get(row).1).ok());
        let key_name = key_column::key_type(&columns, keys);
        let untyped = columns.iter().find(|column| column.kind.is_none());
        let advice = untyped.filter(|_| key_name != "str").map(|column| {
            let words = columns.iter().map(|other| match other == column {
                true => format!("{}:str", other.name),
                false => other.word(),
            });
            let words: Vec<String> = words.collect();
            format!(
                "the keys of the first rows have the type {key_name}; to accept any text, import \
                 with --key {}",
                words.join(",")
            )
        });
        let key = KeyType::named(&key_name);
        Self { key_name, key, value: ValueType::Text, form: Form::of(import, format), advice }
    }

    /// The types of an existing table.
    ///
    /// # Errors
    /// If its values cannot hold the rows, or its keys have another type than the user chose.
    pub fn of_table(import: &Import, format: Format, table: &AnyTable) -> Result<Self> {
        let form = Form::of(import, format);
        let holds_rows = match &table.value {
            ValueType::Text | ValueType::Json | ValueType::MessagePack => true,
            ValueType::Postcard(kind) => kind.fields().is_some(),
            _ => false,
        };
        if !holds_rows && form != Form::Word && form != Form::Json {
            bail!(
                "the values of table {:?} are neither text nor structs, so they cannot hold whole \
                 rows; name the column of the value with --value",
                table.name
            );
        }
        let columns: Vec<KeyColumn> = import.key().cloned().collect();
        key_column::check_types(&columns, &table.key)?;
        Ok(Self {
            key_name: String::new(),
            key: table.key.clone(),
            value: table.value.clone(),
            form,
            advice: None,
        })
    }

    /// Encodes rows, and rejects rows of other types and rows that are too long.
    pub fn encode(&self, rows: Rows, is_paged: bool, rejections: &mut Rejections) -> Rows {
        let is_text = self.key == KeyType::Text && self.value == ValueType::Text;
        if is_text && self.form != Form::Json {
            return fitting(rows, is_paged, rejections);
        }
        let mut encoded = Rows::default();
        for row in 0..rows.len() {
            let (line, key, value) = rows.get(row);
            match self.encode_row(key, value) {
                Ok((key, value)) => encoded.push(line, &key, &value),
                Err(error) => rejections.add(Rejected { line, reason: format!("{error:#}") }),
            }
        }
        fitting(encoded, is_paged, rejections)
    }

    fn encode_row(&self, key: &[u8], value: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let text = |bytes| std::str::from_utf8(bytes).context("it is not UTF-8 text");
        let encoded = self.key.encode(text(key)?);
        let key = match &self.advice {
            Some(advice) => encoded.with_context(|| advice.clone())?,
            None => encoded?,
        };
        let value = text(value)?;
        let value = match (&self.form, &self.value) {
            (Form::Word, kind) => kind.encode(value)?,
            (Form::Json, kind) => kind.encode_json(value)?,
            (Form::Row(_), ValueType::Text) => value.as_bytes().to_vec(),
            (Form::Row(key), ValueType::Postcard(kind)) => {
                let known: Vec<&str> = kind.fields().into_iter().flatten().collect();
                let is_key_only =
                    |name: &str| key.iter().any(|key| key == name) && !known.contains(&name);
                kind.encode_json(&without(value, is_key_only)?)?
            }
            (Form::Row(_), kind) => kind.encode_json(value)?,
        };
        if value.len() > MAX_VALUE_BYTES {
            bail!("its value has {} bytes, the limit is {MAX_VALUE_BYTES}", value.len());
        }
        Ok((key.to_vec(), value))
    }
}

/// Returns a JSON object without some fields.
fn without(object: &str, is_omitted: impl Fn(&str) -> bool) -> Result<String> {
    let fields = Fields::parse(object).map_err(anyhow::Error::msg)?;
    let mut out = Vec::with_capacity(object.len());
    for (name, json) in fields.iter().filter(|(name, _)| !is_omitted(name)) {
        out.push(if out.is_empty() { b'{' } else { b',' });
        append_json(name, &mut out);
        out.push(b':');
        out.extend_from_slice(json.as_bytes());
    }
    if out.is_empty() {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(String::from_utf8(out).expect("the parts are text"))
}

/// Rejects rows whose encoded keys are too long for the table.
fn fitting(rows: Rows, is_paged: bool, rejections: &mut Rejections) -> Rows {
    let (max_bytes, of) = match is_paged {
        true => (MAX_PAGED_KEY_BYTES, " of a paged table"),
        false => (MAX_KEY_BYTES, ""),
    };
    if (0..rows.len()).all(|row| rows.get(row).1.len() <= max_bytes) {
        return rows;
    }
    let mut fitting = Rows::default();
    for row in 0..rows.len() {
        let (line, key, value) = rows.get(row);
        if key.len() <= max_bytes {
            fitting.push(line, key, value);
        } else {
            let reason = format!("its key has {} bytes, the limit{of} is {max_bytes}", key.len());
            rejections.add(Rejected { line, reason });
        }
    }
    fitting
}
