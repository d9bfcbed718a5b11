//! `airports`: an end-to-end workload on real data. Imports the world's airports and flies between
//! them in concurrent transactions: durable and in memory, braided and sequential. A run with one
//! worker shows the gain of interleaving alone. At the end no flight may be missing, also after the
//! database is closed and reopened.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use braiddb::{Database, Durability};
use clap::Args;

use super::bars;
use super::flights::{self, Airport, Tables};
use super::stage::Stage;
use crate::engine::drive::Driven;
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings};

const FILE: &str = "examples/data/airports.csv";

#[derive(Clone, Debug)]
pub(crate) struct AirportsDefaults;

impl Defaults for AirportsDefaults {
    /// More than the file contains, so that all are imported.
    const RECORDS: u64 = 1_000_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 1.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench airports`. --records limits the airports imported.
#[derive(Args, Clone, Debug)]
pub(crate) struct AirportsArguments {
    #[command(flatten)]
    scale: Scale<AirportsDefaults>,

    /// The CSV file of airports [default: examples/data/airports.csv].
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Keep the durable databases in this new or empty directory [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl AirportsArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        let default = Path::new(FILE);
        let file = match &self.file {
            Some(file) => file.clone(),
            None if default.exists() => default.to_owned(),
            None => source_tree_file(),
        };
        let mut airports = flights::read(&file)?;
        let settings = self.scale.settings();
        airports.truncate(usize::try_from(settings.records).unwrap_or(usize::MAX).max(2));
        let settings = Settings { records: airports.len() as u64, ..settings };
        measure(stage, &settings, &airports, &Place::kept(self.dir.as_deref())?)
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, place: &Place) -> Result<Report, Error> {
    let mut airports = flights::read(&source_tree_file())?;
    let settings = Settings::defaults::<AirportsDefaults>(quick);
    airports.truncate(usize::try_from(settings.records).unwrap_or(usize::MAX));
    let settings = Settings { records: airports.len() as u64, ..settings };
    let mut report = measure(stage, &settings, &airports, place)?;
    let over = report.over("durable, braided", "durable, sequential");
    report.bar("durable: braided over sequential", bars::AIRPORTS, over, !quick);
    Ok(report)
}

/// Returns the path of the file in the source tree that this program was built from.
pub(crate) fn source_tree_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FILE)
}

/// One of the databases.
struct Airfield {
    name: &'static str,
    opening: Opening,
    path: Option<PathBuf>,
    database: Database,
    tables: Tables,
    /// Committed flights of all rounds so far.
    flown: Rc<Cell<u64>>,
}

impl Airfield {
    fn open(
        name: &'static str,
        opening: Opening,
        path: Option<PathBuf>,
        airports: &[Airport],
    ) -> Result<Self, Error> {
        let database = match &path {
            Some(path) => Database::open(path, opening.options())?,
            None => Database::in_memory(opening.options())?,
        };
        let tables = Tables::open(&database, airports)?;
        Ok(Self { name, opening, path, database, tables, flown: Rc::default() })
    }

    fn subject(&self, seed: u64) -> Box<dyn Subject> {
        let tables = self.tables.clone();
        let make = move |seed| tables.flights(seed);
        let driven = Driven::new(self.name, &self.database, self.opening.workers, seed, make);
        Box::new(Counted { inner: driven.time_one_in(4), flown: self.flown.clone() })
    }
}

/// A subject that counts committed transactions over all rounds, including warm-up.
struct Counted<S> {
    inner: S,
    flown: Rc<Cell<u64>>,
}

impl<S: Subject> Subject for Counted<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let sample = self.inner.round(effort)?;
        self.flown.set(self.flown.get() + sample.transactions);
        Ok(sample)
    }
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    airports: &[Airport],
    place: &Place,
) -> Result<Report, Error> {
    stage.beds.clear();
    let braided = Opening::braided(settings);
    let sequential = Opening::sequential(settings);
    let group = |opening: Opening| opening.durability(Durability::Group);
    let openings = [
        ("durable, braided", group(braided), Some(place.join("braided"))),
        ("durable, sequential", group(sequential), Some(place.join("sequential"))),
        ("in memory, braided", braided, None),
        ("in memory, braided, 1 worker", Opening { workers: 1, ..braided }, None),
        ("in memory, sequential", sequential, None),
    ];
    stage.progress.doing(format!("importing {} airports", airports.len()));
    let mut airfields = Vec::new();
    let mut import_rate = 0.0;
    for (name, opening, path) in openings {
        let airfield = Airfield::open(name, opening, path, airports)?;
        let begin = Instant::now();
        airfield.tables.import(&airfield.database, airports)?;
        if airfields.is_empty() {
            import_rate = airports.len() as f64 / begin.elapsed().as_secs_f64();
        }
        airfields.push(airfield);
    }
    let seeds = settings.seed..;
    let subjects = airfields.iter().zip(seeds).map(|(airfield, seed)| airfield.subject(seed));
    let what = format!(
        "flights between {} airports; each reads two records and changes two others",
        number::grouped(airports.len() as u64)
    );
    let subjects = subjects.collect();
    let mut report = stage.measure("airports", what, settings, subjects)?;
    report.unit = "flights";
    report.ratio("durable, braided", "durable, sequential");
    report.ratio("in memory, braided", "in memory, sequential");
    report.ratio("in memory, braided, 1 worker", "in memory, sequential");
    let text = format!("{} airports/s, durable", number::scaled(import_rate));
    report.fact("import", import_rate, text);
    let flown = account(airfields, airports)?;
    let text = format!(
        "all {} committed flights are there, those of the durable databases after reopening too",
        number::grouped(flown)
    );
    report.fact("check", flown as f64, text);
    report.notes.push(place.describe());
    report.notes.push(format!(
        "braided uses {} workers unless another number is given, sequential 1",
        braided.workers
    ));
    Ok(report)
}

/// Checks the traffic of every database, and again after reopening the durable ones. Returns the
/// number of flights of all.
fn account(airfields: Vec<Airfield>, airports: &[Airport]) -> Result<u64, Error> {
    let mut all = 0;
    for airfield in airfields {
        let Airfield { opening, path, database, tables, flown, .. } = airfield;
        let flown = flown.get();
        tables.total(&database)?.check(flown, "before closing")?;
        database.close()?;
        // The directory stays locked as long as a handle exists.
        drop((tables, database));
        if let Some(path) = path {
            let database = Database::open(path, opening.options())?;
            let tables = Tables::open(&database, airports)?;
            tables.total(&database)?.check(flown, "after opening again")?;
            database.close()?;
        }
        all += flown;
    }
    Ok(all)
}
