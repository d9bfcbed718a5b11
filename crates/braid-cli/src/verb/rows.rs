//! Rows of files: read one by one, each either good or rejected for a reason.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, Result, bail};
use braiddb::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use serde_json::{Map, Value};

use super::json_text::{Fields, compact};
use super::quotes::CheckedQuotes;
use crate::arguments::{Format, Import};

/// Rejected rows that are told one by one.
const TOLD: usize = 20;
/// What some programs put before the text of a file.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A row that was not taken.
#[derive(Debug)]
pub struct Rejected {
    pub line: u64,
    pub reason: String,
}

/// Everything that a file holds.
#[derive(Debug, Default)]
pub struct Rows {
    /// Keys and values, in the order of the file.
    pub good: Vec<(String, String)>,
    pub rejected: Vec<Rejected>,
    keys: HashSet<String>,
}

impl Rows {
    /// Reads a whole file; `advance` is told of the bytes read.
    pub fn read(import: &Import, advance: impl Fn(u64)) -> Result<Self> {
        let name = import.file.display().to_string();
        let file = File::open(&import.file).with_context(|| format!("cannot read {name}"))?;
        let reader = BufReader::new(Watched { file, advance });
        let mut rows = Self::default();
        match format(import)? {
            Format::Csv => rows.read_csv(reader, &import.key, &name)?,
            Format::Jsonl => rows.read_jsonl(reader, &import.key, &name)?,
        }
        Ok(rows)
    }

    fn read_csv(&mut self, reader: impl Read, key: &str, name: &str) -> Result<()> {
        let mut csv =
            csv::ReaderBuilder::new().flexible(true).from_reader(CheckedQuotes::new(reader));
        let columns: Vec<String> = csv
            .headers()
            .with_context(|| format!("{name} has no header that can be read"))?
            .iter()
            .map(str::to_owned)
            .collect();
        check_columns(&columns).with_context(|| format!("{name} line 1"))?;
        let Some(key) = columns.iter().position(|column| column == key) else {
            bail!("{name} has no column {key:?}; its columns are {}", columns.join(", "));
        };
        let mut record = csv::ByteRecord::new();
        loop {
            let line = csv.position().line();
            match csv.read_byte_record(&mut record) {
                Ok(false) => return Ok(()),
                Ok(true) => {
                    let line = record.position().map_or(line, csv::Position::line);
                    self.take(line, csv_row(&record, &columns, key));
                }
                // Unmatched quotation marks too: where the rows after them begin, nobody can say.
                Err(error) if error.is_io_error() => {
                    return Err(error).with_context(|| {
                        format!("nothing was imported: {name} cannot be read to its end")
                    });
                }
                Err(error) => self.reject(line, error.to_string()),
            }
        }
    }

    fn read_jsonl(&mut self, reader: impl BufRead, key: &str, name: &str) -> Result<()> {
        for (number, line) in reader.split(b'\n').enumerate() {
            let line = line.with_context(|| format!("cannot read {name}"))?;
            let line = if number == 0 { line.strip_prefix(BYTE_ORDER_MARK) } else { None }
                .unwrap_or(&line);
            if !line.trim_ascii().is_empty() {
                self.take(number as u64 + 1, json_row(line, key));
            }
        }
        Ok(())
    }

    /// Takes a row, unless its key or value does not fit or the key was met before.
    fn take(&mut self, line: u64, row: Result<(String, String), String>) {
        let checked = row.and_then(|(key, value)| {
            if key.is_empty() {
                return Err("its key is empty".to_owned());
            }
            if key.len() > MAX_KEY_BYTES {
                return Err(format!(
                    "its key has {} bytes, the limit is {MAX_KEY_BYTES}",
                    key.len()
                ));
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!(
                    "it has {} bytes, the limit is {MAX_VALUE_BYTES}",
                    value.len()
                ));
            }
            if !self.keys.insert(key.clone()) {
                return Err(format!("an earlier row has its key {key:?}"));
            }
            Ok((key, value))
        });
        match checked {
            Ok(row) => self.good.push(row),
            Err(reason) => self.reject(line, reason),
        }
    }

    fn reject(&mut self, line: u64, reason: String) {
        self.rejected.push(Rejected { line, reason });
    }

    /// Says on standard error which rows were rejected and why.
    pub fn tell_rejected(&self, name: &str) {
        for Rejected { line, reason } in self.rejected.iter().take(TOLD) {
            eprintln!("braid: {name} line {line}: rejected: {reason}");
        }
        if let Some(more) = self.rejected.len().checked_sub(TOLD).filter(|more| *more > 0) {
            eprintln!("braid: and {more} more rejected rows");
        }
    }
}

fn format(import: &Import) -> Result<Format> {
    let ending = import.file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match (import.format, ending) {
        (Some(format), _) => Ok(format),
        (None, "csv") => Ok(Format::Csv),
        (None, "jsonl" | "ndjson") => Ok(Format::Jsonl),
        (None, _) => bail!("{}: say --format csv or --format jsonl", import.file.display()),
    }
}

/// Refuses a header in which two columns have one name: a row keeps one field of each name.
fn check_columns(columns: &[String]) -> Result<()> {
    for (number, column) in columns.iter().enumerate() {
        if let Some(first) = columns[..number].iter().position(|other| other == column) {
            bail!(
                "columns {} and {} are both called {column:?}; give each column a name of its own",
                first + 1,
                number + 1
            );
        }
    }
    Ok(())
}

/// A CSV row as a JSON object with its columns in their order.
fn csv_row(
    record: &csv::ByteRecord,
    columns: &[String],
    key: usize,
) -> Result<(String, String), String> {
    if record.len() != columns.len() {
        return Err(format!("it has {} columns, the header has {}", record.len(), columns.len()));
    }
    let mut fields = Map::new();
    for (column, field) in columns.iter().zip(record) {
        let text = std::str::from_utf8(field);
        let text = text.map_err(|_| format!("column {column:?} is not text in UTF-8"))?;
        fields.insert(column.clone(), Value::String(text.to_owned()));
    }
    let key = std::str::from_utf8(&record[key]).expect("checked with the other columns");
    Ok((key.to_owned(), Value::Object(fields).to_string()))
}

/// A line of JSON as its key and its text; a number keeps every digit, as a key too.
fn json_row(line: &[u8], key: &str) -> Result<(String, String), String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let fields = Fields::parse(text)?;
    let found = fields.get(key).ok_or_else(|| format!("it has no field {key:?}"))?;
    let key = match found.as_bytes().first() {
        Some(b'"') => serde_json::from_str(found).map_err(|error| error.to_string())?,
        Some(b'-' | b'0'..=b'9') => found.to_owned(),
        _ => return Err(format!("its field {key:?} is neither text nor a number")),
    };
    Ok((key, compact(text)))
}

/// A file that tells how much of it has been read.
struct Watched<A> {
    file: File,
    advance: A,
}

impl<A: Fn(u64)> Read for Watched<A> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        (self.advance)(bytes as u64);
        Ok(bytes)
    }
}
