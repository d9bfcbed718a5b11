//! Operations of transactions: reads, writes and scans of tables in memory and on pages; secondary
//! indexes, bulk operations, large values, expiry, creation of tables.
//!
//! May import `commit`, `validation`, `context`, `sets`, `memory` and `schedule`.

pub(super) mod bulk;
pub(super) mod contents;
mod create;
pub(super) mod execution;
pub(super) mod expiry;
pub(super) mod guest;
pub(super) mod index;
mod large;
mod large_write;
mod paged;
mod paged_scan;
mod progress;
pub(super) mod read;
mod read_ahead;
mod reading;
mod ready_records;
mod required_pages;
pub(super) mod scan;
mod scan_batch;
pub(super) mod scan_bounds;
pub(super) mod value_view;
mod write;
mod write_attempt;
