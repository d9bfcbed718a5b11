//! The conversion of records to rows of a file.

use anyhow::{Context, Result, anyhow, bail};

use super::reader::Reader;
use crate::any_table::AnyTable;
use crate::arguments::{Export, Format};
use crate::codec::json_text::{Fields, compact, field_text};
use crate::codec::{KeyType, ValueType, append_json};
use crate::column_type::ColumnType;
use crate::query::{Query, Record};

/// The conversion of records to rows.
#[derive(Clone, Debug)]
pub struct RowFormat {
    pub(super) table: AnyTable,
    format: Format,
    delimiter: u8,
    /// The names of the fields that hold the key.
    pub(super) key: Vec<String>,
    /// The types of the keys in these fields.
    pub(super) key_types: Vec<KeyType>,
    pub(super) content: Content,
    /// The types of the columns of a CSV file, if the header names them.
    pub(super) types: Option<Vec<ColumnType>>,
}

/// The fields of a row.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The key, and the value in a field with this name.
    Pair(String),
    /// The fields of the value, with the key. The names of the columns of a CSV file.
    Fields(Vec<String>),
    /// The chosen columns.
    Chosen(Vec<String>),
}

impl RowFormat {
    /// # Errors
    /// If the arguments contradict each other or the table.
    pub fn new(
        reader: &Reader<'_>,
        export: &Export,
        format: Format,
        delimiter: u8,
    ) -> Result<Self> {
        let (table, key) = (reader.table.clone(), reader.names.key.clone());
        let key_types = match (&table.key, &key[..]) {
            (kind, [_]) => vec![kind.clone()],
            (KeyType::Tuple(parts) | KeyType::Struct(_, parts), names)
                if parts.len() == names.len() =>
            {
                parts.clone()
            }
            _ => bail!(
                "the keys of table {:?} do not have {} parts; name one column with --key",
                table.name,
                key.len()
            ),
        };
        let content = match (&reader.query.columns, &export.key, &export.value) {
            (Some(columns), ..) => Content::Chosen(columns.clone()),
            (None, _, Some(value)) => Content::Pair(value.clone()),
            (None, None, None) => Content::Pair(reader.names.value.clone()),
            (None, Some(_), None) => Content::Fields(field_names(reader, format)?),
        };
        if let Content::Pair(value) = &content
            && key.contains(value)
        {
            bail!("the key and the value cannot both be named {value:?}");
        }
        Ok(Self { table, format, delimiter, key, key_types, content, types: None })
    }

    /// The known names of the columns.
    pub fn columns(&self) -> Vec<String> {
        match &self.content {
            Content::Pair(value) => self.key.iter().chain([value]).cloned().collect(),
            Content::Fields(columns) | Content::Chosen(columns) => columns.clone(),
        }
    }

