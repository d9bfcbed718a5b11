//! Comparison of Braid with other embedded databases: LMDB, redb, fjall, RocksDB and SQLite. Each
//! is set up as its own documentation advises, and all get the same calls in one run.
//!
//! Layers, each importing only those below it:
//!
//! - `command`.
//! - `comparison`: one file for each comparison.
//! - `inside`: jobs in separate processes; and `agree`: checks that stores return the same answers.
//! - `drive`: clients as subjects.
//! - `stores`: one file for each store.
//! - `store`: the common interface of stores.
//! - `call`, `tpcc` and `answer`; and next to them `files` and `group`.

mod agree;
mod answer;
mod call;
pub mod command;
mod comparison;
mod drive;
mod files;
mod group;
mod inside;
mod store;
mod stores;
mod tpcc;
