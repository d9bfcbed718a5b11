//! Tables at the engine level (MosaicDB §2.1, CoroBase §2). A table in memory has an index from keys
//! to record ids and an indirection array from record ids to version chains; a paged table has
//! [pages](crate::page). This layer also implements the reading and extension of chains (first
//! updater wins).

#[cfg(feature = "experiment")]
mod access;
#[cfg(feature = "experiment")]
mod access_stamps;
mod certify;
#[cfg(all(test, loom))]
mod certify_model;
mod chunks;
mod cold;
mod contents;
mod copies;
mod count;
mod evict;
mod expiry;
mod indirection;
mod lifetime;
mod lookup;
#[cfg(all(test, loom))]
mod model;
mod prune;
mod read;
mod records;
mod relocate;
mod rids;
mod secondary;
mod show_key;
mod write;

#[cfg(feature = "experiment")]
pub(crate) use access::wait;
pub(crate) use cold::ColdVersion;
pub(crate) use contents::Contents;
pub(crate) use copies::Copies;
pub(crate) use evict::may_lose_payload;
pub(crate) use expiry::{EXPIRY_BYTES, split_expiry, with_expiry};
pub(crate) use indirection::IndirectionEntry;
pub(crate) use prune::Cut;
pub(crate) use read::{NewestValues, NotReady, RecordLocation, SeenVersion};
pub(crate) use records::{MemoryRecords, PagedRecords, Records, RecordsRef, TableKind};
pub(crate) use relocate::{HeldLogRange, NewestVersion};
pub(crate) use rids::TableFull;
pub(crate) use secondary::{ChangingIndexes, IndexCode, Secondary};
pub use show_key::EncodedKey;
pub(crate) use show_key::ShowKey;
pub(crate) use write::{InstallBase, InstallRefusal};
