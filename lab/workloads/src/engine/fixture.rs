//! A bed: a database opened in one way with a table of records, kept while subjects run on it.

use braiddb::{Certifier, Database, Durability, Options, Policy, Table, Tuning, Width};

use super::load;
use crate::error::Error;
use crate::harness::progress::Progress;
use crate::harness::{number, process};
use crate::scale::arguments::Settings;

/// Bytes of a loaded record of 8 + 8 bytes, all in, used to see whether it fits beforehand.
pub(crate) const RECORD_BYTES: u64 = 95;

/// How a database under test is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) policy: Policy,
    pub(crate) width: Width,
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) durability: Durability,
    pub(crate) certifier: Certifier,
}

impl Opening {
    /// The engine as users have it, in memory, with the workers and the width of `settings`.
    pub(crate) fn braided(settings: &Settings) -> Self {
        Self {
            policy: Policy::DualQueue,
            width: settings.width.map_or(Width::Auto, Width::Fixed),
            workers: settings.workers,
            pin: settings.pin,
            durability: Durability::Volatile,
            certifier: Certifier::default(),
        }
    }

    /// One worker that runs one transaction after the other.
    pub(crate) fn sequential(settings: &Settings) -> Self {
        Self {
            policy: Policy::Sequential,
            width: Width::Fixed(1),
            workers: 1,
            pin: settings.pin,
            durability: Durability::Volatile,
            certifier: Certifier::default(),
        }
    }

    /// The same with another certifier.
    pub(crate) fn certifier(self, certifier: Certifier) -> Self {
        Self { certifier, ..self }
    }

    /// The same with another durability.
    pub(crate) fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// The engine's options for it.
    pub(crate) fn options(self) -> Options {
        let tuning = Tuning::default()
            .pin(self.pin)
            .policy(self.policy)
            .hot_width(self.width)
            .certifier(self.certifier);
        Options::default().workers(self.workers).durability(self.durability).tuning(tuning)
    }
}

/// A database with its table of records. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) database: Database,
    pub(crate) table: Table<u64, u64>,
    pub(crate) records: u64,
}

impl Bed {
    /// An in-memory database with `records` records loaded in key order.
    pub(crate) fn loaded(opening: Opening, records: u64) -> Result<Self, Error> {
        Self::fill(Database::in_memory(opening.options())?, records)
    }

    /// Loads `records` records into the table of an open database.
    pub(crate) fn fill(database: Database, records: u64) -> Result<Self, Error> {
        let bed = Self::empty(database, records)?;
        load::load(&bed)?;
        Ok(bed)
    }

    /// Makes the table in an open database; its `records` records are still to be loaded.
    pub(crate) fn empty(database: Database, records: u64) -> Result<Self, Error> {
        #[cfg(test)]
        crate::limit::working_on(&database);
        let table = pollster::block_on(database.open_or_create_table("records"))?;
        Ok(Self { database, table, records })
    }
}

/// In-memory beds of one size, kept from one workload to the next: loading 50 M records takes
/// longer than measuring them.
#[derive(Default)]
pub(crate) struct Beds {
    beds: Vec<(Opening, Bed)>,
}

impl Beds {
    /// The bed opened so, loaded now unless it is there. Beds of other sizes are closed first.
    pub(crate) fn get(
        &mut self,
        opening: Opening,
        records: u64,
        progress: &Progress,
    ) -> Result<Bed, Error> {
        self.beds.retain(|(_, bed)| bed.records == records);
        if let Some((_, bed)) = self.beds.iter().find(|(other, _)| *other == opening) {
            return Ok(bed.clone());
        }
        check_memory(records, records * RECORD_BYTES)?;
        progress.doing(format!("loading {} records", number::grouped(records)));
        let bed = Bed::loaded(opening, records)?;
        self.beds.push((opening, bed.clone()));
        Ok(bed)
    }

    /// Closes all beds.
    pub(crate) fn clear(&mut self) {
        self.beds.clear();
    }
}

/// Refuses what would not fit into memory, rather than let the system kill the program.
pub(crate) fn check_memory(records: u64, needed: u64) -> Result<(), Error> {
    match process::available_bytes() {
        Some(available) if needed > available => Err(Error::Memory {
            records,
            needed: number::bytes(needed),
            available: number::bytes(available),
        }),
        _ => Ok(()),
    }
}
