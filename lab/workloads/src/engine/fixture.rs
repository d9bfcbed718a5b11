//! A bed: a database with a table of records, opened with certain options and kept while subjects
//! run on it.

use braiddb::{Certifier, Database, Durability, Options, Policy, Table, Tuning, Width};

use super::load;
use crate::error::Error;
use crate::harness::progress::Progress;
use crate::harness::{number, process};
use crate::scale::arguments::Settings;

/// Bytes of a loaded record of 8 + 8 bytes, in total; used to check the memory before loading.
pub(crate) const RECORD_BYTES: u64 = 95;

/// The options of a database under test.
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
    /// Returns the default options of the engine, in memory, with the workers and the width of
    /// `settings`.
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

    /// Returns options with one worker that runs one transaction at a time.
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

    /// Returns the same options with another certifier.
    pub(crate) fn certifier(self, certifier: Certifier) -> Self {
        Self { certifier, ..self }
    }

    /// Returns the same options with another durability.
    pub(crate) fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Returns the engine's options.
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
    /// Loads `records` records in key order into a new in-memory database.
    pub(crate) fn loaded(opening: Opening, records: u64) -> Result<Self, Error> {
        Self::fill(Database::in_memory(opening.options())?, records)
    }

    /// Loads `records` records into the table of an open database.
    pub(crate) fn fill(database: Database, records: u64) -> Result<Self, Error> {
        let bed = Self::empty(database, records)?;
        load::load(&bed)?;
        Ok(bed)
    }

    /// Creates the table in an open database; its `records` records are not loaded yet.
    pub(crate) fn empty(database: Database, records: u64) -> Result<Self, Error> {
        #[cfg(test)]
        crate::limit::working_on(&database);
        let table = pollster::block_on(database.open_or_create_table("records"))?;
        Ok(Self { database, table, records })
    }
}

/// In-memory databases of one size, kept from one workload to the next: loading 50 M records takes
/// longer than measuring them.
#[derive(Default)]
pub(crate) struct Beds {
    beds: Vec<(Opening, Bed)>,
}

impl Beds {
    /// Returns the database with these options, and loads it if it does not exist. Closes databases
    /// of other sizes first.
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

    /// Closes all databases.
    pub(crate) fn clear(&mut self) {
        self.beds.clear();
    }
}

/// Fails if the records would not fit into memory, before the system kills the program.
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
