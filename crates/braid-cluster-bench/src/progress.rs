//! Progress on standard error if it is a terminal; silent otherwise.

use std::io::{IsTerminal, Write};

/// A line that shows the current work.
pub struct Progress {
    is_terminal: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    /// Shows the current work.
    pub fn doing(&self, work: &str) {
        if self.is_terminal {
            // Nothing can be done if standard error is closed.
            _ = write!(std::io::stderr(), "\r\x1b[K{work}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.doing("");
    }
}
