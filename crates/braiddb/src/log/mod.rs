//! Write-ahead log: one central log, filled by all workers concurrently, and flushed by any worker
//! that has a turn (ELEDA). It is also the engine's clock: the position of a commit is its place in
//! the commit order.
//!
//! A commit reserves space with one `fetch_add` on the tail, and copies its records into the ring
//! while others fill theirs. It is durable once the contiguous prefix up to it has been written.
//! Invariants: `durable <= buffered <= tail`; `durable` is always the end of a padded flush; blocks
//! never change once filled, and sectors never change once durable.

mod backup;
mod block;
mod cold;
mod continuity;
#[cfg(not(loom))]
#[cfg(feature = "experiment")]
mod drive;
mod durable_waiters;
mod error;
mod extent;
mod files;
mod flush;
mod follow;
mod growth;
mod identity;
mod leader;
mod location;
mod lsn;
#[cfg(all(test, loom))]
mod model;
mod options;
mod pace;
mod prepare;
mod prepared;
mod read_only;
mod reader;
mod record;
mod reservation;
mod reserve;
mod reserve_state;
mod retention;
mod ring;
mod segment;
mod segment_file;
mod space;
mod spare;
mod stats;
mod tail;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod tracker;
mod waiting;
#[cfg(all(test, loom))]
mod wake_up_model;
mod wal;
mod window;

pub(crate) use backup::DirectoryCopy;
pub(crate) use block::{BlockKind, MAX_LARGE_BLOCK_BYTES, block_bytes};
pub(crate) use cold::{ColdRecord, ColdSpan, ColdStore};
#[cfg(not(loom))]
#[cfg(feature = "experiment")]
pub use drive::{TrackerDrive, TrackerDriveResult};
pub(crate) use durable_waiters::LogWatch;
pub use error::LogError;
pub(crate) use extent::{BlockPurpose, MAX_GUEST_BLOCK_BYTES, MAX_GUEST_FILLERS};
pub(crate) use files::{LogFiles, WeakLogFiles};
pub(crate) use flush::FlushState;
pub(crate) use follow::BlockFollower;
pub(crate) use identity::{
    DEFAULT_PAGE_BYTES, PAGE_BYTES, SOCKET_NAME, UNFINISHED_SUFFIX, is_table_page_size,
};
pub(crate) use location::{CHECKPOINT_NAME, CHECKPOINT_SUFFIX};
pub(crate) use lsn::Lsn;
pub(crate) use options::LogOptions;
pub(crate) use read_only::DirectoryState;
pub(crate) use reader::LogReader;
pub(crate) use record::{RecordKind, RecordView, record_bytes};
pub(crate) use reservation::Reservation;
pub(crate) use retention::{LogFreed, LogHold};
pub(crate) use ring::MAX_RING;
pub use stats::LogStats;
#[cfg(feature = "experiment")]
pub use tracker::HoleTracker;
pub(crate) use waiting::WaitingWorkers;
pub(crate) use wal::{Log, min_ring_bytes};
pub(crate) use window::Block;
