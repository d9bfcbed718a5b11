//! Secondary indexes: what they find, what they refuse, and that they are exactly what the table is, beside
//! writers, across aborts, panics, openings, and while they are created and dropped.

#![allow(clippy::duplicate_mod, reason = "the same tests, of tables of each kind")]

mod attack;
#[path = "../common/mod.rs"]
mod common;
mod panics;

/// Tests of indexes of tables in memory.
#[path = "each_kind"]
mod hot {
    /// Whether the tables are paged.
    const PAGED: bool = false;
    mod beside_writers;
    mod creating;
    mod finding;
    mod numbers;
    mod refusing;
    mod writing;
}

/// The same tests, of indexes of paged tables.
#[path = "each_kind"]
mod paged {
    /// Whether the tables are paged.
    const PAGED: bool = true;
    mod beside_writers;
    mod creating;
    mod finding;
    mod numbers;
    mod refusing;
    mod writing;
}
