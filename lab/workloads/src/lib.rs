//! Workloads, crash campaigns and simulations of Braid: the library behind `braid-lab`.
//!
//! Layers, each importing only those below it: `bench` (the command), `workload` (one file each),
//! `engine` (databases under test and how they are driven) beside `reference` (bare baselines),
//! `scale` (arguments and settings), `harness` (measuring and telling), `random` and `error`. Apart
//! from them are `history`, which holds what transactions were told against a serial order, `histories`, which
//! lets an independent checker search them for cycles, `torture`, and `simulate`, which replaces
//! all the others in builds with `--cfg braid_simulation`. What measures and tells, and what drives the engine, is public for `braid-peers`, which compares
//! Braid with other databases.

#[cfg(not(braid_simulation))]
pub mod bench;
#[cfg(not(braid_simulation))]
pub mod engine;
#[cfg(not(braid_simulation))]
pub mod error;
#[cfg(not(braid_simulation))]
pub mod harness;
#[cfg(not(braid_simulation))]
pub mod histories;
pub mod history;
#[cfg(all(test, not(braid_simulation)))]
#[path = "../../../crates/braiddb/tests/common/mod.rs"]
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
