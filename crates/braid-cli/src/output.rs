//! What the command prints: plain text for people and pipes, JSON lines for programs.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use braiddb::DecodeError;
use serde::Serialize;

use crate::store::AnyTable;

/// Where data goes, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// One JSON document on a line of its own.
    pub fn document(&self, document: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(document)?;
        line.push(b'\n');
        self.write(&line)
    }

    /// A line of text.
    pub fn line(&self, line: &str) -> Result<()> {
        self.write(format!("{line}\n").as_bytes())
    }

    /// Appends a record to `page`, on a line of its own: `key<TAB>value`, with control characters in both escaped, or
    /// `{"key": …, "value": …}`.
    ///
    /// # Errors
    /// If they are not of the table's types.
    pub fn format_record(
        &self,
        page: &mut Vec<u8>,
        table: &AnyTable,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), DecodeError> {
        if self.json {
            page.extend_from_slice(b"{\"key\":");
            table.key.append_json(key, page)?;
            page.extend_from_slice(b",\"value\":");
            table.value.append_json(value, page)?;
            page.push(b'}');
        } else {
            let start = page.len();
            table.key.append_text(key, page)?;
            escape_controls(page, start);
            page.push(b'\t');
            let start = page.len();
            table.value.append_text(value, page)?;
            escape_controls(page, start);
        }
        page.push(b'\n');
        Ok(())
    }

    /// A value alone, on a line of its own.
    pub fn value(&self, table: &AnyTable, value: &[u8]) -> Result<()> {
        let mut line = Vec::new();
        match self.json {
            true => table.value.append_json(value, &mut line)?,
            false => table.value.append_text(value, &mut line)?,
        }
        line.push(b'\n');
        self.write(&line)
    }

    fn write(&self, line: &[u8]) -> Result<()> {
        io::stdout().lock().write_all(line).context("cannot write to standard output")
    }
}

/// So many of what is called so.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// A text in which no control character breaks a line or a column: see [`escape_controls`].
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

/// Escapes control characters in the text that `page` has from `start` on, as JSON does: `\t`, `\n`, `\r`, and others
/// such as `\u001b`. All else stays, backslashes too, so that JSON stays what it is.
fn escape_controls(page: &mut Vec<u8>, start: usize) {
    // Those beyond ASCII are U+0080 to U+009F, which UTF-8 begins with 0xc2.
    let may_be = |byte: &u8| byte.is_ascii_control() || *byte == 0xc2;
    if !page[start..].iter().any(may_be) {
        return;
    }
    let text = String::from_utf8(page.split_off(start)).expect("what is shown is text");
    page.extend_from_slice(escaped(&text).as_bytes());
}

/// Standard output without a buffer, which searches what passes for lines: for whoever writes much at once.
///
/// # Errors
/// If there is no descriptor left for it.
pub fn stdout() -> io::Result<File> {
    io::stdout().flush()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Whether the reader of a pipe went away, which is no failure of ours.
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
    fn control_characters_are_escaped_and_nothing_else() {
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
