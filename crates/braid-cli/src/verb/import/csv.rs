//! Strict parser of CSV by RFC 4180, with any delimiter of one byte.
//!
//! A lenient parser reads everything after an unclosed quotation mark as one field. This parser
//! rejects such a file with the line of the mark (RFC 4180 §2.5 to §2.7): a field that begins with
//! a quotation mark must end with one, directly before a delimiter, a line end, or the end of the
//! file. Quotation marks inside other fields are text. Empty lines are skipped.
//!
//! Line numbers are those of an editor: a line ends with a line feed, a carriage return, or both.

use std::io::{Error, ErrorKind, Read, Result};

use super::BYTE_ORDER_MARK;

/// Bytes read from the file at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum size of a row.
pub const MAX_ROW_BYTES: usize = 64 << 20;

/// Maximum number of fields of a row.
const MAX_FIELDS: usize = 1 << 20;

/// Position of the reader in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quotation mark in a quoted field: the end of the field, or a doubled mark.
    QuoteInQuoted,
}

/// A row: the text of all fields, and the end of each.
#[derive(Debug, Default)]
pub struct Row {
    /// The line on which the row begins, from 1.
    pub line: u64,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// The numbers of the fields that have quotation marks, in order.
    quoted: Vec<usize>,
}

impl Row {
    /// The number of fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field with a number, from 0.
    pub fn field(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[number]]
    }

    /// # Errors
    /// If the row is too long or has too many fields.
    fn check_size(&self) -> Result<()> {
        let excess = if self.text.len() > MAX_ROW_BYTES {
            format!("is longer than {} MiB", MAX_ROW_BYTES >> 20)
        } else if self.ends.len() > MAX_FIELDS {
            format!("has more than {MAX_FIELDS} fields")
        } else {
            return Ok(());
        };
        Err(malformed(format!("line {}: the row that begins here {excess}", self.line)))
    }

    /// Returns whether the field with a number has quotation marks.
    pub fn is_quoted(&self, number: usize) -> bool {
        self.quoted.binary_search(&number).is_ok()
    }

    /// All fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.text[std::mem::replace(&mut start, *end)..*end])
    }
}

/// Reads the rows of a file.
#[derive(Debug)]
pub struct CsvReader<R> {
    file: R,
    delimiter: u8,
    chunk: Box<[u8]>,
    /// The unread bytes of the chunk are `at..filled`.
    at: usize,
    filled: usize,
    line: u64,
    /// The previous byte was a carriage return. A line feed belongs to the same line end.
    returned: bool,
}

impl<R: Read> CsvReader<R> {
    /// Starts to read a file, and skips a byte order mark.
    ///
    /// # Errors
    /// I/O errors of the file.
    pub fn new(file: R, delimiter: u8) -> Result<Self> {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        let mut reader =
            Self { file, delimiter, chunk, at: 0, filled: 0, line: 1, returned: false };
        while reader.filled < BYTE_ORDER_MARK.len() && reader.read_more()? {}
        if reader.chunk[..reader.filled].starts_with(BYTE_ORDER_MARK) {
            reader.at = BYTE_ORDER_MARK.len();
        }
        Ok(reader)
    }

