//! Versions of records: their layout, their chains, and who may see them.

mod rid;

pub(crate) use rid::{Rid, TableId};
