//! Braid: an embedded, multi-version transactional storage engine that hides every wait.
//!
//! Layers, each importing only those below it: `database` and `table`, `durability`, `transaction`,
//! `record`, `index`, `version`, `reclaim`, `log`, `sched`, `io`, then `memory` and `sync`.

mod durability;
mod index;
mod io;
mod log;
mod memory;
mod reclaim;
mod record;
mod sched;
mod sync;
mod transaction;
mod version;
