//! What the command prints: plain text for people and pipes, JSON lines for programs.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use anyhow::Result;
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
        if self.json {
            page.extend_from_slice(b"{\"key\":");
            table.key.append_json(key, page)?;
            page.extend_from_slice(b",\"value\":");
            table.value.append_json(value, page)?;
            page.push(b'}');
        } else {
            table.key.append_text(key, page)?;
            page.push(b'\t');
            table.value.append_text(value, page)?;
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
        Ok(io::stdout().lock().write_all(&line)?)
    }
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
