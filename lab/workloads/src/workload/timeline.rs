//! `timeline`: minutes of reads and updates over data four times as large as the memory budget.
//! Records transactions, disk reads and writes, and memory second by second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braiddb::{Database, Durability, Table, TableOptions, Transaction};
use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::drive::{Procedure, drive};
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::PlaceArguments;
use crate::harness::report::{Line, LineChart, Report, Setting};
use crate::harness::rounds::repeat;
use crate::harness::spread::Spread;
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::missing_record;

const VALUE_BYTES: usize = 1000;
/// The size of a record without its value: headers and the key.
const OVERHEAD_BYTES: u64 = 64;
/// The data size as a multiple of its memory.
const TIMES_MEMORY: u64 = 4;
/// The log's ring, which the budget includes.
const RING_BYTES: u64 = 64 << 20;
/// Four fifths of accesses go to one fifth of the records.
const HOT_PERCENT: u64 = 80;
const HOT_SHARE: u64 = 5;
/// The number of records in a loading transaction.
const BATCH: u64 = 100;
const LOOK: Duration = Duration::from_secs(1);
/// The number of samples in one window of the rate's steadiness.
const WINDOW: usize = 10;

#[derive(Clone, Debug)]
pub(crate) struct TimelineDefaults;

impl Defaults for TimelineDefaults {
    const RECORDS: u64 = 4_000_000;
    const QUICK_RECORDS: u64 = 20_000;
    const SECONDS: f64 = 600.0;
    const ROUNDS: usize = 1;
}

/// Arguments of `braid-lab bench timeline`. One round of --seconds is run.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimelineArguments {
    #[command(flatten)]
    scale: Scale<TimelineDefaults>,

    #[command(flatten)]
    place: PlaceArguments,

    /// Use a paged table.
    #[arg(long)]
    paged: bool,
}

impl TimelineArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        let (settings, place) = (self.scale.settings(), self.place.make()?);
        let Settings { records, effort, workers, .. } = settings;
        let data = records * (VALUE_BYTES as u64 + OVERHEAD_BYTES);
        let budget = data / TIMES_MEMORY + RING_BYTES;
        let options = Opening::braided(&settings).durability(Durability::Group).options();
        let options = options
            .memory_budget(Some(budget))
            .tune(|tuning| tuning.log_ring_bytes(RING_BYTES as usize));
        let database = Database::open(place.join("timeline"), options)?;
        stage.progress.doing("loading");
        let table = load(&database, records, self.paged)?;
        let over = AtomicBool::new(false);
        let make = |worker| Mixed {
            table: table.clone(),
            random: fastrand::Rng::with_seed(settings.seed + worker as u64),
            records,
        };
        let run = || drive(&database, workers, make, effort, 16);
        let (measured, looks) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(&database, &over, LOOK));
            let measured = repeat("reads and updates", 1, &stage.progress, run);
            // Release pairs with the watcher's Acquire.
            over.store(true, Ordering::Release);
            (measured, watcher.join().expect("the watcher does not panic"))
        });
        let what = "transactions of one read or one update, of records of 1 000 bytes, four times as \
                    many as the memory holds";
        let what = if self.paged { format!("{what}, in a paged table") } else { what.to_owned() };
        let mut report = Report::new("timeline", what);
        report.setting = Some(Setting { records, effort, rounds: 1 });
        report.measured.push(measured?);
        report.notes.push(place.describe());
        report.fact("data", data as f64, number::bytes(data));
        report.fact("memory budget", budget as f64, number::bytes(budget));
        let disk = database.stats().log.disk_bytes;
        report.fact("log on disk at the end", disk as f64, number::bytes(disk));
        let judged = !settings.quick && records >= TimelineDefaults::RECORDS;
        add_figures(&mut report, &looks, budget, judged);
        if self.paged {
            let most = looks.iter().map(Look::versions).max().unwrap_or(0);
            let what = "memory for versions, at most";
            report.bar(what, bars::PAGED_VERSIONS, Some(most as f64), judged);
        }
        database.close()?;
        Ok(report)
    }
}

/// Half reads, half updates (YCSB's workload A, with a simpler skew).
#[derive(Clone)]
struct Mixed {
    table: Table<u64, [u8]>,
    random: fastrand::Rng,
    records: u64,
}

impl Procedure for Mixed {
    /// A key, and the new value if the operation is a write.
    type Input = (u64, Option<u8>);

    fn draw(&mut self) -> Self::Input {
        let hot = self.random.u64(0..100) < HOT_PERCENT;
        // Hot records are spread over the whole table.
        let record = match hot {
            true => self.random.u64(0..self.records.div_ceil(HOT_SHARE)) * HOT_SHARE,
            false => self.random.u64(0..self.records),
        };
        (key_of(record), self.random.bool().then(|| self.random.u8(..)))
    }

