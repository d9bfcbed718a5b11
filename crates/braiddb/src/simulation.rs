//! The whole engine on a simulated disk with crashes and faults; a seed replays its run.
//!
//! ```
//! use braiddb::simulation::{CrashCounts, SimulatedDisk};
//! use braiddb::{Database, Error, Options, Table};
//! use std::sync::{Arc, Mutex};
//!
//! fn main() -> Result<(), Error> {
//!     let disk = SimulatedDisk::new(1);
//!     let crashed = Arc::new(Mutex::new(None));
//!     let found = crashed.clone();
//!     disk.watch(move |moment| {
//!         // The contents of the disk if the machine fails at this operation.
//!         *found.lock().unwrap() = Some(moment.crash(7, &mut CrashCounts::default()));
//!     });
//!     let db = Database::open_simulated(&disk, Options::default(), 1)?;
//!     let table: Table<u64, u64> = db.run_blocking(async |tx| tx.create_table("t").await)?;
//!     db.run_blocking(async move |tx| tx.put(&table, &1, &2).await)?;
//!
//!     let crashed = crashed.lock().unwrap().take().unwrap();
//!     let db = Database::open_simulated(&crashed, Options::default(), 1)?;
//!     let there = db.run_blocking(async |tx| {
//!         let table: Table<u64, u64> = tx.open_table("t").await?;
//!         tx.get(&table, &1).await
//!     })?;
//!     assert_eq!(there, Some(2));
//!     Ok(())
//! }
//! ```

#[cfg(braid_simulation)]
pub use crate::database::{MemoryProbe, block_on};
pub use crate::io::{CrashCounts, DiskMoment, FaultCounts, Faults, SimulatedDisk};
#[cfg(braid_simulation)]
pub use crate::planted::{Bug, plant};
#[cfg(all(braid_simulation, not(loom)))]
pub use crate::sync::controlled::{
    Client, Finding, FindingKind, Runner, ScheduleOptions, ScheduleReport, ScheduleResult,
    SwitchPoint, ThreadReport, TraceEntry, describe_by, found_wrong, give_way, pause,
    planned_panics, spawn, switch_threads,
};
