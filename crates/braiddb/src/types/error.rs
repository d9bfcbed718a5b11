//! Why bytes and types do not fit.

/// Stored bytes are not an encoding of the type they are read as.
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
    /// The bytes are not what is named.
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
    /// Why the value has no encoding.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}