    async fn run(&self, tx: &Transaction, input: &Self::Input) -> Result<(), braiddb::Error> {
        match input {
            (key, Some(fill)) => tx.put(&self.table, key, &[*fill; VALUE_BYTES]).await,
            (key, None) => {
                let value = tx.get(&self.table, key).await?.ok_or_else(missing_record)?;
                std::hint::black_box(value);
                Ok(())
            }
        }
    }
}

/// Counters at one moment, from the opening of the database on.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    seconds: f64,
    transactions: u64,
    reads: u64,
    written: u64,
    resident: u64,
    versions: u64,
}

impl Look {
    /// Returns the memory of versions.
    pub(crate) fn versions(&self) -> u64 {
        self.versions
    }
}

fn load(database: &Database, records: u64, paged: bool) -> Result<Table<u64, [u8]>, Error> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    let table = database.create_table_with::<u64, [u8]>("records", options);
    let table = pollster::block_on(table)?;
    let kept = table.clone();
    let body = async move |tx: &Transaction, first: &u64| {
        for record in *first..records.min(*first + BATCH) {
            tx.put(&kept, &key_of(record), &[record as u8; VALUE_BYTES]).await?;
        }
        Ok(())
    };
    database.run_source(0, (0..records).step_by(BATCH as usize), body)?.wait()?;
    Ok(table)
}

/// Samples the counters until `over` is set, and once more after that.
pub(crate) fn watch(database: &Database, over: &AtomicBool, pause: Duration) -> Vec<Look> {
    let begin = Instant::now();
    let mut looks = Vec::new();
    loop {
        let stats = database.stats();
        looks.push(Look {
            seconds: begin.elapsed().as_secs_f64(),
            transactions: stats.committed,
            reads: stats.suspensions.storage,
            written: stats.log.bytes_written,
            resident: stats.memory.resident,
            versions: stats.memory.versions,
        });
        // Acquire pairs with the Release at the end of the run.
        if over.load(Ordering::Acquire) {
            return looks;
        }
        std::thread::sleep(pause);
    }
}

fn add_figures(report: &mut Report, looks: &[Look], budget: u64, judged: bool) {
    // The last sample may follow the one before immediately.
    let rates: Vec<f64> = transactions(looks).iter().map(|(_, rate)| *rate).collect();
    let windows = rates[..rates.len().saturating_sub(1)].chunks_exact(WINDOW);
    let windows = Spread::of(windows.map(|window| window.iter().sum::<f64>() / WINDOW as f64));
    let steady = windows.map(|windows| windows.min / windows.median);
    report.bar("rate of the worst ten seconds over the median", bars::STEADY, steady, judged);
    let most = looks.iter().map(|look| look.resident).max().unwrap_or(0);
    report.fact("memory of the process, at most", most as f64, number::bytes(most));
    let over = most as f64 / budget as f64;
    report.bar("memory of the process over the budget", bars::OVER_BUDGET, Some(over), judged);
    report.lines = charts(looks);
}

/// Returns the growth per second from sample to sample.
fn rate(looks: &[Look], count: fn(&Look) -> u64) -> Vec<(f64, f64)> {
    let pairs = looks.windows(2).map(|pair| {
        let grown = count(&pair[1]).saturating_sub(count(&pair[0])) as f64;
        (pair[1].seconds, grown / (pair[1].seconds - pair[0].seconds))
    });
    pairs.collect()
}

fn transactions(looks: &[Look]) -> Vec<(f64, f64)> {
    rate(looks, |look| look.transactions)
}

/// Returns the rate of the second half over that of the first, or `None` for fewer than three
/// samples.
pub(crate) fn halves(looks: &[Look]) -> Option<f64> {
    let (first, middle, last) = (looks.first()?, looks.get(looks.len() / 2)?, looks.last()?);
    let rate = |from: &Look, to: &Look| {
        (to.transactions - from.transactions) as f64 / (to.seconds - from.seconds)
    };
    let over = rate(middle, last) / rate(first, middle);
    (looks.len() > 2 && over.is_finite()).then_some(over)
}

/// Returns charts of transactions, disk and memory over time.
pub(crate) fn charts(looks: &[Look]) -> Vec<LineChart> {
    type Chart = (&'static str, &'static str, &'static str, Vec<(f64, f64)>);
    let charts: [Chart; 4] = [
        ("transactions", "Transactions a second", "transactions/s", transactions(looks)),
        ("reads", "Reads of the disk a second", "reads/s", rate(looks, |look| look.reads)),
        ("writes", "Bytes of log a second", "bytes/s", rate(looks, |look| look.written)),
        (
            "memory",
            "Memory of the process",
            "bytes",
            looks.iter().map(|look| (look.seconds, look.resident as f64)).collect(),
        ),
    ];
    let chart = |(name, title, y, points): Chart| LineChart {
        name: format!("timeline-{name}"),
        title: title.to_owned(),
        x: "seconds".to_owned(),
        y: y.to_owned(),
        lines: vec![Line { name: name.to_owned(), points }],
    };
    charts.into_iter().map(chart).collect()
}
