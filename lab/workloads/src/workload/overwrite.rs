//! `overwrite`: overwrites a data set repeatedly. The size of the log must depend on the live data,
//! not on the amount written, and freeing the rest must be cheap.

use std::time::Instant;

use braiddb::{Database, Durability, Table, Transaction};
use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

const COMPACTING: &str = "compacting";
const KEEPING: &str = "keeping everything";
const VALUE_BYTES: usize = 1000;
/// The size of a record without its value: headers of record and block, and the key.
const OVERHEAD_BYTES: u64 = 64;
/// No record is written twice within this number of writes; coprime to any number of records that
/// people choose.
const STRIDE: u64 = 7_368_787;

#[derive(Clone, Debug)]
pub(crate) struct OverwriteDefaults;

impl Defaults for OverwriteDefaults {
    const RECORDS: u64 = 1_000_000;
    const QUICK_RECORDS: u64 = 500;
    const ROUNDS: usize = 20;
}

/// Arguments of `braid-lab bench overwrite`. A round writes each of the --records once.
#[derive(Args, Clone, Debug)]
pub(crate) struct OverwriteArguments {
    #[command(flatten)]
    scale: Scale<OverwriteDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl OverwriteArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        let place = self.place.make()?;
        measure(stage, &self.scale.settings(), &place)
    }
}

/// A database whose records are overwritten.
struct Overwriter {
    name: &'static str,
    database: Database,
    table: Table<u64, [u8]>,
    records: u64,
    seed: u64,
}

impl Overwriter {
    fn open(
        name: &'static str,
        place: &Place,
        settings: &Settings,
        checkpoint_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let opening = Opening { workers: 1, ..Opening::braided(settings) };
        let mut options = opening.durability(Durability::Group).options();
        if let Some(bytes) = checkpoint_bytes {
            options = options.tune(|tuning| tuning.checkpoint_bytes(bytes));
        }
        let database = Database::open(place.join(name), options)?;
        let table = pollster::block_on(database.open_or_create_table("records"))?;
        let (records, seed) = (settings.records, settings.seed);
        Ok(Self { name, database, table, records, seed })
    }

    fn overwrite(&mut self) -> Result<(), Error> {
        let (table, records) = (self.table.clone(), self.records);
        self.seed = self.seed.wrapping_add(1);
        let fill = self.seed as u8;
        let body = async move |tx: &Transaction, number: &u64| {
            let key = key_of(number.wrapping_mul(STRIDE) % records);
            tx.put(&table, &key, &[fill; VALUE_BYTES]).await
        };
        self.database.run_source(0, 0..records, body)?.wait()?;
        Ok(())
    }
}

impl Subject for Overwriter {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, _effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        self.overwrite()?;
        let (transactions, elapsed) = (self.records, begin.elapsed());
        Ok(Sample::plain(transactions, elapsed, Latencies::one_in(1)))
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    let settings = Settings { effort: Effort::Transactions(settings.records), ..settings.clone() };
    let compacting = Overwriter::open(COMPACTING, place, &settings, None)?;
    let keeping = Overwriter::open(KEEPING, place, &settings, Some(u64::MAX))?;
    let databases = [compacting.database.clone(), keeping.database.clone()];
    let subjects: Vec<Box<dyn Subject>> = vec![Box::new(compacting), Box::new(keeping)];
    let what = "overwrites of every record, one a transaction, 1 000 bytes each";
    let mut report = stage.measure("overwrite", what, &settings, subjects)?;
    report.notes.push(place.describe());
    let rate = report.ratio(COMPACTING, KEEPING);
    let live = settings.records * (VALUE_BYTES as u64 + OVERHEAD_BYTES);
    let [compacting, keeping] = databases.map(|database| database.stats().log);
    let times = compacting.disk_bytes as f64 / live as f64;
    report.fact("alive", live as f64, number::bytes(live));
    for (name, log) in [(COMPACTING, compacting), (KEEPING, keeping)] {
        let bytes = log.disk_bytes;
        report.fact(format!("log on disk, {name}"), bytes as f64, number::bytes(bytes));
    }
    let freed = compacting.segments_freed;
    report.fact("segments freed", freed as f64, number::grouped(freed));
    let judged = settings.records == OverwriteDefaults::RECORDS && !settings.quick;
    report.bar("disk over what is alive", bars::DISK_OVER_LIVE, Some(times), judged);
    report.bar("rate over that without compaction", bars::COMPACTING_RATE, rate, judged);
    Ok(report)
}
