//! Versions of records: layout, transaction states and visibility (MosaicDB §2.1, Umbra MVCC §3;
//! visibility as in CoroBase §4.5).

mod address;
mod horizon;
mod layout;
#[cfg(all(test, loom))]
mod model;
mod readers;
mod stamp;
mod status;
mod view;

pub(crate) use address::{Address, DEFAULT_KEY_BYTES};
pub(crate) use horizon::{Acting, Horizon, Pruning};
pub use layout::MAX_VALUE_BYTES;
pub(crate) use layout::{Link, Version, VersionRef};
pub(crate) use readers::{BeginStamps, Readers};
pub(crate) use stamp::{Stamp, TransactionName};
pub(crate) use status::{CommittingContext, StatusTable, TransactionStatus, Visibility};
pub(crate) use view::{Undecided, Verdict, View};
