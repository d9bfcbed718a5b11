//! Rows of a file of JSON as keys and values.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use anyhow::{Context, Result, bail};

use super::BYTE_ORDER_MARK;
use super::parse::{Sink, take_json};
use crate::arguments::Import;
use crate::codec::json_text::{Fields, compact, unquoted};
use crate::key_column::KeyColumn;

/// Maximum length of a line of JSON. It exceeds that of a value, because whitespace is removed.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Reads all rows of a file of JSON: one object per line, or an array of objects.
///
/// # Errors
/// If the file cannot be read to its end.
pub fn read(reader: impl Read, import: &Import, name: &str, sink: &mut impl Sink) -> Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, reader);
    let cannot = || format!("cannot read {name}");
    skip_byte_order_mark(&mut reader).with_context(cannot)?;
    let (mut number, mut rows, mut line) = (0, 0, Vec::new());
    loop {
        if rows == 0 && begins_with_array(&mut reader, &mut number).with_context(cannot)? {
            return read_array(reader, number + 1, import, name, sink);
        }
        let whole = read_line(&mut reader, &mut line).with_context(cannot)?;
        let Some(whole) = whole else { return Ok(()) };
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        rows += 1;
        take_json(sink, number, checked(whole, &line, rows, import))?;
    }
}

/// Parses a row, unless it is too long.
fn checked(
    whole: bool,
    text: &[u8],
    number: u64,
    import: &Import,
) -> Result<(String, String), String> {
    match (whole, std::str::from_utf8(text)) {
        (false, _) => Err(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)),
        (true, Err(_)) => Err("it is not UTF-8 text".to_owned()),
        (true, Ok(text)) => row(text, number, import),
    }
}

fn skip_byte_order_mark(reader: &mut impl BufRead) -> std::io::Result<()> {
    if reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        reader.consume(BYTE_ORDER_MARK.len());
    }
    Ok(())
}

/// Skips whitespace, and counts its lines. Returns whether an array follows.
fn begins_with_array(reader: &mut impl BufRead, lines: &mut u64) -> std::io::Result<bool> {
    loop {
        let chunk = reader.fill_buf()?;
        let Some(first) = chunk.first() else { return Ok(false) };
        match first {
            b'[' => return Ok(true),
            b' ' | b'\t' | b'\r' | b'\n' => {
                *lines += u64::from(*first == b'\n');
                reader.consume(1);
            }
            _ => return Ok(false),
        }
    }
}

/// Reads the elements of an array, one at a time. Rows have the line on which they begin.
fn read_array(
    mut reader: impl BufRead,
    line: u64,
    import: &Import,
    name: &str,
    sink: &mut impl Sink,
) -> Result<()> {
    let mut array = ArrayReader { line, ..ArrayReader::default() };
    let (mut element, mut rows) = (Vec::new(), 0);
    let broken = || format!("nothing was imported: {name} cannot be read to its end");
    while let Some((line, whole)) = array.next(&mut reader, &mut element).with_context(broken)? {
        rows += 1;
        take_json(sink, line, checked(whole, &element, rows, import))?;
    }
    Ok(())
}

/// Splits a JSON array into its elements without parsing them.
#[derive(Debug, Default)]
struct ArrayReader {
    line: u64,
    has_begun: bool,
    is_over: bool,
    /// A comma ended the previous element.
    after_comma: bool,
}

