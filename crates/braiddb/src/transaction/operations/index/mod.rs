//! Secondary indexes: their keys, and changes, scans, builds and checks of them.

mod build;
mod changes;
pub(in crate::transaction) mod check;
pub(in crate::transaction) mod keys;
pub(in crate::transaction) mod scan;
