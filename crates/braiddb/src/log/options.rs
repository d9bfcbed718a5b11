//! Options for opening a log.

use std::path::PathBuf;

use super::identity::DEFAULT_PAGE_BYTES;
#[cfg(feature = "experiment")]
use super::tracker::HoleTracker;
use crate::io::SimulatedDisk;

/// Options for opening a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// A simulated disk to use instead of the directory.
    pub(crate) disk: Option<SimulatedDisk>,
    pub(crate) workers: usize,
    /// The size of the ring in memory, in bytes. It is rounded up to a power of two that covers the
    /// workers' blocks in flight.
    pub(crate) ring_bytes: u64,
    /// The size of a segment in bytes, for a new database.
    pub(crate) segment_bytes: Option<u64>,
    /// The page size of paged tables in bytes, if the database has not fixed one yet.
    pub(crate) page_bytes: usize,
    /// True to create the database if it does not exist.
    pub(crate) create: bool,
    #[cfg(feature = "experiment")]
    pub(crate) tracker: HoleTracker,
    /// While one flush is in flight, the next one gathers this many bytes.
    pub(crate) flush_unit: u64,
    /// See [`crate::Tuning::log_room_bytes`].
    #[cfg(braid_simulation)]
    pub(crate) room_bytes: u64,
}

impl LogOptions {
    /// Creates the default options.
    pub(crate) fn new(directory: impl Into<PathBuf>, workers: usize) -> Self {
        Self {
            directory: directory.into(),
            disk: None,
            workers,
            ring_bytes: 64 << 20,
            segment_bytes: None,
            page_bytes: DEFAULT_PAGE_BYTES,
            create: true,
            #[cfg(feature = "experiment")]
            tracker: HoleTracker::default(),
            flush_unit: 64 << 10,
            #[cfg(braid_simulation)]
            room_bytes: u64::MAX,
        }
    }
}
