//! Secondary indexes: lookups, refused values, and consistency with the table during writes,
//! aborts, panics and reopenings, and during their creation and drop.

#![allow(clippy::duplicate_mod, reason = "the same tests, of tables of each kind")]

mod attack;
#[path = "../common/mod.rs"]
mod common;
mod panics;

/// Tests of indexes of tables in memory.
#[path = "each_kind"]
mod hot {
    /// True if the tables are paged.
    const PAGED: bool = false;
    mod beside_writers;
    mod creating;
    mod finding;
    mod numbers;
    mod refusing;
    mod writing;
}

/// The same tests with indexes of paged tables.
#[path = "each_kind"]
mod paged {
    /// True if the tables are paged.
    const PAGED: bool = true;
    mod beside_writers;
    mod creating;
    mod finding;
    mod numbers;
    mod refusing;
    mod writing;
}
