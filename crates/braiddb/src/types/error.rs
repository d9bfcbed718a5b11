//! Errors of encoding and decoding.

/// Stored bytes are not an encoding of the type that they are read as.
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
    /// Creates the error; `expected` completes the sentence "the bytes are not …".
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
    /// Creates the error with a reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}
