//! Why pages cannot be had.

use std::sync::Arc;

use super::map::PageId;
use crate::latch::Restart;
use crate::log::LogError;

/// What an operation on pages tells its caller.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// All frames are taken.
    #[error(
        "all {frames} frames for pages of {page_bytes} bytes are in use: a larger memory budget gives \
         more"
    )]
    OutOfFrames {
        /// Frames there are.
        frames: u64,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// Pages that were loaded left again and again before they were of use.
    #[error(
        "{frames} frames for pages of {page_bytes} bytes are too few for all that is done at once: pages that an \
         operation needs left again and again before it had all of them; a larger memory budget gives more frames, or \
         try again with fewer operations at a time"
    )]
    Contended {
        /// Frames there are.
        frames: u64,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// All page ids are taken.
    #[error("there are no more page ids: tables take more pages than can be told apart")]
    OutOfPageIds,
    /// The operating system has no addresses for frames.
    #[error("no memory for {frames} frames of {page_bytes} bytes: {reason}")]
    NoMemory {
        /// Frames that were asked for.
        frames: u32,
        /// Bytes of a page.
        page_bytes: usize,
        /// What the operating system says.
        reason: String,
    },
    /// A page could not be read, or not written so that another could take its place; or what was read is not
    /// what was written.
    #[error("{0}")]
    Storage(Arc<LogError>),
}

impl From<LogError> for PageError {
    fn from(error: LogError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Why something that does not wait came to no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// What it met has changed: start again.
    Restart,
    /// A page is not in memory.
    Absent(PageId),
    /// Not so many frames are free.
    OutOfFrames { needed: usize },
    /// No page id is free.
    OutOfPageIds,
}

impl From<Restart> for Interrupted {
    fn from(Restart: Restart) -> Self {
        Self::Restart
    }
}
