//! Groups of errors by the caller's remedy.

/// The remedy for an [`Error`](enum@crate::Error), returned by [`Error::kind`](crate::Error::kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Other work interfered, and nothing was written: make the same call again later.
    Retry,
    /// The call cannot succeed with these arguments or in this state: correct the program or its
    /// input.
    Call,
    /// Stored data is damaged or has another type: repair or restore the data.
    Data,
    /// The machine lacks disk space or memory, or refuses an operation: correct the machine or its
    /// configuration.
    Machine,
    /// The transaction may be committed or not: open the database again and read what it wrote.
    Unknown,
    /// The transaction or the database handle can no longer be used: begin or open another one.
    Ended,
}
