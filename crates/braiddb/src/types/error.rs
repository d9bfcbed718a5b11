//! Why bytes and types do not fit.

/// Stored bytes are not an encoding of the type they are read as.
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
