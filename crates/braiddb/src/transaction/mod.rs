//! Transactions: snapshots, write sets, commit, abort, and cleanup afterwards (CoroBase §4.5,
//! MosaicDB §5).

mod commit;
mod context;
mod housekeeping;
mod memory;
mod operations;
mod schedule;
mod sets;
#[cfg(all(test, not(loom)))]
mod tests;
mod validation;

pub(crate) use commit::disk_room::MAX_FREEING_ATTEMPTS;
pub(crate) use context::active_transaction::ActiveTransaction;
pub(crate) use context::admission::{InteractivePermit, NextAttempt};
pub(crate) use context::back_off::YieldedToPriority;
pub(crate) use context::counters::{AbortCause, WorkerCounters};
pub use context::durability_level::Durability;
pub(crate) use context::engine::{Engine, EngineOptions, Housekeeping};
pub use context::error::{IndexError, RecordKey, UniqueViolation};
pub(crate) use context::error::{OperationError, RestrictedWrite, TooLong};
pub(crate) use context::fault::PanicPoint;
#[cfg(feature = "experiment")]
pub use context::isolation::Certifier;
pub use context::isolation::Isolation;
pub(crate) use context::isolation::TransactionMode;
pub(crate) use context::partial_operation::PartialOperation;
pub(crate) use context::starvation_guard::PriorityToken;
pub use context::wall_clock::WallClock;
pub(crate) use context::worker::WorkerTransactions;
pub(crate) use context::write_intent::{ExpiryRule, WriteIntent};
pub(crate) use housekeeping::clear::{
    CatalogRow, clear_dropped, clear_records, forget_dropped, records_per_transaction,
};
pub(crate) use housekeeping::driver::WorkerDriver;
pub(crate) use housekeeping::sweep::sweep_now;
pub(crate) use operations::bulk::CannotBegin;
pub(crate) use operations::contents::count_contents;
pub(crate) use operations::execution::ExecutedWrite;
pub(crate) use operations::expiry::unexpired_at;
pub(crate) use operations::guest::{Guest, GuestRead};
pub(crate) use operations::guest_write::{GuestWrite, GuestWriters};
pub(crate) use operations::index::check::check_index;
pub(crate) use operations::index::scan::{IndexHit, IndexRecordScan};
pub(crate) use operations::read::{MAX_CONCURRENT_LOOKUPS, ReadNow, SeenRecord};
pub(crate) use operations::scan::RecordScan;
pub(crate) use operations::scan_bounds::{Direction, ScanBounds};
pub(crate) use operations::value_view::FoundValue;
pub(crate) use sets::read_set::NamedKeys;
pub(crate) use sets::savepoints::WriteSavepoint;