    /// The header line of CSV.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        let names = self.columns();
        let names: Vec<String> = match &self.types {
            None => names,
            Some(types) => {
                names.iter().zip(types).map(|(name, kind)| kind.append_to(name)).collect()
            }
        };
        self.append_csv(&mut header, names.iter().map(|name| (name.as_bytes(), false)));
        header
    }

    /// The rows of a count.
    pub fn count(&self, count: u64) -> Vec<u8> {
        match self.format {
            Format::Csv => format!("count\n{count}\n").into_bytes(),
            Format::Jsonl | Format::Parquet => format!("{{\"count\":{count}}}\n").into_bytes(),
        }
    }

    /// Appends the row of a record. For a Parquet file it is an intermediate line of JSON.
    ///
    /// # Errors
    /// If the record is malformed, or does not fit into the row.
    pub fn append(
        &self,
        page: &mut Vec<u8>,
        query: &Query,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        match &self.content {
            Content::Pair(name) if self.format == Format::Csv && self.types.is_none() => {
                self.append_text_pair(page, query, name, key, value)
            }
            Content::Pair(name) => {
                let record = query.record(key, value)?;
                let columns: Vec<String> = self.key.iter().chain([name]).cloned().collect();
                let cells = self.key.iter().map(|name| record.column(name));
                let cells = cells.chain([Some(&*record.value)]).collect();
                self.append_cells(page, &columns, cells);
                Ok(())
            }
            Content::Chosen(columns) => {
                let record = query.record(key, value)?;
                let cells = columns.iter().map(|name| record.column(name)).collect();
                self.append_cells(page, columns, cells);
                Ok(())
            }
            Content::Fields(columns) => {
                let record = query.record(key, value)?;
                self.append_fields(page, &record, columns)
                    .with_context(|| format!("the record {} cannot be exported", record.key))
            }
        }
    }

    /// Appends the texts of the key and the value.
    fn append_text_pair(
        &self,
        page: &mut Vec<u8>,
        query: &Query,
        name: &str,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let (mut key_text, mut value_text) = (Vec::new(), Vec::new());
        self.table.append_text(key, value, &mut value_text)?;
        if let [_] = self.key[..] {
            self.table.append_key_text(key, &mut key_text)?;
            self.append_csv(page, [(&*key_text, false), (&value_text, false)]);
            return Ok(());
        }
        let record = query.record(key, value)?;
        let mut cells: Vec<String> = Vec::new();
        for part in &self.key {
            cells.push(record.column(part).map(field_text).unwrap_or_default());
        }
        cells.push(String::from_utf8(value_text).with_context(|| format!("column {name}"))?);
        self.append_csv(page, cells.iter().map(|cell| (cell.as_bytes(), false)));
        Ok(())
    }

    /// Appends JSON values as a row.
    fn append_cells(&self, page: &mut Vec<u8>, columns: &[String], cells: Vec<Option<&str>>) {
        if self.format != Format::Csv {
            page.push(b'{');
            for (number, (name, json)) in columns.iter().zip(cells).enumerate() {
                if number > 0 {
                    page.push(b',');
                }
                append_json(name, page);
                page.push(b':');
                page.extend_from_slice(json.unwrap_or("null").as_bytes());
            }
            page.extend_from_slice(b"}\n");
            return;
        }
        let kinds = self.types.iter().flatten().map(Some).chain(std::iter::repeat(None));
        let texts = cells.into_iter().zip(kinds).map(|(json, kind)| match (json, kind) {
            (Some(json), Some(kind)) => kind.text(json),
            (json, _) => (json.map(field_text).unwrap_or_default(), false),
        });
        let texts: Vec<(String, bool)> = texts.collect();
        self.append_csv(page, texts.iter().map(|(text, quoted)| (text.as_bytes(), *quoted)));
    }

    fn append_fields(
        &self,
        page: &mut Vec<u8>,
        record: &Record<'_>,
        columns: &[String],
    ) -> Result<()> {
        let text = object_text(&self.table, record);
        let fields = Fields::parse(&text).map_err(|reason| not_an_object(&reason))?;
        let mut missing = Vec::new();
        for (name, kind) in self.key.iter().zip(&self.key_types) {
            let part = record.column(name).unwrap_or("null");
            match fields.get(name) {
                None => missing.push((name, part)),
                Some(holds) => {
                    let same = field_text(holds) == field_text(part)
                        || kind.encode(&field_text(holds)).ok()
                            == kind.encode(&field_text(part)).ok();
                    if !same {
                        bail!(
                            "its field {name:?} does not hold its key; write key and value to \
                             separate fields with --key and --value"
                        );
                    }
                }
            }
        }
        if self.format != Format::Csv {
            let line = match text.contains(['\n', '\r']) {
                true => compact(&text),
                false => text.to_string(),
            };
            page.push(b'{');
            for (name, part) in &missing {
                append_json(name, page);
                page.push(b':');
                page.extend_from_slice(part.as_bytes());
                page.push(b',');
            }
            let rest = line.trim_ascii_start().strip_prefix('{').unwrap_or(&line);
            if rest.trim_ascii_start() == "}" && !missing.is_empty() {
                page.pop();
            }
            page.extend_from_slice(rest.as_bytes());
            page.push(b'\n');
            return Ok(());
        }
        let known = columns.iter().filter(|name| fields.get(name).is_some()).count();
        let other = |(name, _): &(&str, &str)| !columns.iter().any(|column| column == name);
        if known < fields.iter().len()
            && let Some((name, _)) = fields.iter().find(other)
        {
            bail!(
                "it has the field {name:?}, which the first record does not have; name the \
                 columns with --columns"
            );
        }
        let cell = |name: &String| {
            let in_key = missing.iter().find(|(key, _)| *key == name).map(|(_, part)| *part);
            fields.get(name).or(in_key)
        };
        let cells = columns.iter().map(cell).collect();
        self.append_cells(page, columns, cells);
        Ok(())
    }

    /// Appends a row of CSV. Fields have quotation marks where they are necessary or requested.
    fn append_csv<'f>(
        &self,
        page: &mut Vec<u8>,
        fields: impl IntoIterator<Item = (&'f [u8], bool)>,
    ) {
        let start = page.len();
        for (number, (field, is_quoted)) in fields.into_iter().enumerate() {
            if number > 0 {
                page.push(self.delimiter);
            }
            let special =
                |byte: &u8| matches!(*byte, b'"' | b'\n' | b'\r') || *byte == self.delimiter;
            // Without quotation marks, a byte order mark would be lost on import.
            let quoted =
                is_quoted || field.iter().any(special) || field.starts_with("\u{feff}".as_bytes());
            if !quoted {
                page.extend_from_slice(field);
                continue;
            }
            page.push(b'"');
            for byte in field {
                page.extend(std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
            }
            page.push(b'"');
        }
        if page.len() == start {
            // An import would skip an empty line.
            page.extend_from_slice(b"\"\"");
        }
        page.push(b'\n');
    }
}

/// The columns of a file whose rows have the fields of the values. JSON lines need none.
fn field_names(reader: &Reader<'_>, format: Format) -> Result<Vec<String>> {
    let key = &reader.names.key;
    if format == Format::Jsonl {
        return Ok(Vec::new());
    }
    let mut columns = match &reader.table.value {
        ValueType::Postcard(kind) => kind.all_fields(),
        _ => reader.first_columns()?.unwrap_or_default(),
    };
    // In a value, the key has its own place. Otherwise it is first.
    let mut names: Vec<String> =
        key.iter().filter(|name| !columns.contains(name)).cloned().collect();
    names.append(&mut columns);
    Ok(names)
}

/// The JSON object of a value. Values that are text may contain it with line ends.
pub(super) fn object_text(table: &AnyTable, record: &Record<'_>) -> String {
    match &table.value {
        ValueType::Text if record.value.starts_with('"') => field_text(&record.value),
        _ => record.value.clone(),
    }
}

pub(super) fn not_an_object(reason: &str) -> anyhow::Error {
    anyhow!(
        "its value is not a JSON object ({reason}); write the value to a separate field with \
         --value"
    )
}
