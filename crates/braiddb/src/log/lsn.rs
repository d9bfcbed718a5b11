//! Positions in the log.

/// A log sequence number: a byte position in the infinite log, and also the engine's clock.
///
/// Zero is before every block; the first block of a database starts at [`Lsn::FIRST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Lsn(pub(crate) u64);

impl Lsn {
    /// Before every block.
    pub(crate) const ZERO: Lsn = Lsn(0);
    /// The start of a database's first block.
    pub(crate) const FIRST: Lsn = Lsn(4096);
    /// After every block.
    pub(crate) const MAX: Lsn = Lsn(u64::MAX);
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
