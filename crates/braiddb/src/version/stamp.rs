//! Version stamps: a commit LSN, or the name of the transaction that has not stamped the version
//! yet.
//!
//! Bit 63 of the word is clear for an LSN and set for a name. A name is (worker, context,
//! sequence); the sequence distinguishes a current name from one whose transaction has ended.

use crate::log::Lsn;

const IN_FLIGHT: u64 = 1 << 63;
const SEQUENCE_BITS: u32 = 40;
const CONTEXT_BITS: u32 = 15;
const WORKER_BITS: u32 = 8;
const _: () = assert!(SEQUENCE_BITS + CONTEXT_BITS + WORKER_BITS == 63);

/// The stamp of a version whose transaction aborted: later than every begin stamp.
const ABORTED: u64 = IN_FLIGHT - 1;

/// The value of a version's stamp word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Aborted: never visible, and final.
    pub(crate) const ABORTED: Stamp = Stamp(ABORTED);
    /// A begin stamp after every commit.
    pub(crate) const LATEST: Lsn = Lsn(ABORTED);

    /// Committed at `lsn`.
    pub(crate) fn committed(lsn: Lsn) -> Self {
        assert!(lsn.0 < ABORTED, "the log is not longer than 2^63 bytes");
        Self(lsn.0)
    }

    /// Committed before every begin stamp.
    pub(crate) const fn committed_at_first() -> Self {
        Self(0)
    }

    /// Not stamped yet by the transaction with this name.
    pub(crate) fn in_flight(name: TransactionName) -> Self {
        Self(IN_FLIGHT | name.0)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The transaction that has not stamped it yet, if it is in flight.
    pub(crate) fn name(self) -> Option<TransactionName> {
        (self.0 & IN_FLIGHT != 0).then_some(TransactionName(self.0 & !IN_FLIGHT))
    }

    /// The commit LSN, if it is before a begin stamp.
    #[inline(always)]
    pub(crate) fn lsn_before(self, begin: Lsn) -> Option<Lsn> {
        // A name is larger than every LSN.
        (self.0 < begin.0).then_some(Lsn(self.0))
    }

    /// The commit LSN of a version that is not in flight; for an aborted one, an LSN later than
    /// every begin stamp.
    pub(crate) fn lsn(self) -> Option<Lsn> {
        (self.0 & IN_FLIGHT == 0).then_some(Lsn(self.0))
    }
}

/// Name of a transaction, valid while versions of it may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionName(u64);

impl TransactionName {
    /// Maximum number of workers in names.
    pub(crate) const MAX_WORKERS: usize = 1 << WORKER_BITS;
    /// Maximum number of contexts per worker in names.
    pub(crate) const MAX_CONTEXTS: usize = 1 << CONTEXT_BITS;

    /// The name of the `sequence`-th transaction (modulo 2^40) in a context.
    pub(crate) fn new(worker: usize, context: usize, sequence: u64) -> Self {
        assert!(worker < Self::MAX_WORKERS, "worker {worker}");
        assert!(context < Self::MAX_CONTEXTS, "context {context}");
        let sequence = sequence & Self::sequence_mask();
        let place = ((worker as u64) << CONTEXT_BITS) | context as u64;
        Self(place << SEQUENCE_BITS | sequence)
    }

    pub(crate) fn worker(self) -> usize {
        (self.0 >> (SEQUENCE_BITS + CONTEXT_BITS)) as usize
    }

    pub(crate) fn context(self) -> usize {
        (self.0 >> SEQUENCE_BITS) as usize & (Self::MAX_CONTEXTS - 1)
    }

    pub(crate) fn sequence(self) -> u64 {
        self.0 & Self::sequence_mask()
    }

    pub(crate) const fn sequence_mask() -> u64 {
        (1 << SEQUENCE_BITS) - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_parts() {
        let name = TransactionName::new(255, 32_767, (1 << 40) - 1);
        assert_eq!((name.worker(), name.context(), name.sequence()), (255, 32_767, (1 << 40) - 1));
        let name = TransactionName::new(3, 17, 5);
        assert_eq!((name.worker(), name.context(), name.sequence()), (3, 17, 5));
        assert_eq!(Stamp::in_flight(name).name(), Some(name));
        assert_eq!(Stamp::in_flight(name).lsn(), None);
    }

    #[test]
    fn an_aborted_stamp_is_later_than_any_commit() {
        assert!(Stamp::ABORTED.lsn().unwrap() > Lsn(1 << 62));
        assert_eq!(Stamp::ABORTED.name(), None);
        assert_eq!(Stamp::committed(Lsn(4096)).lsn(), Some(Lsn(4096)));
    }
}