    /// Reads more bytes into the chunk. Returns `false` at the end of the file.
    fn read_more(&mut self) -> Result<bool> {
        if self.at == self.filled {
            (self.at, self.filled) = (0, 0);
        }
        loop {
            match self.file.read(&mut self.chunk[self.filled..]) {
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the next row into `row`. Returns `false` at the end of the file.
    ///
    /// # Errors
    /// I/O errors of the file. [`ErrorKind::InvalidData`] for unmatched quotation marks and for a row
    /// longer than [`MAX_ROW_BYTES`] or with more than [`MAX_FIELDS`]. The start of the next row is then unknown.
    pub fn read(&mut self, row: &mut Row) -> Result<bool> {
        row.text.clear();
        row.ends.clear();
        row.quoted.clear();
        if !self.skip_empty_lines()? {
            return Ok(false);
        }
        row.line = self.line;
        let (mut state, mut opened) = (State::FieldStart, self.line);
        loop {
            if self.at == self.filled && !self.read_more()? {
                if state == State::Quoted {
                    return Err(malformed(format!(
                        "line {opened}: a quotation mark opens a field that is never closed; \
                         close the field, or remove the mark"
                    )));
                }
                row.ends.push(row.text.len());
                return Ok(true);
            }
            let byte = self.chunk[self.at];
            state = match (state, byte) {
                (State::FieldStart, b'"') => {
                    opened = self.line;
                    self.at += 1;
                    row.quoted.push(row.ends.len());
                    State::Quoted
                }
                (State::FieldStart | State::Unquoted, _) => {
                    let delimiter = self.delimiter;
                    self.take_until(row, |byte| {
                        byte == delimiter || byte == b'\n' || byte == b'\r'
                    });
                    match self.end_field(row) {
                        None => State::Unquoted,
                        Some(true) => return Ok(true),
                        Some(false) => State::FieldStart,
                    }
                }
                (State::Quoted, b'"') => {
                    (self.at, self.returned) = (self.at + 1, false);
                    State::QuoteInQuoted
                }
                (State::Quoted, b'\n' | b'\r') => {
                    row.text.push(byte);
                    self.pass_line_end(byte);
                    State::Quoted
                }
                (State::Quoted, _) => {
                    self.take_until(row, |byte| matches!(byte, b'"' | b'\n' | b'\r'));
                    State::Quoted
                }
                (State::QuoteInQuoted, b'"') => {
                    row.text.push(byte);
                    self.at += 1;
                    State::Quoted
                }
                (State::QuoteInQuoted, _) => match self.end_field(row) {
                    Some(true) => return Ok(true),
                    Some(false) => State::FieldStart,
                    None => {
                        return Err(malformed(format!(
                            "line {}: text follows the closing quotation mark of a field that \
                             begins on line {opened}; double the marks within a quoted field",
                            self.line
                        )));
                    }
                },
            };
            row.check_size()?;
        }
    }

    /// Skips the rest of the previous line end and empty lines. Returns `false` at the end of the
    /// file.
    fn skip_empty_lines(&mut self) -> Result<bool> {
        loop {
            if self.at == self.filled && !self.read_more()? {
                return Ok(false);
            }
            match self.chunk[self.at] {
                byte @ (b'\n' | b'\r') => self.pass_line_end(byte),
                _ => {
                    self.returned = false;
                    return Ok(true);
                }
            }
        }
    }

    fn pass_line_end(&mut self, byte: u8) {
        self.line += u64::from(byte == b'\r' || !self.returned);
        self.returned = byte == b'\r';
        self.at += 1;
    }

    /// Copies bytes up to the first one that `ends`, or to the end of the chunk.
    #[inline]
    fn take_until(&mut self, row: &mut Row, ends: impl Fn(u8) -> bool) {
        let chunk = &self.chunk[self.at..self.filled];
        let text = chunk.iter().position(|byte| ends(*byte)).unwrap_or(chunk.len());
        row.text.extend_from_slice(&chunk[..text]);
        self.at += text;
        self.returned &= text == 0;
    }

    /// Ends a field if a delimiter or a line end follows. Returns whether it was a line end.
    #[inline]
    fn end_field(&mut self, row: &mut Row) -> Option<bool> {
        let byte = *self.chunk[..self.filled].get(self.at)?;
        if byte == self.delimiter {
            row.ends.push(row.text.len());
            self.at += 1;
            return Some(false);
        }
        let line_end = matches!(byte, b'\n' | b'\r');
        if line_end {
            row.ends.push(row.text.len());
            self.returned = false;
            self.pass_line_end(byte);
        }
        line_end.then_some(true)
    }
}

fn malformed(reason: String) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte per read.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let one = usize::from(!buffer.is_empty());
            self.0.read(&mut buffer[..one])
        }
    }

    type Rows = Vec<(u64, Vec<String>)>;

    fn rows(file: impl Read, delimiter: u8) -> Result<Rows> {
        let (mut reader, mut row) = (CsvReader::new(file, delimiter)?, Row::default());
        let mut rows = Rows::new();
        while reader.read(&mut row)? {
            let text = |field: &[u8]| String::from_utf8(field.to_vec()).unwrap();
            let fields: Vec<String> = row.fields().map(text).collect();
            assert_eq!(fields.len(), row.len());
            assert!(fields.iter().enumerate().all(|(n, field)| row.field(n) == field.as_bytes()));
            rows.push((row.line, fields));
        }
        Ok(rows)
    }

    fn read(text: &str) -> Result<Rows> {
        let fast = rows(text.as_bytes(), b',');
        let slow = rows(Slow(text.as_bytes()), b',');
        match (&fast, &slow) {
            (Ok(fast), Ok(slow)) => assert_eq!(fast, slow),
            (Err(fast), Err(slow)) => assert_eq!(fast.to_string(), slow.to_string()),
            _ => panic!("{fast:?} or {slow:?}"),
        }
        fast
    }

