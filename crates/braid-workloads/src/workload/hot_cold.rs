//! `hot-cold`: transactions of which some need storage (MosaicDB §6.2), under all four schedulers.
//!
//! Ten reads of hot records; or, for the share of transactions that are storage-bound, eight and
//! two of cold ones, which are read from disk every time.

use braiddb::{
    Database, Durability, Error as BraidError, Policy, Table, TableOptions, Transaction, Width,
};
use clap::Args;

use super::bars;
use crate::engine::bed::{Bed, Opening};
use crate::engine::drive::{Driven, Procedure};
use crate::error::Error;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::Subject;
use crate::random::{Uniform, key_of};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::stage::Stage;

/// Reads of a transaction, and how many of them are cold in one that is storage-bound.
const READS: usize = 10;
const COLD_READS: usize = 2;
/// Hot records for each cold one.
const HOT_PER_COLD: u64 = 100;
const COLD_VALUE_BYTES: usize = 1000;
/// Percent of transactions that are storage-bound.
const SHARES: [u32; 4] = [0, 10, 20, 50];
/// The share that bars are set for.
const JUDGED_SHARE: u32 = 10;
const POLICIES: [(&str, Policy); 4] = [
    ("dual-queue", Policy::DualQueue),
    ("batch", Policy::Batch),
    ("pipeline", Policy::Pipeline),
    ("sequential", Policy::Sequential),
];

#[derive(Clone, Debug)]
pub(crate) struct HotColdDefaults;

impl Defaults for HotColdDefaults {
    const RECORDS: u64 = 20_000_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid bench hot-cold`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HotColdArguments {
    #[command(flatten)]
    scale: Scale<HotColdDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl HotColdArguments {
    /// Runs it.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings(), &self.place.make()?)
    }
}

/// A database with hot records in memory and cold ones on disk.
#[derive(Clone)]
struct HotCold {
    hot: Bed,
    cold: Table<u64, [u8]>,
    cold_records: u64,
}

impl HotCold {
    fn build(place: &Place, name: &str, opening: Opening, records: u64) -> Result<Self, Error> {
        let (directory, options) = (place.join(name), opening.options());
        let cold_records = (records / HOT_PER_COLD).max(100);
        let loading = options.clone().policy(Policy::DualQueue).hot_width(Width::Auto);
        let database = Database::open(&directory, loading)?;
        let table = pollster::block_on(database.run(async |tx: &Transaction| {
            let uncached = TableOptions::default().cache_cold(false);
            tx.create_table_with::<u64, [u8]>("cold", uncached).await
        }))?;
        let load = database.run_source(0, 0..cold_records, async move |tx, record: &u64| {
            tx.insert(&table, &key_of(*record), &[*record as u8; COLD_VALUE_BYTES]).await
        });
        load?.wait()?;
        pollster::block_on(database.checkpoint())?;
        database.close()?;
        drop(database);
        // Opened again, the records are on disk only.
        let database = Database::open(&directory, options)?;
        let cold = pollster::block_on(database.open_table("cold"))?;
        Ok(Self { hot: Bed::fill(database, records)?, cold, cold_records })
    }
}

/// The transactions.
#[derive(Clone)]
struct Mixed {
    bed: HotCold,
    hot: Uniform,
    cold: Uniform,
    share: Uniform,
    percent: u32,
}

impl Mixed {
    fn on(bed: &HotCold, percent: u32, seed: u64) -> Self {
        Self {
            bed: bed.clone(),
            hot: Uniform::below(bed.hot.records, seed),
            cold: Uniform::below(bed.cold_records, !seed),
            share: Uniform::below(100, seed ^ 0x5EED),
            percent,
        }
    }
}

/// Keys of the hot reads; and of the cold ones, which stand for the first hot ones.
type Keys = ([u64; READS], Option<[u64; COLD_READS]>);

impl Procedure for Mixed {
    type Input = Keys;

    #[inline]
    fn draw(&mut self) -> Keys {
        let bound = self.share.record() < u64::from(self.percent);
        (self.hot.keys(), bound.then(|| self.cold.keys()))
    }

    #[inline]
    async fn run(&self, tx: &Transaction, (hot, cold): &Keys) -> Result<(), BraidError> {
        let mut skipped = 0;
        if let Some(cold) = cold {
            for key in cold {
                let value = tx.get(&self.bed.cold, key).await?.ok_or(BraidError::KeyNotFound)?;
                std::hint::black_box(value);
            }
            skipped = COLD_READS;
        }
        for key in &hot[skipped..] {
            let value = tx.get(&self.bed.hot.table, key).await?.ok_or(BraidError::KeyNotFound)?;
            std::hint::black_box(value);
        }
        Ok(())
    }
}

fn compare(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    stage.beds.clear();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for (name, policy) in POLICIES {
        stage.progress.doing(format!("loading: {name}"));
        let opening = match policy {
            Policy::Sequential => Opening::sequential(settings),
            Policy::DualQueue => Opening { workers: 1, ..Opening::braided(settings) },
            _ => {
                let width = Width::Fixed(settings.width.unwrap_or(24));
                Opening { policy, width, workers: 1, ..Opening::braided(settings) }
            }
        };
        let opening = opening.durability(Durability::Relaxed);
        let bed = HotCold::build(place, name, opening, settings.records)?;
        for percent in SHARES {
            let (database, bed) = (bed.hot.database.clone(), bed.clone());
            let make = move |seed| Mixed::on(&bed, percent, seed);
            let seed = settings.seed + u64::from(percent);
            let driven = Driven::new(&subject(name, percent), &database, 1, seed, make);
            subjects.push(Box::new(driven));
        }
    }
    let what = "transactions of 10 reads; of a share of them, 2 are of records on disk; 1 worker";
    let mut report = stage.measure("hot-cold", what, settings, subjects)?;
    report.notes.push(place.describe());
    judge(&mut report, settings);
    Ok(report)
}

fn subject(policy: &str, percent: u32) -> String {
    format!("{policy}, {percent} % cold")
}

fn judge(report: &mut Report, settings: &Settings) {
    let judged = settings.records == HotColdDefaults::RECORDS && !settings.quick;
    let dual = subject("dual-queue", JUDGED_SHARE);
    let over = report.ratio(&dual, &subject("sequential", JUDGED_SHARE));
    report.bar("dual-queue over sequential, 10 % cold", bars::DUAL_OVER_SEQUENTIAL, over, judged);
    let rate = report.subject(&dual).map(|subject| subject.rate.median);
    let limit = bars::rate(bars::HOT_COLD_OVER_MOSAICDB * bars::MOSAICDB_HOT_COLD);
    report.bar("twice MosaicDB, 10 % cold", limit, rate, judged);
    for percent in SHARES {
        let rate = report.subject(&subject("dual-queue", percent)).map(|s| s.rate.median);
        let reads = rate.unwrap_or(0.0) * f64::from(percent) / 100.0 * COLD_READS as f64;
        report.fact(format!("disk reads a second, {percent} % cold"), reads, format!("{reads:.0}"));
    }
    let lines = POLICIES.map(|(name, _)| Line {
        name: name.to_owned(),
        points: SHARES
            .iter()
            .filter_map(|percent| {
                let rate = report.subject(&subject(name, *percent))?.rate.median;
                Some((f64::from(*percent), rate))
            })
            .collect(),
    });
    report.lines.push(LineChart {
        name: "hot-cold".to_owned(),
        title: "Transactions a second by share of storage-bound ones".to_owned(),
        x: "percent storage-bound".to_owned(),
        y: "transactions/s".to_owned(),
        lines: lines.into(),
    });
}
