//! Sets: the reads, writes, savepoints and bulk writes of one transaction, and the lists of its scans.
//!
//! May import `schedule`.

pub(super) mod bulk_log;
pub(super) mod bulk_writes;
pub(super) mod read_set;
pub(super) mod savepoints;
pub(super) mod scan_lists;
pub(super) mod write_set;
