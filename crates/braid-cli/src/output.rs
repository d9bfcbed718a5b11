//! What the command prints: plain text for people and pipes, JSON lines for programs.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;
use serde_json::value::RawValue;

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
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, document)?;
        writeln!(out)?;
        Ok(())
    }

    /// A line of text.
    pub fn line(&self, line: &str) -> Result<()> {
        writeln!(io::stdout().lock(), "{line}")?;
        Ok(())
    }

    /// Appends a record to `page`, on a line of its own: `key<TAB>value`, or `{"key": …, "value": …}`.
    pub fn format_record(&self, page: &mut Vec<u8>, key: &str, value: &str) {
        if self.json {
            let record = Record { key, value: Document::of(value) };
            serde_json::to_writer(&mut *page, &record).expect("text is written to memory");
        } else {
            page.extend_from_slice(key.as_bytes());
            page.push(b'\t');
            page.extend_from_slice(value.as_bytes());
        }
        page.push(b'\n');
    }

    /// A page of lines.
    pub fn page(&self, page: &[u8]) -> Result<()> {
        Ok(io::stdout().lock().write_all(page)?)
    }

    /// A value alone.
    pub fn value(&self, value: &str) -> Result<()> {
        if self.json { self.document(&Document::of(value)) } else { self.line(value) }
    }
}

/// A record as a JSON document.
#[derive(Serialize)]
struct Record<'a> {
    key: &'a str,
    value: Document<'a>,
}

/// A value: an object is shown as it is stored, to the digit; any other is text.
#[derive(Serialize)]
#[serde(untagged)]
enum Document<'a> {
    Object(&'a RawValue),
    Text(&'a str),
}

impl<'a> Document<'a> {
    fn of(value: &'a str) -> Self {
        let object = value.starts_with('{').then(|| serde_json::from_str(value).ok()).flatten();
        object.map_or(Self::Text(value), Self::Object)
    }
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
