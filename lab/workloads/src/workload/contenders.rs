//! The subjects of the transactional workloads: the engine durable and in memory, under both isolation levels
//! and both certifiers, braided and sequential. Those that differ by isolation alone share a database.

use std::path::{Path, PathBuf};

use braiddb::{Certifier, Database, Durability, Isolation};
use clap::ValueEnum;

use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::scale::arguments::Settings;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Durable and serializable.
    Serializable,
    /// The same on the same database under snapshot isolation.
    Snapshot,
    /// One transaction after the other on each worker, durable and serializable.
    Sequential,
    /// As the first, without a disk.
    Memory,
    /// As the second, without a disk.
    MemorySnapshot,
    /// As the one without a disk, certified by the serial safety net.
    MemorySafetyNet,
    /// As the third, without a disk.
    MemorySequential,
}

impl Contender {
    pub(crate) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// As tables show it.
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

    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Snapshot | Self::MemorySnapshot => Isolation::Snapshot,
            _ => Isolation::Serializable,
        }
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

/// The databases, by how they are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Durable,
    DurableSequential,
    Memory,
    MemorySafetyNet,
    MemorySequential,
}

impl Home {
    /// Those that the contenders run on, each once.
    pub(crate) fn all_of(contenders: &[Contender]) -> Vec<Self> {
        let mut homes = Vec::new();
        for home in contenders.iter().map(|contender| contender.home()) {
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    }

    /// How it is opened, where in `place`.
    pub(crate) fn site(self, settings: &Settings, place: &Place) -> Site {
        let braided = Opening::braided(settings);
        // As many workers, so that what is compared is how they work.
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

/// How and where a database is opened.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) opening: Opening,
    path: Option<PathBuf>,
}

impl Site {
    /// Opens it, for the first time or again.
    pub(crate) fn open(&self) -> Result<Database, Error> {
        Ok(match &self.path {
            Some(path) => Database::open(path, self.opening.options())?,
            None => Database::in_memory(self.opening.options())?,
        })
    }

    /// Where it can be opened again, if it is on disk.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Closes a database after `check` found nothing wrong there. One on disk is opened anew, checked and closed again.
/// `check` is told when it looks. No other handle of the database may be left, as the directory stays locked for as
/// long as one lives.
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

/// The ratios that say something, those that both were measured for. Returned are: durable, serializable over
/// snapshot isolation; durable, braided over sequential; in memory, braided over sequential.
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
