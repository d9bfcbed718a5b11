//! Details of errors that have several causes with the same remedy.

use std::time::Duration;

use super::super::changes::TokenError;

/// Operation that uses a table or the files exclusively.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BusyWith {
    /// A bulk operation ([`Database::run_bulk`](crate::Database::run_bulk)) is changing a table
    /// that the transaction was about to write; all attempts failed.
    #[error(
        "table {table:?} can only be read while a bulk operation is changing it; try again when \
         the bulk operation has finished"
    )]
    BulkOperation {
        /// Name of the table.
        table: String,
    },
    /// A table or one of its indexes is being created, changed or dropped, or a bulk operation is
    /// changing the table, so its definition cannot change.
    #[error(
        "an index of table {table:?} is being created or dropped, or a bulk operation is changing \
         the table; try again when that has finished"
    )]
    TableChange {
        /// Name of the table.
        table: String,
    },
    /// A checkpoint, compaction, backup or check is running, and only one of them can run at a
    /// time.
    #[error(
        "another checkpoint, compaction, backup or check is running; try again when it has finished"
    )]
    Checkpoint,
}

/// Memory limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// Versions of paged tables that a transaction wrote exceed `version_bytes`. The transaction
    /// cannot commit.
    #[error(
        "the transaction needs {bytes} bytes of memory for versions of paged tables, and \
         version_bytes allows {limit}; use Database::run_bulk, split the transaction, or raise \
         version_bytes"
    )]
    Versions {
        /// Bytes that the versions need.
        bytes: u64,
        /// Value of `version_bytes`.
        limit: u64,
    },
    /// All page frames are in use, and no page can be evicted.
    #[error(
        "all {frames} page frames of {page_bytes} bytes are in use; raise the memory budget or \
         page_frames"
    )]
    PageFrames {
        /// Number of page frames.
        frames: u64,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// Concurrent operations need more page frames than exist: pages were evicted repeatedly
    /// before the operation that loaded them could use them.
    #[error(
        "{frames} page frames of {page_bytes} bytes are too few for the concurrent operations: \
         pages were evicted before they could be used; raise the memory budget, or run fewer \
         operations at the same time"
    )]
    PageFramesContended {
        /// Number of page frames.
        frames: u64,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// The operating system refused to allocate memory or addresses.
    #[error(
        "the operating system refused {bytes} bytes of memory for {purpose}: {reason}; free \
         memory, or raise the memory limit of the process"
    )]
    Allocation {
        /// Use of the memory.
        purpose: &'static str,
        /// Number of bytes.
        bytes: u64,
        /// Message of the operating system.
        reason: String,
    },
}

/// Failure of a change feed or a change slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The log that the feed needs was freed: the feed was behind by more than it may hold, or
    /// neither a feed nor a slot held the log.
    #[error(
        "the log before LSN {oldest}, which the feed needs, was freed; begin with a snapshot, and \
         hold more of the log with a slot"
    )]
    LogGone {
        /// LSN of the oldest part of the log that exists.
        oldest: u64,
    },
    /// The token cannot be used with this database.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No change slot has this name.
    #[error("change slot {0:?} does not exist; create it first")]
    SlotNotFound(String),
    /// A change slot of this name exists already.
    #[error("change slot {0:?} already exists; use it, or drop it first")]
    SlotExists(String),
}

/// End of a transaction that a later call still refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionEnd {
    /// The transaction committed or aborted, an earlier error or panic ended it, or the database
    /// was closed.
    #[error("the transaction has already ended; begin another one")]
    Finished,
    /// The interactive transaction was open longer than an option allows, and was aborted.
    #[error(
        "the transaction was aborted because it was open longer than {option} allows, which is \
         {limit:?}; begin another one and commit it sooner, or raise {option}"
    )]
    Expired {
        /// Name of the option.
        option: &'static str,
        /// Value of the option.
        limit: Duration,
    },
}
