//! Errors of operations on pages.

use std::sync::Arc;

use super::map::PageId;
use crate::latch::Restart;
use crate::log::LogError;

/// Failure of an operation on pages.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// All page frames are in use, and no page can be evicted.
    #[error("all {frames} page frames of {page_bytes} bytes are in use")]
    OutOfFrames {
        /// Number of page frames.
        frames: u64,
        /// Page size in bytes.
        page_bytes: usize,
    },
    /// Pages were evicted repeatedly before the operation that loaded them could use them.
    #[error("{frames} page frames of {page_bytes} bytes are too few for the concurrent operations")]
    Contended {
        /// Number of page frames.
        frames: u64,
        /// Page size in bytes.
        page_bytes: usize,
    },
    /// All page ids are in use.
    #[error("paged tables use every page id")]
    OutOfPageIds,
    /// The operating system refused addresses for page frames.
    #[error("the operating system refused {frames} page frames of {page_bytes} bytes: {reason}")]
    NoMemory {
        /// Number of frames that were requested.
        frames: u32,
        /// Page size in bytes.
        page_bytes: usize,
        /// Message of the operating system.
        reason: String,
    },
    /// A page could not be read or written back, or a page that was read is damaged.
    #[error("{0}")]
    Storage(Arc<LogError>),
}

impl PageError {
    /// Returns whether the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Storage(error) if error.is_full())
    }
}

impl From<LogError> for PageError {
    fn from(error: LogError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Reason why an operation that does not wait stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// A page changed concurrently: start again.
    Restart,
    /// A page is not resident.
    Absent(PageId),
    /// Fewer page frames than this are free.
    OutOfFrames { needed: usize },
    /// No page id is free.
    OutOfPageIds,
}

impl From<Restart> for Interrupted {
    fn from(Restart: Restart) -> Self {
        Self::Restart
    }
}
