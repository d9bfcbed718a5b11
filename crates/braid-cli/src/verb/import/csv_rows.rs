//! Rows of a CSV file as keys and values.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context, Result, anyhow, bail};

use super::csv::{self, CsvReader};
use super::parse::{Sink, position, take};
use super::rows::Rejected;
use crate::arguments::Import;
use crate::column_type::ColumnType;
use crate::output::counted;

/// Reads all rows of a CSV file.
///
/// # Errors
/// If the file cannot be read to its end, or lacks a column.
pub fn read(
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
    let columns =
        Columns::new(&row, import).with_context(|| format!("{name} line {}", row.line))?;
    let find = |column: &String| position(&columns.names, column, name);
    let key: Vec<usize> = import.key().map(|column| find(&column.name)).collect::<Result<_>>()?;
    if let Some(types) = &columns.types {
        sink.set_key_types(key.iter().map(|column| types[*column].key()).collect());
    }
    let value = import.value.as_ref().map(find).transpose()?;
    let (mut object, mut made_key, mut cell) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0_u64;
    while csv.read(&mut row).with_context(broken)? {
        number += 1;
        match columns.check(&row).and_then(|()| columns.append_object(&row, &mut object)) {
            Ok(()) => {
                let value = match value {
                    None => &*object,
                    Some(column) => columns.value(&row, column, &mut cell),
                };
                let (key, may_be_empty) = match key[..] {
                    [key] => (row.field(key), import.typed && row.is_quoted(key)),
                    _ => {
                        columns.append_key(&row, &key, number, &mut made_key);
                        (&*made_key, false)
                    }
                };
                take(sink, row.line, key, may_be_empty, value)?;
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
    /// The types that the header names.
    types: Option<Vec<ColumnType>>,
}

impl Columns {
    /// The columns of a header. Their names must be different, like those of the fields of an
    /// object.
    fn new(header: &csv::Row, import: &Import) -> Result<Self> {
        let (mut names, mut numbers) = (Vec::<String>::new(), HashMap::new());
        let (typed, mut types) = (import.typed, Vec::new());
        let keys: Vec<&str> = import.key().map(|column| &*column.name).collect();
        for field in header.fields() {
            let name = std::str::from_utf8(field);
            let name = name.map_err(|_| anyhow!("the name of a column is not UTF-8 text"))?;
            let name = match (typed, ColumnType::split(name, &keys)) {
                (false, _) => name,
                (true, Some((name, kind))) => {
                    types.push(kind);
                    name
                }
                (true, None) => bail!(
                    "column {name:?} has no type; with --typed the header names it: {name}:str, \
                     {name}:number, {name}:bool, {name}:json, or for a key its type, such as \
                     {name}:u64"
                ),
            };
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
        Ok(Self { names, before, types: typed.then_some(types) })
    }

    /// Sets `made` to the key of several columns, a JSON array, or without columns to the number of
    /// the row.
    fn append_key(&self, row: &csv::Row, columns: &[usize], number: u64, made: &mut Vec<u8>) {
        made.clear();
        if columns.is_empty() {
            made.extend_from_slice(number.to_string().as_bytes());
            return;
        }
        for (at, column) in columns.iter().enumerate() {
            made.push(if at == 0 { b'[' } else { b',' });
            let field = row.field(*column);
            let begin = made.len();
            let typed = self.types.as_ref().is_some_and(|types| {
                let text = std::str::from_utf8(field).unwrap_or_default();
                types[*column].append_key_part(text, made).is_ok()
            });
            // A text that is no key is rejected when the key is encoded.
            if !typed {
                made.truncate(begin);
                append_text(field, made);
            }
        }
        made.push(b']');
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
        if let Some(types) = &self.types {
            return self.append_typed(types, row, object);
        }
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

    fn append_typed(
        &self,
        types: &[ColumnType],
        row: &csv::Row,
        object: &mut Vec<u8>,
    ) -> Result<(), String> {
        let cells = row.fields().enumerate().zip(types.iter().zip(&self.names));
        for (((number, field), (kind, name)), before) in cells.zip(&self.before) {
            let text = std::str::from_utf8(field)
                .map_err(|_| format!("column {name:?} is not UTF-8 text"))?;
            object.extend_from_slice(before);
            kind.append_cell(text, row.is_quoted(number), object)
                .map_err(|reason| format!("column {name:?}: {reason}"))?;
        }
        object.push(b'}');
        Ok(())
    }

    /// The value in a column: the text of its field, or its JSON if the columns have types. The row
    /// was checked before.
    fn value<'r>(&self, row: &'r csv::Row, column: usize, cell: &'r mut Vec<u8>) -> &'r [u8] {
        let (field, Some(types)) = (row.field(column), &self.types) else {
            return row.field(column);
        };
        cell.clear();
        let text = std::str::from_utf8(field).unwrap_or_default();
        _ = types[column].append_cell(text, row.is_quoted(column), cell);
        cell
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
}
