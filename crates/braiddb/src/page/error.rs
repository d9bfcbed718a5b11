//! Errors of page operations.

use std::sync::Arc;

use super::map::PageId;
use crate::latch::Restart;
use crate::log::LogError;

/// Error that a page operation returns to its caller.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// All frames are in use.
    #[error(
        "all {frames} frames for pages of {page_bytes} bytes are in use: raise the memory \
         budget"
    )]
    OutOfFrames {
        /// Total number of frames.
        frames: u64,
        /// Page size in bytes.
        page_bytes: usize,
    },
    /// Other operations evicted the loaded pages repeatedly before this operation could use them.
    #[error(
        "{frames} frames for pages of {page_bytes} bytes are too few for the concurrent operations: \
         pages were evicted repeatedly before an operation had all that it needed; raise the memory \
         budget or run fewer operations at a time"
    )]
    Contended {
        /// Total number of frames.
        frames: u64,
        /// Page size in bytes.
        page_bytes: usize,
    },
    /// All page ids are in use.
    #[error("all page ids are in use: the tables have too many pages")]
    OutOfPageIds,
    /// The operating system could not reserve address space for the frames.
    #[error("no memory for {frames} frames of {page_bytes} bytes: {reason}")]
    NoMemory {
        /// Number of frames that were requested.
        frames: u32,
        /// Page size in bytes.
        page_bytes: usize,
        /// Error message of the operating system.
        reason: String,
    },
    /// A page could not be read, a page could not be written before its eviction, or the image that
    /// was read is damaged or outdated.
    #[error("{0}")]
    Storage(Arc<LogError>),
}

impl From<LogError> for PageError {
    fn from(error: LogError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Reason why a non-blocking attempt did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// Concurrent change: the caller restarts the operation.
    Restart,
    /// The page is not resident.
    Absent(PageId),
    /// Fewer than `needed` frames are free.
    OutOfFrames { needed: usize },
    /// No page id is free.
    OutOfPageIds,
}

impl From<Restart> for Interrupted {
    fn from(Restart: Restart) -> Self {
        Self::Restart
    }
}
