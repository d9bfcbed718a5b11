//! Page storage for tables that may exceed memory (`docs/paged.md`).
//!
//! One word per page maps its id to a frame or to a place on disk (`map`, `frame`, `space`). Three
//! parts move pages between memory and disk:
//!
//! - `fault` and `resident_set` load the pages that an operation needs.
//! - `evict` and `write_back` free frames and write dirty pages.
//! - `zone` manages the files that hold page images.
//!
//! `layout` defines the bytes of a page, and `tree` builds ordered maps of pages. `versions` keeps
//! the version chains of records, and `large` stores values that exceed a page. `listing` produces
//! the page lists of checkpoints, `bulk` implements bulk operations, and `cleanup` removes empty
//! chains and merges sparse leaves. `table` combines these parts into a paged table, and `scan`
//! reads its leaves in order.

mod bulk;
mod cleanup;
mod error;
mod evict;
mod eviction_clock;
mod failed_writes;
mod fault;
mod frame;
mod frame_pool;
mod large;
mod layout;
mod listing;
mod loads;
mod map;
#[cfg(all(test, loom))]
mod model;
mod replay;
mod resident_set;
mod scan;
mod space;
mod table;
#[cfg(all(test, not(loom)))]
mod table_tests;
mod tree;
mod value;
mod versions;
mod would_suspend;
mod write_back;
#[cfg_attr(loom, path = "zone/modelled.rs")]
mod zone;

pub(crate) use bulk::{BulkGate, BulkWriteRefusal, BulkWriteResult, SweepPosition};
pub(crate) use cleanup::PendingCleanup;
pub(crate) use error::{Interrupted, PageError};
pub(crate) use evict::ShrinkResult;
pub(crate) use fault::Admitted;
pub(crate) use large::{LargeReadProgress, LargeValues};
pub use layout::MAX_PAGED_KEY_BYTES;
pub(crate) use layout::{KeyBytes, StoredOnPage, is_page_size};
pub(crate) use listing::{
    ImageCheck, LeafFromFile, LeafWalk, ListedLeaf, Listing, LoadError, StoredImages, TreeLoader,
};
pub(crate) use resident_set::{HeldPages, PageNeeds};
pub(crate) use scan::{PagedCursor, PeekedRecords, PlainRecords};
pub(crate) use space::{PageSpace, PageSpaceStats};
pub(crate) use table::{PagedRecord, PagedTable, RecordBeforeWrite, WriteDecision, WriteResult};
pub(crate) use tree::LatchedLeaf;
pub(crate) use value::{CopiedValue, LargeRef, SlotValue, ValueBytes};
pub(crate) use versions::{ChainBase, ChangeRef, LeftChain, WriteRefusal};
pub(crate) use would_suspend::WouldSuspend;
pub(crate) use zone::{HoleSearch, has_zones, remove_zones};
