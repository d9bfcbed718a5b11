//! What a transaction is protected from.

/// What transactions that run side by side may notice of one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Nothing: all is as if they had run one after the other, in an order in which each stands between
    /// the moments it was called and answered (strict serializability). A transaction that wrote is
    /// certified when it commits: if what it read has changed since it began, it is aborted, and may be
    /// tried again. One that wrote nothing never is.
    #[default]
    Serializable,
    /// Each reads the database as it was when it began, and of two that write the same record one is
    /// aborted (snapshot isolation). But two may each write what the other has read (write skew), so that
    /// what holds over several records is not protected.
    Snapshot,
}

/// How a transaction takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// What it reads is noted, and certified if it writes.
    Serializable,
    /// What it reads is not noted.
    Snapshot,
    /// It refuses to write, so that what it reads need not be noted.
    ReadOnly,
}

impl From<Isolation> for Mode {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Serializable => Mode::Serializable,
            Isolation::Snapshot => Mode::Snapshot,
        }
    }
}
