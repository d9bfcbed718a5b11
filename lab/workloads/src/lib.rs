//! Workloads, crash campaigns and simulations of Braid: the library behind `braid-lab`.
//!
//! Layers, each importing only those below it:
//!
//! - `bench`: the command.
//! - `workload`: one file for each workload.
//! - `engine`: databases under test and the code that drives them; and `reference`: bare baselines.
//! - `scale`: arguments and settings.
//! - `harness`: measurement and reports.
//! - `random`, `error` and `bounds`.
//!
//! Other modules: `history` checks answers of transactions against a serial order. `histories`
//! records histories for an independent checker of cycles. `torture` kills processes. `simulate`
//! replaces all other modules in builds with `--cfg braid_simulation`. The modules that measure,
//! report and drive the engine are public for `braid-peers`, which compares Braid with other
//! databases.

#[cfg(not(braid_simulation))]
pub mod bench;
pub mod bounds;
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
