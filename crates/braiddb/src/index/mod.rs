//! Index: a B+tree from byte-string keys to record ids, optimised for few cache lines per lookup.
//!
//! When latency is hidden, the cost of a lookup is its number of cache lines, not its number of
//! steps. So each node has one line of hints. A lookup reads that line, then one line of key heads
//! and one of values: three lines in two dependent accesses. This is similar to Masstree's 8-byte
//! slices; instead of its layers, nodes cut off the prefix that their keys share. Concurrency control
//! is optimistic lock coupling: readers validate versions, writers latch nodes, and no task suspends
//! while it holds a latch.

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
mod prefix;
mod remove;
mod search;
mod shift;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;

pub(crate) use append::Appender;
pub(crate) use cursor::{Cursor, LeafEntry};
pub use key::MAX_KEY_BYTES;
pub(crate) use lookup::{InsertionPlace, Lookup, LookupProgress};
pub(crate) use tree::IndexTree;
