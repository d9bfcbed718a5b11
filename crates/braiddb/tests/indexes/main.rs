//! Secondary indexes: what they find, what they refuse, and that they are exactly what the table is, beside
//! writers, across aborts, panics, openings, and while they are created and dropped.

/// Whether the tables are paged: `../paged_indexes.rs` runs the same tests with such.
const PAGED: bool = false;

mod beside_writers;
#[path = "../common/mod.rs"]
mod common;
mod creating;
mod finding;
mod numbers;
mod refusing;
mod writing;
