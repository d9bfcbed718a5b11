//! `reopen`: the time to open a database, from a checkpoint and by log replay, up to the first
//! answer of a transaction.

use std::path::{Path, PathBuf};
use std::time::Instant;

use braiddb::{Database, Durability, Options, TableOptions};
use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, Updates};
use super::stage::Stage;
use crate::engine::drive::drive;
use crate::engine::fixture::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::PlaceArguments;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

const CHECKPOINT: &str = "from a checkpoint";
const LOG: &str = "replaying the log";
const PAGED: &str = "replaying updates of a paged table, 4 times the memory";
/// The size of the paged table as a multiple of the memory for its pages.
const TIMES: u64 = 4;
/// Memory for other purposes than pages: mostly the log's ring.
const OTHER_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) struct ReopenDefaults;

impl Defaults for ReopenDefaults {
    const RECORDS: u64 = 50_000_000;
    const QUICK_RECORDS: u64 = 5_000;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench reopen`. A round opens each database once.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReopenArguments {
    #[command(flatten)]
    scale: Scale<ReopenDefaults>,

    #[command(flatten)]
    place: PlaceArguments,

    /// Measure only a paged table four times as large as its memory. Each of its records was
    /// updated once since the checkpoint, in random order.
    #[arg(long)]
    paged: bool,
}

impl ReopenArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        let (settings, place) = (self.scale.settings(), self.place.make()?);
        // The two databases are never open at the same time.
        check_memory(settings.records, settings.records * RECORD_BYTES)?;
        let settings = Settings { effort: Effort::Transactions(settings.records), ..settings };
        let names: &[&'static str] = if self.paged { &[PAGED] } else { &[CHECKPOINT, LOG] };
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        let mut log_bytes = 0;
        for (number, name) in names.iter().enumerate() {
            stage.progress.doing(format!("loading: {name}"));
            let closed = Closed::load(name, &place.join(&number.to_string()), &settings)?;
            log_bytes += closed.log_bytes;
            subjects.push(Box::new(closed));
        }
        let what = "records of 8 + 8 bytes in a database that is opened, up to the first answer";
        let mut report = stage.measure("reopen", what, &settings, subjects)?;
        report.unit = "records";
        report.notes.push(place.describe());
        let cores = crate::scale::arguments::cores() as f64;
        for &name in names {
            let Some(rate) = report.subject(name).map(|subject| subject.rate.median) else {
                continue;
            };
            let seconds = settings.records as f64 / rate;
            report.fact(format!("first answer, {name}"), seconds, format!("{seconds:.2} s"));
            let (what, rate) = match name {
                CHECKPOINT => ("records a second from a checkpoint", rate),
                _ => ("records replayed a second and core", rate / cores),
            };
            report.fact(what, rate, number::scaled(rate));
            if name == PAGED {
                report.fact("log that is replayed", log_bytes as f64, number::bytes(log_bytes));
                let whole = seconds * (1 << 30) as f64 / log_bytes as f64;
                let judged = !settings.quick && log_bytes >= 1 << 29;
                report.bar("replay of 1 GiB of it", bars::PAGED_REPLAY, Some(whole), judged);
            }
        }
        report.fact("records", settings.records as f64, number::grouped(settings.records));
        Ok(report)
    }
}

/// A closed database.
struct Closed {
    name: &'static str,
    directory: PathBuf,
    options: Options,
    records: u64,
    /// Bytes of log to replay.
    log_bytes: u64,
}

impl Closed {
    fn load(name: &'static str, directory: &Path, settings: &Settings) -> Result<Self, Error> {
        let opening = Opening::braided(settings).durability(Durability::Relaxed);
        let options = opening.options().tune(|tuning| tuning.checkpoint_bytes(u64::MAX));
        let database = Database::open(directory, options.clone())?;
        if name == PAGED {
            let paged = TableOptions::default().paged();
            pollster::block_on(database.create_table_with::<u64, u64>("records", paged))?;
        }
        let bed = Bed::fill(database, settings.records)?;
        if name != LOG {
            pollster::block_on(bed.database.checkpoint())?;
        }
        let mut closed = Self {
            name,
            directory: directory.to_owned(),
            options,
            records: settings.records,
            log_bytes: 0,
        };
        if name == PAGED {
            closed.update(&bed, settings)?;
        }
        bed.database.close()?;
        Ok(closed)
    }

    /// Updates once per record on average; the open replays the updates with less memory.
    fn update(&mut self, bed: &Bed, settings: &Settings) -> Result<(), Error> {
        let make = |worker| Updates::<OPERATIONS>(Points::on(bed, settings.seed + worker as u64));
        let effort = Effort::Transactions(self.records / OPERATIONS as u64);
        let before = bed.database.stats().lsn.tail;
        drive(&bed.database, settings.workers, make, effort, 16)?;
        let stats = bed.database.stats();
        self.log_bytes = stats.lsn.tail - before;
        let budget = stats.memory.pages / TIMES + OTHER_BYTES;
        self.options = self.options.clone().memory_budget(Some(budget));
        Ok(())
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
        let may_be_updated = self.log_bytes > 0 && found == Some(!last);
        if found != Some(self.records - 1) && !may_be_updated {
            return Err(Error::Wrong(format!("the last record is {found:?} after reopening")));
        }
        database.close()?;
        let (transactions, latencies) = (self.records, Latencies::one_in(1));
        Ok(Sample::plain(transactions, elapsed, latencies))
    }
}
