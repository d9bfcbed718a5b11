//! Quotation marks of a CSV file, watched as it is read.
//!
//! A parser that forgives takes everything after a quotation mark that is never closed for one
//! field, rows and all. Here such a file is refused, with the line of the mark (RFC 4180 §2.5 to
//! §2.7): a field that begins with a quotation mark ends with one, right before a comma, the end of
//! its line, or the end of the file. Marks within a field that does not begin with one are text.

use std::io::{Error, ErrorKind, Read, Result};

use super::rows::BYTE_ORDER_MARK;

/// Where in the file the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quotation mark in a quoted field: its end, or the first half of a doubled mark.
    QuoteInQuoted,
}

/// A CSV file that fails to be read where its quotation marks do not match.
#[derive(Debug)]
pub struct CheckedQuotes<R> {
    file: R,
    /// Bytes of a byte order mark that were met.
    mark: usize,
    state: State,
    line: u64,
    /// The line on which the quoted field began that was met last.
    opened: u64,
}

impl<R: Read> CheckedQuotes<R> {
    pub fn new(file: R) -> Self {
        Self { file, mark: 0, state: State::FieldStart, line: 1, opened: 0 }
    }

    fn step(&mut self, byte: u8) -> Result<()> {
        if self.line == 1 && BYTE_ORDER_MARK.get(self.mark) == Some(&byte) {
            self.mark += 1;
            return Ok(());
        }
        self.mark = BYTE_ORDER_MARK.len();
        self.state = match (self.state, byte) {
            (State::FieldStart, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) | (State::QuoteInQuoted, b'"') => State::Quoted,
            (_, b',' | b'\n' | b'\r') => State::FieldStart,
            (State::QuoteInQuoted, _) => {
                return Err(malformed(format!(
                    "line {}: text follows the closing quotation mark of a field that begins on \
                     line {}; double the marks within a quoted field",
                    self.line, self.opened
                )));
            }
            (State::FieldStart | State::Unquoted, _) => State::Unquoted,
        };
        self.line += u64::from(byte == b'\n');
        Ok(())
    }
}

impl<R: Read> Read for CheckedQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.file.read(buffer)?;
        if bytes == 0 && !buffer.is_empty() && self.state == State::Quoted {
            return Err(malformed(format!(
                "line {}: a quotation mark is opened here and never closed",
                self.opened
            )));
        }
        buffer[..bytes].iter().try_for_each(|byte| self.step(*byte))?;
        Ok(bytes)
    }
}

fn malformed(reason: String) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String> {
        let mut read = String::new();
        CheckedQuotes::new(text.as_bytes()).read_to_string(&mut read).map(|_| read)
    }

    #[test]
    fn quotation_marks_that_match_are_left_alone() {
        for text in [
            "a,b\n1,2\n",
            "\"a\",\"b\"\r\n\"two\nlines, and a comma\",\"\"\n",
            "\"say \"\"yes\"\"\",\"\"\"\"\n",
            "a 5\" pipe,x\"y\"z\n",
            "\"last\"",
            "\u{feff}\"one, two\",b\n1,2\n",
            "",
        ] {
            assert_eq!(read(text).unwrap(), text);
        }
    }

    #[test]
    fn others_are_told_with_their_line() {
        for (text, line) in [
            ("a,b\n1,\"two\n3,four\n", "line 2: a quotation mark is opened"),
            ("a,b\n1,\"two\n3,\"four\"\n", "line 3: text follows the closing"),
            ("a\n\"x\"y\n", "line 2: text follows"),
            ("\u{feff}\"a", "line 1: a quotation mark is opened"),
            ("a\n\"one\ntwo\n\nx", "line 2: a quotation mark is opened"),
        ] {
            let told = read(text).unwrap_err().to_string();
            assert!(told.contains(line), "{told}");
        }
    }
}
