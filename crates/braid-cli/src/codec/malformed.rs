//! Errors of stored bytes that do not encode a key or a value.

use std::fmt;

use braiddb::DecodeError;

/// Bytes that are not the encoding of a key or a value of their table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the first byte that is wrong or missing.
    pub position: usize,
    pub reason: String,
}

impl Malformed {
    pub fn at(position: usize, reason: impl Into<String>) -> Self {
        Self { position, reason: reason.into() }
    }

    /// The same error for bytes with `bytes` more in front.
    pub fn behind(self, bytes: usize) -> Self {
        Self { position: self.position + bytes, ..self }
    }
}

impl From<DecodeError> for Malformed {
    fn from(error: DecodeError) -> Self {
        Self::at(0, error.to_string())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.position, self.reason)
    }
}

impl std::error::Error for Malformed {}

/// Decodes text in UTF-8.
///
/// # Errors
/// If the bytes are not text, with the position of the first that is not.
pub fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes)
        .map_err(|error| Malformed::at(error.valid_up_to(), "the bytes are not text in UTF-8"))
}
