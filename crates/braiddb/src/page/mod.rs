//! Pages: records and index of tables that may exceed memory (`docs/paged.md`).
//!
//! A page is found by its id, which one word leads to the frame that holds it (`map`, `frame`, `space`), or to its
//! place on disk, from which it is loaded when it is needed (`fault`, `gather`), and to which it goes when another is
//! (`evict`, `write_back`, `zone`); what is on it is in `layout`, `tree` makes maps of pages, `versions` is what lies beside a record while
//! somebody may need it, `large` has the values that are too long for a page, `listing` is what a checkpoint has of them, `table` puts all that together, and `tidy` takes away what is left.

mod bulk;
mod cleanup;
mod error;
mod evict;
mod fault;
mod frame;
mod frame_pool;
mod large;
mod layout;
mod listing;
mod map;
#[cfg(all(test, loom))]
mod model;
mod nonblocking;
mod replay;
mod resident_set;
mod space;
mod table;
#[cfg(all(test, not(loom)))]
mod table_tests;
mod tree;
mod value;
mod versions;
mod write_back;
#[cfg_attr(loom, path = "zone/modelled.rs")]
mod zone;

pub(crate) use bulk::{BulkRefused, BulkWritten, Gate, SweepPosition};
pub(crate) use cleanup::Untidy;
pub(crate) use error::{Interrupted, PageError};
pub(crate) use evict::Shrunk;
pub(crate) use large::{LargeValues, Progress};
pub use layout::MAX_PAGED_KEY_BYTES;
pub(crate) use layout::{KeyBytes, StoredOnPage, is_page_size};
pub(crate) use listing::{
    ImageCheck, LeafWalk, Listed, ListedLeaf, Listing, LoadError, TreeLoader,
};
pub(crate) use nonblocking::NotNow;
pub(crate) use resident_set::{Admitted, HeldPages, Needs};
pub(crate) use space::{PageSpace, PageStats};
pub(crate) use table::{
    Decision, PagedCursor, PagedRecord, PagedTable, RecordBeforeWrite, Written,
};
pub(crate) use value::{CopiedValue, LargeRef, SlotValue, ValueBytes};
pub(crate) use versions::{Base, ChangeRef, LeftChain, Refusal};
pub(crate) use zone::{HolesFrom, has_zones, remove_zones};
