//! Parses the bytes of a file into keys and values. Each row is accepted, or rejected with a
//! reason.

use std::collections::HashMap;
#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::BYTE_ORDER_MARK;
use super::csv::{self, CsvReader};
#[cfg(feature = "parquet")]
use super::parquet;
use super::rows::Rejected;
use super::source::Source;
use crate::arguments::{Format, Import};
use crate::output::{counted, escaped};
#[cfg(not(feature = "parquet"))]
use crate::verb::file_format::NO_PARQUET;
use crate::verb::json_text::{Fields, compact, unquoted};

/// Maximum length of a line of JSON. It exceeds that of a value, because whitespace is removed.
const MAX_LINE_BYTES: usize = 64 << 20;

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
}

/// Reads a whole file.
///
/// # Errors
/// If the file cannot be read to its end, or does not have its format.
pub fn read(source: Source, import: &Import, sink: &mut impl Sink) -> Result<()> {
    let Source { name, format, delimiter, reader } = source;
    match format {
        Format::Csv => read_csv(reader, delimiter, import, &name, sink),
        Format::Jsonl => read_jsonl(reader, import, &name, sink),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => bail!(NO_PARQUET),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let file = File::open(&import.file).with_context(|| format!("cannot read {name}"))?;
            let required: Vec<&str> = [Some(&import.key), import.value.as_ref()]
                .into_iter()
                .flatten()
                .map(|c| &**c)
                .collect();
            parquet::read(&reader, file, &name, &required, |row, object| {
                take_json(sink, row, object.and_then(|object| json_row(object, import)))
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
        let message =
            format!("{file} has no column {name:?}; its columns are {}", names.join(", "));
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

/// Passes a row to the sink, or rejects it if its key or value is empty or too long.
fn take(sink: &mut impl Sink, line: u64, key: &[u8], value: &[u8]) -> Result<()> {
    let reason = if key.is_empty() {
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

fn read_csv(
    reader: impl Read,
    delimiter: u8,
    import: &Import,
    name: &str,
    sink: &mut impl Sink,
) -> Result<()> {
    // After unmatched quotation marks the start of the next row is unknown.
    let broken = || format!("nothing was imported: {name} cannot be read to its end");
    let mut csv = CsvReader::new(reader, delimiter).with_context(broken)?;
    let mut row = csv::Row::default();
    if !csv.read(&mut row).with_context(broken)? {
        bail!("{name} is empty; a CSV file begins with the names of its columns");
    }
    let columns = Columns::new(&row).with_context(|| format!("{name} line {}", row.line))?;
    let find = |column: &String| position(&columns.names, column, name);
    let (key, value) = (find(&import.key)?, import.value.as_ref().map(find).transpose()?);
    let mut object = Vec::new();
    while csv.read(&mut row).with_context(broken)? {
        match columns.check(&row).and_then(|()| columns.append_object(&row, &mut object)) {
            Ok(()) => {
                let value = value.map_or(&*object, |value| row.field(value));
                take(sink, row.line, row.field(key), value)?;
            }
            Err(reason) => sink.reject(Rejected { line: row.line, reason }),
        }
    }
    Ok(())
}

/// The columns of a CSV file.
struct Columns {
    names: Vec<String>,
    /// The JSON text before the value of each column: `{"a":`, `,"b":`.
    before: Vec<Vec<u8>>,
}

impl Columns {
    /// The columns of a header. Their names must be different, like those of the fields of an
    /// object.
    fn new(header: &csv::Row) -> Result<Self> {
        let (mut names, mut numbers) = (Vec::<String>::new(), HashMap::new());
        for field in header.fields() {
            let name = std::str::from_utf8(field);
            let name = name.map_err(|_| anyhow!("the name of a column is not UTF-8 text"))?;
            let number = names.len() + 1;
            if let Some(first) = numbers.insert(name, number) {
                bail!(
                    "columns {first} and {number} are both named {name:?}; give each column a \
                     different name"
                );
            }
            names.push(name.to_owned());
        }
        let before = names.iter().enumerate().map(|(number, name)| {
            let mut before = vec![if number == 0 { b'{' } else { b',' }];
            serde_json::to_writer(&mut before, name).expect("text is written to memory");
            before.push(b':');
            before
        });
        let before = before.collect();
        Ok(Self { names, before })
    }

    fn check(&self, row: &csv::Row) -> Result<(), String> {
        if row.len() != self.names.len() {
            let (fields, columns) = (row.len(), self.names.len());
            return Err(format!(
                "it has {}, but the header has {columns}",
                counted(fields as u64, "column")
            ));
        }
        Ok(())
    }

    /// Converts a row to a JSON object, with the columns in order.
    fn append_object(&self, row: &csv::Row, object: &mut Vec<u8>) -> Result<(), String> {
        object.clear();
        for (before, field) in self.before.iter().zip(row.fields()) {
            object.extend_from_slice(before);
            append_text(field, object);
        }
        object.push(b'}');
        if std::str::from_utf8(object).is_ok() {
            return Ok(());
        }
        let text = |(_, field): &(_, &[u8])| std::str::from_utf8(field).is_err();
        let (column, _) = self.names.iter().zip(row.fields()).find(text).expect("one of them is");
        Err(format!("column {column:?} is not UTF-8 text"))
    }
}

/// Appends a field as a JSON string. The caller checks that it is UTF-8.
fn append_text(field: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = field;
    while let Some(place) = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\')) {
        out.extend_from_slice(&rest[..place]);
        let escaped: &[u8] = match rest[place] {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            byte => &format!("\\u{byte:04x}").into_bytes(),
        };
        out.extend_from_slice(escaped);
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn read_jsonl(reader: impl Read, import: &Import, name: &str, sink: &mut impl Sink) -> Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, reader);
    let (mut number, mut line, mut is_first) = (0, Vec::new(), true);
    loop {
        let whole =
            read_line(&mut reader, &mut line).with_context(|| format!("cannot read {name}"))?;
        let Some(whole) = whole else { return Ok(()) };
        number += 1;
        let text = if number == 1 { line.strip_prefix(BYTE_ORDER_MARK) } else { None };
        let text = text.unwrap_or(&line);
        if text.trim_ascii().is_empty() {
            continue;
        }
        // Reports the array once, instead of an error for each of its lines.
        if is_first && text.trim_ascii_start().starts_with(b"[") {
            bail!(
                "{name} is a JSON array, but braid import reads one object per line; convert it \
                 with jq -c '.[]'"
            );
        }
        is_first = false;
        let row = match (whole, std::str::from_utf8(text)) {
            (false, _) => Err(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)),
            (true, Err(_)) => Err("it is not UTF-8 text".to_owned()),
            (true, Ok(text)) => json_row(text, import),
        };
        take_json(sink, number, row)?;
    }
}

/// Passes a row of JSON to the sink.
fn take_json(sink: &mut impl Sink, line: u64, row: Result<(String, String), String>) -> Result<()> {
    match row {
        Ok((key, value)) => take(sink, line, key.as_bytes(), value.as_bytes()),
        Err(reason) => {
            sink.reject(Rejected { line, reason });
            Ok(())
        }
    }
}

/// Reads the next line without its line end. Returns whether the line is complete: the rest of a
/// line that is too long is skipped. Returns `None` at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
    line.clear();
    let (mut any, mut whole) = (false, true);
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            return Ok(any.then_some(whole));
        }
        any = true;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let text = &chunk[..end.unwrap_or(chunk.len())];
        whole &= line.len() + text.len() <= MAX_LINE_BYTES;
        if whole {
            line.extend_from_slice(text);
        }
        let passed = text.len() + usize::from(end.is_some());
        reader.consume(passed);
        if end.is_some() {
            return Ok(Some(whole));
        }
    }
}

/// The key and the value of a row of JSON. Numbers keep every digit.
fn json_row(text: &str, import: &Import) -> Result<(String, String), String> {
    let fields = Fields::parse(text)?;
    let find = |name: &str| fields.get(name).ok_or_else(|| format!("it has no field {name:?}"));
    let key = find(&import.key)?;
    let key = match key.as_bytes().first() {
        Some(b'"') => unquoted(key)?,
        Some(b'-' | b'0'..=b'9' | b'[') => key.to_owned(),
        _ => return Err(format!("its field {:?} is neither a string nor a number", import.key)),
    };
    let value = match &import.value {
        None => compact(text),
        Some(name) => match find(name)? {
            text if text.starts_with('"') => unquoted(text)?,
            other => other.to_owned(),
        },
    };
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_equal_those_of_serde_json() {
        let all: String = (0..=0x7f_u8).map(char::from).chain("é\u{2028}😀".chars()).collect();
        let mut ours = Vec::new();
        append_text(all.as_bytes(), &mut ours);
        assert_eq!(String::from_utf8(ours).unwrap(), serde_json::to_string(&all).unwrap());
    }

    #[test]
    fn lines_that_are_too_long_are_skipped() {
        let mut text = b"a\n".to_vec();
        text.resize(MAX_LINE_BYTES + 10, b'x');
        text.extend_from_slice(b"\nb");
        let (mut reader, mut line) = (BufReader::new(&text[..]), Vec::new());
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), Some(true));
        assert_eq!(line, b"a");
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), Some(false));
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), Some(true));
        assert_eq!(line, b"b");
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), None);
    }
}
