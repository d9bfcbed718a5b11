//! Versions of records on pages: the page has the latest value, and what others may still have to see is
//! kept beside it, in memory only and only while somebody may need it (Umbra MVCC §3.1 to §3.4).

mod chain;
mod change;
mod mapping;
#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod test_page;
#[cfg(all(test, not(loom)))]
mod tests;

#[expect(unused_imports, reason = "tables do not use pages yet")]
pub(crate) use chain::{Base, Chain, Refusal, Seen, SeenValue, Start};
#[expect(unused_imports, reason = "as above")]
pub(crate) use change::{Change, ChangeRef};
#[expect(unused_imports, reason = "as above")]
pub(crate) use mapping::Mapping;
pub(in crate::page) use mapping::{merge_mappings, reserved_bytes, split_mapping};
