//! What the command prints: plain text for people and pipes, JSON lines for programs.

use std::io::{self, Write};

use anyhow::Result;
use braiddb::DecodeError;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::codec::Shown;
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
        let (key, value) = (table.key.decode(key)?, table.value.show(value)?);
        if self.json {
            let record = Record { key: &key, value: Document::of(&value) };
            serde_json::to_writer(&mut *page, &record).expect("text is written to memory");
        } else {
            match &key {
                Value::String(text) => page.extend_from_slice(text.as_bytes()),
                key => page.extend_from_slice(key.to_string().as_bytes()),
            }
            page.push(b'\t');
            page.extend_from_slice(value.text.as_bytes());
        }
        page.push(b'\n');
        Ok(())
    }

    /// A page of lines.
    pub fn page(&self, page: &[u8]) -> Result<()> {
        Ok(io::stdout().lock().write_all(page)?)
    }

    /// A value alone.
    pub fn value(&self, table: &AnyTable, value: &[u8]) -> Result<()> {
        let value = table.value.show(value)?;
        if self.json { self.document(&Document::of(&value)) } else { self.line(&value.text) }
    }
}

/// A record as a JSON document.
#[derive(Serialize)]
struct Record<'a> {
    key: &'a Value,
    value: Document<'a>,
}

/// A value: a number, or an object, is shown as it is stored, to the digit; any other is text.
#[derive(Serialize)]
#[serde(untagged)]
enum Document<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> Document<'a> {
    fn of(value: &'a Shown) -> Self {
        let json = value.is_number || value.text.starts_with('{');
        let json = json.then(|| serde_json::from_str(&value.text).ok()).flatten();
        json.map_or(Self::Text(&value.text), Self::Json)
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
