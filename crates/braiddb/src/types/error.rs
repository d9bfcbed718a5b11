//! Errors of encoding and decoding.

/// Stored bytes are not a valid encoding of the requested type.
///
/// ```
/// use braiddb::DecodeError;
///
/// assert_eq!(DecodeError::new("a color").to_string(), "the bytes are not a color");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not {expected}")]
pub struct DecodeError {
    expected: String,
}

impl DecodeError {
    /// Creates an error for bytes that do not encode `expected`.
    pub fn new(expected: impl Into<String>) -> Self {
        Self { expected: expected.into() }
    }
}

/// A value has no encoding.
///
/// ```
/// use braiddb::EncodeError;
///
/// assert_eq!(EncodeError::new("it has no end").to_string(), "it has no end");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct EncodeError {
    reason: String,
}

impl EncodeError {
    /// Creates an error with the reason why the value has no encoding.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}
