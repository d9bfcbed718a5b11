//! The index: a B+tree from byte-string keys to record ids, built to be read in few cache lines.
//!
//! With latency hidden, a look-up costs what its cache lines cost, not its steps. So a node keeps
//! one line of hints; a look-up reads that line, then one line of key heads and one of values
//! (three lines in two hops; Masstree's 8-byte slices, without its layers). Concurrency is
//! optimistic lock coupling: readers validate versions, writers latch, nobody suspends with a latch.

mod append;
#[cfg(all(test, not(loom)))]
mod check;
mod cursor;
mod insert;
mod key;
mod lookup;
mod merge;
#[cfg(all(test, loom))]
mod model;
mod node;
mod remove;
mod search;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;

pub(crate) use append::Appender;
pub(crate) use cursor::{Cursor, LeafEntry};
pub use key::MAX_KEY_BYTES;
pub(crate) use tree::Index;
