//! Parses the bytes of a file into keys and values. Each row is accepted, or rejected with a
//! reason.

#[cfg(feature = "parquet")]
use std::fs::File;

#[cfg(not(feature = "parquet"))]
use anyhow::bail;
use anyhow::{Context, Result};
use braiddb::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

#[cfg(feature = "parquet")]
use super::parquet;
use super::rows::Rejected;
use super::source::Source;
use super::{csv_rows, json_rows};
use crate::arguments::{Format, Import};
use crate::codec::KeyType;
use crate::output::escaped;
use crate::shown::listed;
#[cfg(not(feature = "parquet"))]
use crate::verb::file_format::NO_PARQUET;

/// Common delimiters of CSV, and their arguments of `--delimiter`.
const DELIMITERS: [(char, &str); 4] = [(';', "';'"), ('\t', "tab"), ('|', "'|'"), (',', ",")];

/// Receives the rows.
pub trait Sink {
    /// Receives a row.
    ///
    /// # Errors
    /// If the import has failed.
    fn take(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<()>;

    /// Receives a rejected row.
    fn reject(&mut self, rejected: Rejected);

    /// Receives the types of the columns of the key that the file names, before the first row.
    fn set_key_types(&mut self, types: Vec<Option<KeyType>>);
}

/// Reads a whole file.
///
/// # Errors
/// If the file cannot be read to its end, or does not have its format.
pub fn read(source: Source, import: &Import, sink: &mut impl Sink) -> Result<()> {
    let Source { name, format, delimiter, reader } = source;
    match format {
        Format::Csv => csv_rows::read(reader, delimiter, import, &name, sink),
        Format::Jsonl => json_rows::read(reader, import, &name, sink),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => bail!(NO_PARQUET),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let file = File::open(&import.file).with_context(|| format!("cannot read {name}"))?;
            let key = import.key().map(|column| &*column.name);
            let required: Vec<&str> = key.chain(import.value.as_deref()).collect();
            parquet::read(&reader, file, &name, &required, |row, object| {
                take_json(sink, row, object.and_then(|object| json_rows::row(object, row, import)))
            })
        }
    }
}

/// The position of the column `name`.
///
/// # Errors
/// If the column does not exist, with a list of the columns.
pub fn position(columns: &[impl AsRef<str>], name: &str, file: &str) -> Result<usize> {
    let found = columns.iter().position(|column| column.as_ref() == name);
    found.with_context(|| {
        let names: Vec<String> = columns.iter().map(|name| escaped(name.as_ref())).collect();
        let names = listed(names.iter().map(String::as_str));
        let message = format!("{file} has no column {name:?}; its columns are {names}");
        match columns {
            // The header may use another delimiter.
            [one] => match DELIMITERS.iter().find(|(between, _)| one.as_ref().contains(*between)) {
                Some((_, word)) => {
                    format!("{message}; to split this column, use --delimiter {word}")
                }
                None => message,
            },
            _ => message,
        }
    })
}

/// Passes a row to the sink, or rejects it if its key or value is too long. `may_be_empty`: an empty
/// key is a key, not a missing one.
pub fn take(
    sink: &mut impl Sink,
    line: u64,
    key: &[u8],
    may_be_empty: bool,
    value: &[u8],
) -> Result<()> {
    let reason = if key.is_empty() && !may_be_empty {
        "its key is empty".to_owned()
    } else if key.len() > MAX_KEY_BYTES {
        format!("its key has {} bytes, the limit is {MAX_KEY_BYTES}", key.len())
    } else if value.len() > MAX_VALUE_BYTES {
        format!("it has {} bytes, the limit is {MAX_VALUE_BYTES}", value.len())
    } else {
        return sink.take(line, key, value);
    };
    sink.reject(Rejected { line, reason });
    Ok(())
}

/// Passes a row of JSON to the sink.
pub fn take_json(
    sink: &mut impl Sink,
    line: u64,
    row: Result<(String, String), String>,
) -> Result<()> {
    match row {
        Ok((key, value)) => take(sink, line, key.as_bytes(), false, value.as_bytes()),
        Err(reason) => {
            sink.reject(Rejected { line, reason });
            Ok(())
        }
    }
}
