//! Braid beside other embedded databases: LMDB, redb, fjall and SQLite, each set up as its own documentation
//! advises, all under the same calls in one run.
//!
//! Layers, each importing only those below it: `command`, `comparison` (one file each), `inside` (jobs in processes of
//! their own) beside `agree` (whether stores give the same answers), `drive` (clients as subjects), `stores` (one file
//! each), `store` (what they have in common), `call`, `tpcc`, `answer`; beside them `files` and `group`.

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