impl ArrayReader {
    /// Reads the next element into `element`. Returns the line on which it begins, and whether it is
    /// complete: the rest of an element that is too long is skipped. Returns `None` after the end of
    /// the array.
    fn next(
        &mut self,
        reader: &mut impl BufRead,
        element: &mut Vec<u8>,
    ) -> Result<Option<(u64, bool)>> {
        element.clear();
        if self.is_over {
            return Ok(None);
        }
        let (mut depth, mut quoted, mut escaped, mut whole) = (0_usize, false, false, true);
        let mut begin = self.line;
        loop {
            let Some(&byte) = reader.fill_buf()?.first() else {
                bail!("line {}: the array has no end; ] is missing", self.line);
            };
            reader.consume(1);
            self.line += u64::from(byte == b'\n');
            if !self.has_begun {
                // The opening bracket.
                self.has_begun = true;
                continue;
            }
            if !quoted {
                match byte {
                    b',' | b']' if depth == 0 => {
                        let is_end = byte == b']';
                        let is_empty = element.trim_ascii().is_empty();
                        if is_end {
                            self.check_end(reader)?;
                        }
                        match (is_end, is_empty) {
                            (true, true) if !self.after_comma => return Ok(None),
                            (_, true) => {
                                bail!("line {}: a comma without an element", self.line)
                            }
                            (_, false) => {
                                self.after_comma = !is_end;
                                return Ok(Some((begin, whole)));
                            }
                        }
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            match byte {
                b'"' if !escaped => quoted = !quoted,
                b'\\' if quoted && !escaped => escaped = true,
                _ => escaped = false,
            }
            if byte == b'"' {
                escaped = false;
            }
            if element.is_empty() && byte.is_ascii_whitespace() {
                begin = self.line;
                continue;
            }
            whole &= element.len() < MAX_LINE_BYTES;
            if whole {
                element.push(byte);
            }
        }
    }

    /// After the last element only whitespace may follow. The next call finds the end.
    fn check_end(&mut self, reader: &mut impl BufRead) -> Result<()> {
        loop {
            let chunk = reader.fill_buf()?;
            let Some(&byte) = chunk.first() else { break };
            if !byte.is_ascii_whitespace() {
                bail!("line {}: text follows the end of the array", self.line);
            }
            self.line += u64::from(byte == b'\n');
            reader.consume(1);
        }
        self.is_over = true;
        Ok(())
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

/// The key and the value of a row of JSON. Numbers keep every digit. The key is text or JSON, the
/// value is JSON.
pub fn row(text: &str, number: u64, import: &Import) -> Result<(String, String), String> {
    let fields = Fields::parse(text)?;
    let find = |name: &str| fields.get(name).ok_or_else(|| format!("it has no field {name:?}"));
    let part = |name: &str| match find(name)? {
        key if key == "null" || key.starts_with('{') => {
            Err(format!("its field {name:?} is neither a string nor a number"))
        }
        key => Ok(key),
    };
    let columns: Vec<&KeyColumn> = import.key().collect();
    let key = match &columns[..] {
        [] => number.to_string(),
        [column] => match part(&column.name)? {
            key if key.starts_with('"') => unquoted(key)?,
            key => key.to_owned(),
        },
        columns => {
            let parts: Vec<&str> =
                columns.iter().map(|column| part(&column.name)).collect::<Result<_, String>>()?;
            format!("[{}]", parts.join(","))
        }
    };
    let value = match &import.value {
        None => compact(text),
        Some(name) => find(name)?.to_owned(),
    };
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Result<Vec<(u64, String)>> {
        let (mut reader, mut element) = (text.as_bytes(), Vec::new());
        let mut array = ArrayReader { line: 1, ..ArrayReader::default() };
        let mut elements = Vec::new();
        while let Some((line, whole)) = array.next(&mut reader, &mut element)? {
            assert!(whole);
            elements.push((line, String::from_utf8(element.clone())?.trim().to_owned()));
        }
        Ok(elements)
    }

    #[test]
    fn arrays_are_split_into_their_elements() {
        for (text, expected) in [
            ("[]", vec![]),
            (" [ ] \n".trim_start(), vec![]),
            ("[{\"a\":1},{\"b\":[1,2]}]\n", vec![(1, "{\"a\":1}"), (1, "{\"b\":[1,2]}")]),
            (
                "[\n  {\"a\": \"],{\\\"[\\\\\"}\n  ,\n  {}\n]\n",
                vec![(2, "{\"a\": \"],{\\\"[\\\\\"}"), (4, "{}")],
            ),
            ("[1,\"x\"]", vec![(1, "1"), (1, "\"x\"")]),
        ] {
            let expected: Vec<(u64, String)> =
                expected.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            assert_eq!(elements(text).unwrap(), expected, "{text}");
        }
        for (text, why) in [
            ("[{}", "line 1: the array has no end"),
            ("[{},\n,{}]", "line 2: a comma without an element"),
            ("[{},]", "line 1: a comma without an element"),
            ("[{}]\n{}", "line 2: text follows"),
        ] {
            let error = elements(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
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
