//! Modes of opening files.

/// Expected state of a file that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file is created, or truncated if it exists.
    Emptied,
    /// The file exists, or is created.
    ExistingOrNew,
    /// The file exists, and is opened for reading only.
    ReadOnly,
}
