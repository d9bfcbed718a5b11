//! Versions of records on pages. A page has the latest values. Older versions are kept in memory
//! only, and only as long as a transaction may need them (Umbra MVCC §3.1 to §3.4).

mod chain;
mod change;
mod collect;
mod mapping;
#[cfg(all(test, loom))]
mod model;
mod orphan;
mod prune;
#[cfg(test)]
mod test_page;
#[cfg(all(test, not(loom)))]
mod tests;
mod undo;

pub(crate) use chain::{Chain, ChainBase, SeenValue, WalkEnd, WalkHead, WriteRefusal};
pub(crate) use change::ChangeRef;
#[cfg(all(test, not(loom)))]
pub(in crate::page) use change::links_followed;
pub(crate) use collect::LeftChain;
pub(crate) use mapping::{
    Mapping, merge_mappings, reserved_bytes, reserved_bytes_of, split_mapping,
};
pub(in crate::page) use orphan::Orphans;
