//! `reopen`: how long a database takes to open, from a checkpoint and by replaying its log, up to
//! the first answer of a transaction.

use std::path::{Path, PathBuf};
use std::time::Instant;

use braiddb::{Database, Durability, Options};
use clap::Args;

use super::stage::Stage;
use crate::engine::bed::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

const CHECKPOINT: &str = "from a checkpoint";
const LOG: &str = "replaying the log";

#[derive(Clone, Debug)]
pub(crate) struct ReopenDefaults;

impl Defaults for ReopenDefaults {
    const RECORDS: u64 = 50_000_000;
    const QUICK_RECORDS: u64 = 5_000;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid bench reopen`. A round opens each database once.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReopenArguments {
    #[command(flatten)]
    scale: Scale<ReopenDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl ReopenArguments {
    /// Runs it.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

/// A database that is closed.
struct Closed {
    name: &'static str,
    directory: PathBuf,
    options: Options,
    records: u64,
}

impl Closed {
    fn load(name: &'static str, directory: &Path, settings: &Settings) -> Result<Self, Error> {
        let opening = Opening::braided(settings).durability(Durability::Relaxed);
        let options = opening.options().checkpoint_bytes(u64::MAX);
        let bed = Bed::fill(Database::open(directory, options.clone())?, settings.records)?;
        if name == CHECKPOINT {
            pollster::block_on(bed.database.checkpoint())?;
        }
        bed.database.close()?;
        Ok(Self { name, directory: directory.to_owned(), options, records: settings.records })
    }
}

impl Subject for Closed {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, _effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        let database = Database::open(&self.directory, self.options.clone())?;
        let table = pollster::block_on(database.open_table::<u64, u64>("records"))?;
        let last = key_of(self.records - 1);
        let found = database.run_blocking(async move |tx| tx.get(&table, &last).await)?;
        let elapsed = begin.elapsed();
        if found != Some(self.records - 1) {
            return Err(Error::Wrong(format!("the last record is {found:?} after reopening")));
        }
        database.close()?;
        let (transactions, latencies) = (self.records, Latencies::one_in(1));
        Ok(Sample::plain(transactions, elapsed, latencies))
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    // The two databases are never open at once.
    check_memory(settings.records, settings.records * RECORD_BYTES)?;
    let settings = Settings { effort: Effort::Transactions(settings.records), ..settings.clone() };
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for (number, name) in [CHECKPOINT, LOG].into_iter().enumerate() {
        stage.progress.doing(format!("loading: {name}"));
        subjects.push(Box::new(Closed::load(name, &place.join(&number.to_string()), &settings)?));
    }
    let what = "records of 8 + 8 bytes in a database that is opened, up to the first answer";
    let mut report = stage.measure("reopen", what, &settings, subjects)?;
    report.unit = "records";
    report.notes.push(place.describe());
    let cores = crate::scale::arguments::cores() as f64;
    for name in [CHECKPOINT, LOG] {
        let Some(rate) = report.subject(name).map(|subject| subject.rate.median) else { continue };
        let seconds = settings.records as f64 / rate;
        report.fact(format!("first answer, {name}"), seconds, format!("{seconds:.2} s"));
        let (what, rate) = match name {
            CHECKPOINT => ("records a second from a checkpoint", rate),
            _ => ("records replayed a second and core", rate / cores),
        };
        report.fact(what, rate, number::scaled(rate));
    }
    report.fact("records", settings.records as f64, number::grouped(settings.records));
    Ok(report)
}