    #[test]
    fn rows_have_the_line_on_which_they_begin() {
        let expect = |text: &str, expected: &[(u64, &[&str])]| {
            let rows = read(text).unwrap();
            let rows: Vec<(u64, Vec<&str>)> = rows
                .iter()
                .map(|(line, fields)| (*line, fields.iter().map(String::as_str).collect()))
                .collect();
            let expected: Vec<(u64, Vec<&str>)> =
                expected.iter().map(|(line, fields)| (*line, fields.to_vec())).collect();
            assert_eq!(rows, expected, "{text:?}");
        };
        expect("", &[]);
        expect("\n\r\n", &[]);
        expect("a,b\n1,2\n", &[(1, &["a", "b"]), (2, &["1", "2"])]);
        expect("a,b\n1,2", &[(1, &["a", "b"]), (2, &["1", "2"])]);
        expect("a,\n,b\n,", &[(1, &["a", ""]), (2, &["", "b"]), (3, &["", ""])]);
        expect(
            "a\n\n\nb\r\n\r\nc\rd\r\re",
            &[(1, &["a"]), (4, &["b"]), (6, &["c"]), (7, &["d"]), (9, &["e"])],
        );
        expect("\"x\ny\r\nz\",1\n\"\"\nb\n", &[(1, &["x\ny\r\nz", "1"]), (4, &[""]), (5, &["b"])]);
        expect("\"a\r\",\"\n\"\nb", &[(1, &["a\r", "\n"]), (4, &["b"])]);
        expect("\"say \"\"yes\"\"\",\"\"\"\"\n", &[(1, &["say \"yes\"", "\""])]);
        expect("a 5\" pipe,x\"y\"z\n", &[(1, &["a 5\" pipe", "x\"y\"z"])]);
        expect("\"last\"", &[(1, &["last"])]);
        expect("\u{feff}\"one, two\",b\n1,2\n", &[(1, &["one, two", "b"]), (2, &["1", "2"])]);
        expect("\u{feff}", &[]);
        let tabs = rows("a\t\"b,\tc\"\n".as_bytes(), b'\t').unwrap();
        assert_eq!(tabs, [(1, vec!["a".to_owned(), "b,\tc".to_owned()])]);
    }

    #[test]
    fn unmatched_quotation_marks_are_rejected_with_their_line() {
        for (text, line) in [
            ("a,b\n1,\"two\n3,four\n", "line 2: a quotation mark opens"),
            ("a,b\n1,\"two\n3,\"four\"\n", "line 3: text follows the closing"),
            ("a\n\"x\"y\n", "line 2: text follows"),
            ("\u{feff}\"a", "line 1: a quotation mark opens"),
            ("a\n\"one\ntwo\n\nx", "line 2: a quotation mark opens"),
            ("a\r\"x", "line 2: a quotation mark opens"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
    }

    #[test]
    fn an_endless_row_is_rejected() {
        let endless = std::io::Read::chain("a\n\"".as_bytes(), std::io::repeat(b'x'));
        let error = rows(endless, b',').unwrap_err().to_string();
        assert!(
            error.contains("line 2: the row that begins here is longer than 64 MiB"),
            "{error}"
        );
        let endless = std::io::Read::chain("a\n".as_bytes(), std::io::repeat(b','));
        let error = rows(endless, b',').unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("more than 1048576 fields"), "{error}");
    }

    /// Random texts are parsed like in the `csv` crate.
    #[test]
    fn results_equal_those_of_the_csv_crate() {
        let pieces = ["a", ",", "\n", "\r\n", "\"\"", "\"b\"", "\"c,\n\"", "d\"", " ", "\r"];
        let (mut state, mut read_well) = (7_u64, 0);
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 9 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += pieces[(state >> 33) as usize % pieces.len()];
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) >> 1;
            let Ok(ours) = read(&text) else { continue };
            let mut other = csv::ReaderBuilder::new();
            let mut other = other.has_headers(false).flexible(true).from_reader(text.as_bytes());
            let other: Vec<Vec<String>> = other
                .records()
                .map(|record| record.unwrap().iter().map(str::to_owned).collect())
                .collect();
            let ours: Vec<Vec<String>> = ours.into_iter().map(|(_, fields)| fields).collect();
            assert_eq!(ours, other, "{text:?}");
            read_well += 1;
        }
        assert!(read_well > 1000, "{read_well}");
    }
}
