//! Passes over the rows of an export.

use std::io::{self, Write};

use anyhow::Result;

use crate::codec::json_text::Fields;

/// Passes each object of the written JSON lines to a function.
pub struct ObjectLines<F>(pub F);

impl<F: FnMut(&Fields<'_>) -> Result<()>> Write for ObjectLines<F> {
    /// Expects complete lines.
    fn write(&mut self, page: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(page).map_err(io::Error::other)?;
        for line in text.lines() {
            let fields = Fields::parse(line).map_err(io::Error::other)?;
            (self.0)(&fields).map_err(io::Error::other)?;
        }
        Ok(page.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
