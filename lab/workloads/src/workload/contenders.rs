//! The subjects of the transactional workloads: the engine durable and in memory, at both isolation
//! levels, with both certifiers, braided and sequential. Subjects that differ only in isolation
//! share a database.

use std::path::{Path, PathBuf};

use braiddb::{Certifier, Database, Durability, Isolation, RunOptions};
use clap::ValueEnum;

use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::scale::arguments::Settings;

/// A subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Durable and serializable.
    Serializable,
    /// Durable under snapshot isolation, on the same database.
    Snapshot,
    /// Durable and serializable, with one transaction at a time on each worker.
    Sequential,
    /// In memory and serializable.
    Memory,
    /// In memory under snapshot isolation.
    MemorySnapshot,
    /// In memory, certified by the serial safety net.
    MemorySafetyNet,
    /// In memory and serializable, with one transaction at a time on each worker.
    MemorySequential,
}

impl Contender {
    pub(crate) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// Returns the name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Serializable => "durable, serializable",
            Self::Snapshot => "durable, snapshot",
            Self::Sequential => "durable, sequential",
            Self::Memory => "in memory, serializable",
            Self::MemorySnapshot => "in memory, snapshot",
            Self::MemorySafetyNet => "in memory, serial safety net",
            Self::MemorySequential => "in memory, sequential",
        }
    }

    pub(crate) fn run_options(self) -> RunOptions {
        RunOptions::default().isolation(match self {
            Self::Snapshot | Self::MemorySnapshot => Isolation::Snapshot,
            _ => Isolation::Serializable,
        })
    }

    pub(crate) fn home(self) -> Home {
        match self {
            Self::Serializable | Self::Snapshot => Home::Durable,
            Self::Sequential => Home::DurableSequential,
            Self::Memory | Self::MemorySnapshot => Home::Memory,
            Self::MemorySafetyNet => Home::MemorySafetyNet,
            Self::MemorySequential => Home::MemorySequential,
        }
    }
}

/// A database, by the way it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Durable,
    DurableSequential,
    Memory,
    MemorySafetyNet,
    MemorySequential,
}

impl Home {
    /// Returns the databases that the contenders use, each once.
    pub(crate) fn all_of(contenders: &[Contender]) -> Vec<Self> {
        let mut homes = Vec::new();
        for home in contenders.iter().map(|contender| contender.home()) {
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    }

    /// Returns the options of the database and its location in `place`.
    pub(crate) fn site(self, settings: &Settings, place: &Place) -> Site {
        let braided = Opening::braided(settings);
        // The same number of workers, so that the comparison shows only the effect of interleaving.
        let sequential = Opening { workers: settings.workers, ..Opening::sequential(settings) };
        let (opening, directory) = match self {
            Self::Durable => (braided.durability(Durability::Group), Some("braided")),
            Self::DurableSequential => {
                (sequential.durability(Durability::Group), Some("sequential"))
            }
            Self::Memory => (braided, None),
            Self::MemorySafetyNet => (braided.certifier(Certifier::SerialSafetyNet), None),
            Self::MemorySequential => (sequential, None),
        };
        Site { opening, path: directory.map(|name| place.join(name)) }
    }
}

/// The options and the location of a database.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) opening: Opening,
    path: Option<PathBuf>,
}

impl Site {
    /// Opens the database, for the first time or again.
    pub(crate) fn open(&self) -> Result<Database, Error> {
        Ok(match &self.path {
            Some(path) => Database::open(path, self.opening.options())?,
            None => Database::in_memory(self.opening.options())?,
        })
    }

    /// Returns the path of a database on disk.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Closes a database after `check` succeeds. Reopens, checks and closes a database on disk again.
/// The argument of `check` names the moment of the check. The caller must drop all other handles of
/// the database: the directory stays locked while one exists.
pub(crate) fn check_and_close(
    site: &Site,
    database: Database,
    check: impl Fn(&Database, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    check(&database, "before closing")?;
    database.close()?;
    drop(database);
    if site.path().is_some() {
        let database = site.open()?;
        check(&database, "after opening again")?;
        database.close()?;
    }
    Ok(())
}

/// Adds the useful ratios of measured subjects. Returns: durable, serializable over snapshot
/// isolation; durable, braided over sequential; in memory, braided over sequential.
pub(crate) fn ratios(report: &mut Report) -> [Option<f64>; 3] {
    let mut ratio = |above: Contender, below: Contender| report.ratio(above.name(), below.name());
    let serializable = ratio(Contender::Serializable, Contender::Snapshot);
    let durable = ratio(Contender::Serializable, Contender::Sequential);
    ratio(Contender::Memory, Contender::MemorySnapshot);
    ratio(Contender::MemorySafetyNet, Contender::MemorySnapshot);
    ratio(Contender::MemorySafetyNet, Contender::Memory);
    let memory = ratio(Contender::Memory, Contender::MemorySequential);
    ratio(Contender::Serializable, Contender::Memory);
    [serializable, durable, memory]
}
