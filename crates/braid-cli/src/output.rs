//! Output of the command: plain text for people and pipes, JSON lines for programs.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::any_table::{AnyTable, RecordError};
use crate::codec::json_text;
use crate::query::Record;

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a JSON document on one line.
    pub fn document(&self, document: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(document)?;
        line.push(b'\n');
        self.write(&line)
    }

    /// Prints a line of text.
    pub fn line(&self, line: &str) -> Result<()> {
        self.write(format!("{line}\n").as_bytes())
    }

    /// Appends a record to `page` as one line: `key<TAB>value` with control characters escaped, or
    /// `{"key": …, "value": …}`.
    ///
    /// # Errors
    /// If the key or the value is not of the table's type.
    pub fn format_record(
        &self,
        page: &mut Vec<u8>,
        table: &AnyTable,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RecordError> {
        if self.json {
            page.extend_from_slice(b"{\"key\":");
            table.append_key_json(key, page)?;
            page.extend_from_slice(b",\"value\":");
            table.append_json(key, value, page)?;
            page.push(b'}');
        } else {
            let start = page.len();
            table.append_key_text(key, page)?;
            escape_controls(page, start);
            page.push(b'\t');
            let start = page.len();
            table.append_text(key, value, page)?;
            escape_controls(page, start);
        }
        page.push(b'\n');
        Ok(())
    }

    /// Appends the chosen columns of a record as one line: separated by tabs, with control
    /// characters escaped and nothing for null, or as a JSON object.
    pub fn format_columns(&self, page: &mut Vec<u8>, columns: &[String], record: &Record<'_>) {
        if self.json {
            record.append_object(columns, page);
        } else {
            for (number, name) in columns.iter().enumerate() {
                if number > 0 {
                    page.push(b'\t');
                }
                let start = page.len();
                let text = record.column(name).map(json_text::field_text);
                page.extend_from_slice(text.unwrap_or_default().as_bytes());
                escape_controls(page, start);
            }
        }
        page.push(b'\n');
    }

    /// Prints the value of a key on one line.
    pub fn value(&self, table: &AnyTable, key: &[u8], value: &[u8]) -> Result<()> {
        let mut line = Vec::new();
        match self.json {
            true => table.append_json(key, value, &mut line)?,
            false => table.append_text(key, value, &mut line)?,
        }
        line.push(b'\n');
        self.write(&line)
    }

    fn write(&self, line: &[u8]) -> Result<()> {
        io::stdout().lock().write_all(line).context("cannot write to standard output")
    }
}

/// A count with its noun: `1 row`, `2 rows`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Escapes control characters, which would break lines and columns. See [`escape_controls`].
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            c if c.is_control() => {
                _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Escapes control characters in the text of `page` from `start` on, as JSON does: `\t`, `\n`,
/// `\r`, and others such as `\u001b`. Keeps all other characters, including backslashes, so that
/// JSON text keeps its meaning.
fn escape_controls(page: &mut Vec<u8>, start: usize) {
    // Control characters outside ASCII are U+0080 to U+009F. Their first byte in UTF-8 is 0xc2.
    let may_be = |byte: &u8| byte.is_ascii_control() || *byte == 0xc2;
    if !page[start..].iter().any(may_be) {
        return;
    }
    let text = String::from_utf8(page.split_off(start)).expect("the codec appends text");
    page.extend_from_slice(escaped(&text).as_bytes());
}

/// Standard output without the line buffer, which searches all output for line feeds. For large
/// writes.
///
/// # Errors
/// If the process has no free file descriptor.
pub fn stdout() -> io::Result<File> {
    io::stdout().flush()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Returns whether the reader closed the pipe, which is not a failure of this command.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(closed)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|error| error.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        let shown = |text: &str| {
            let mut page = b"a\tb".to_vec();
            page.extend_from_slice(text.as_bytes());
            escape_controls(&mut page, 3);
            String::from_utf8(page).unwrap()
        };
        assert_eq!(shown("x\ty\r\nz"), "a\tbx\\ty\\r\\nz");
        assert_eq!(shown("\0\u{1b}[31m\u{7f}\u{9b}"), "a\tb\\u0000\\u001b[31m\\u007f\\u009b");
        for kept in ["", "two  words", r#"{"a":"b\nc\\"}"#, "é £ \u{a0} 😀", r"C:\temp"] {
            assert_eq!(shown(kept), format!("a\tb{kept}"));
        }
    }
}
