//! Workloads that measure Braid, and the inside of `braid bench`.
//!
//! Layers, each importing only those below it: `bench` (the command), `workload` (one file each),
//! `engine` (databases under test and how they are driven) beside `reference` (bare baselines),
//! `scale` (arguments and settings), `harness` (measuring and telling), `random` and `error`. Apart
//! from them are `history`, which holds what transactions were told against a serial order, `histories`, which
//! lets a checker of others look for cycles among them, `torture`, and `simulate`, which builds with `--cfg braid_simulation` have instead of
//! all the others. What measures and tells, and what drives the engine, is public for `braid-peers`, which compares
//! Braid with other databases.
//!
//! `bench paper` and `histories` are compiled for tests, and with the features `papers` and `histories`: they take a tenth of the
//! command's size, and few need them.

#![cfg_attr(
    not(any(test, all(feature = "papers", feature = "histories"))),
    allow(dead_code, reason = "some parts only the figures of papers use, or histories")
)]

#[cfg(not(braid_simulation))]
pub mod bench;
#[cfg(not(braid_simulation))]
pub mod engine;
#[cfg(not(braid_simulation))]
pub mod error;
#[cfg(not(braid_simulation))]
pub mod harness;
#[cfg(all(any(test, feature = "histories"), not(braid_simulation)))]
pub mod histories;
pub mod history;
#[cfg(all(test, not(braid_simulation)))]
#[path = "../../braiddb/tests/common/mod.rs"]
mod limit;
#[cfg(not(braid_simulation))]
pub mod random;
#[cfg(not(braid_simulation))]
mod reference;
#[cfg(not(braid_simulation))]
pub mod scale;
#[cfg(braid_simulation)]
pub mod simulate;
#[cfg(not(braid_simulation))]
pub mod torture;
#[cfg(not(braid_simulation))]
mod workload;

#[cfg(not(braid_simulation))]
pub use workload::stage::Stage;
