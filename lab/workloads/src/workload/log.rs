//! `log`: the bandwidth of the log. Transactions write one value each, durable by group commit.
//! Compares value sizes, flush units and, with the feature `experiment`, hole trackers, with `fio`
//! writing sequentially to the same disk. Also measures commit latency at half of that load.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braiddb::HoleTracker;
use braiddb::stats::LogStats;
use braiddb::{Database, Durability, Options, Table, Transaction, Tuning};
use clap::Args;

use super::bars;
use super::fio::Fio;
use super::paced;
use crate::engine::drive::{Procedure, drive};
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::{Uniform, key_of};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::stage::Stage;

/// The size of a block without its value.
const OVERHEAD_BYTES: usize = 80;
const SIZES: [usize; 6] = [128, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// The size that bars are set for.
const JUDGED: usize = 4 << 10;
const UNITS: [u64; 2] = [64 << 10, 512 << 10];
/// The number of segments after which a log with default options hardly ever creates another file.
const REUSED: u64 = 40;
/// The maximum wait for that.
const WARM_UP: Duration = Duration::from_secs(30);
/// Memory for values: the benchmark measures the log, not memory.
const BUDGET: u64 = 512 << 20;

#[derive(Clone, Debug)]
pub(crate) struct LogDefaults;

impl Defaults for LogDefaults {
    const RECORDS: u64 = 10_000;
    const QUICK_RECORDS: u64 = 200;
    const SECONDS: f64 = 1.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench log`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArguments {
    #[command(flatten)]
    scale: Scale<LogDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl LogArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

/// The setup of a subject.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Setup {
    bytes: usize,
    workers: usize,
    tracker: HoleTracker,
    unit: u64,
}

impl Setup {
    fn name(&self) -> String {
        let (bytes, unit) = (size(self.bytes as u64), size(self.unit));
        let unit = format!("{unit}, {}", self.tracker);
        format!("{bytes}, {} workers, unit {unit}", self.workers)
    }

    /// The default setup, from which the others differ.
    fn usual(workers: usize) -> Self {
        Self { bytes: JUDGED, workers, tracker: HoleTracker::default(), unit: UNITS[0] }
    }

    /// Returns every setup to measure.
    fn all(workers: usize) -> Vec<Self> {
        let usual = Self::usual(workers);
        let mut all: Vec<_> = SIZES.into_iter().map(|bytes| Self { bytes, ..usual }).collect();
        if workers > 1 {
            all.push(Self { workers: 1, ..usual });
        }
        all.push(Self { unit: UNITS[1], ..usual });
        for bytes in [SIZES[0], JUDGED] {
            let others = HoleTracker::ALL.into_iter().skip(1);
            all.extend(others.map(|tracker| Self { bytes, tracker, ..usual }));
        }
        all
    }
}

/// Formats a size that is a power of two.
fn size(bytes: u64) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) }
}

/// A database that is created for each round and removed after it: a second of log is a gigabyte.
struct Writer {
    setup: Setup,
    name: String,
    directory: PathBuf,
    settings: Settings,
    rounds: u64,
    /// The log's counters in the last round.
    counted: Rc<Cell<LogStats>>,
}

impl Subject for Writer {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.rounds += 1;
        let directory = &self.directory;
        let options =
            options(&self.setup, &self.settings).tune(|tuning| tuning.checkpoint_bytes(u64::MAX));
        let database = Database::open(directory, options)?;
        let puts = Puts::on(&database, &self.setup, &self.settings, self.rounds)?;
        let make = |worker| puts.with_seed(worker as u64 + 1);
        let sample = drive(&database, self.setup.workers, make, effort, 16)?;
        self.counted.set(database.stats().log);
        drop(puts);
        database.close()?;
        drop(database);
        std::fs::remove_dir_all(directory).map_err(Error::file(directory))?;
        Ok(sample)
    }
}

fn options(setup: &Setup, settings: &Settings) -> Options {
    let tuning =
        Tuning::default().hole_tracker(setup.tracker).pin(settings.pin).flush_unit(setup.unit);
    Options::default()
        .workers(setup.workers)
        .durability(Durability::Group)
        .memory_budget(Some(BUDGET))
        .tuning(tuning)
}

/// Puts of one value each.
#[derive(Clone)]
struct Puts {
    table: Table<u64, [u8]>,
    keys: Uniform,
    records: u64,
    seed: u64,
    value: Arc<[u8]>,
}

impl Puts {
    fn on(
        database: &Database,
        setup: &Setup,
        settings: &Settings,
        seed: u64,
    ) -> Result<Self, Error> {
        let table = pollster::block_on(database.open_or_create_table("values"))?;
        let value = vec![7; setup.bytes.saturating_sub(OVERHEAD_BYTES)].into();
        let (records, seed) = (settings.records, seed << 8);
        Ok(Self { table, keys: Uniform::below(records, seed), records, seed, value })
    }

    fn with_seed(&self, seed: u64) -> Self {
        Self { keys: Uniform::below(self.records, self.seed + seed), ..self.clone() }
    }
}

impl Procedure for Puts {
    type Input = u64;

    fn draw(&mut self) -> u64 {
        self.keys.record()
    }

    async fn run(&self, tx: &Transaction, key: &u64) -> Result<(), braiddb::Error> {
        tx.put(&self.table, &key_of(*key), &self.value).await
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    let setups = Setup::all(settings.workers);
    let counted: Vec<Rc<Cell<LogStats>>> = setups.iter().map(|_| Rc::default()).collect();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for setup in &setups {
        subjects.push(Box::new(Writer {
            setup: *setup,
            name: setup.name(),
            directory: place.join("log"),
            settings: settings.clone(),
            rounds: 0,
            counted: Rc::clone(&counted[subjects.len()]),
        }));
    }
    let what = "transactions of one put, by block size, workers and flush unit";
    let mut report = stage.measure("log", what, settings, subjects)?;
    report.notes.push(place.describe());
    add_figures(&mut report, &setups);
    add_crawled(&mut report, &setups, &counted);
    let judged = settings.records == LogDefaults::RECORDS && !settings.quick;
    judge_trackers(&mut report, settings, judged);
    against_fio(stage, &mut report, place, settings, judged);
    latency(stage, &mut report, place, settings, judged)?;
    Ok(report)
}

/// Returns the bytes of blocks filled per second.
fn bandwidth(report: &Report, setup: &Setup) -> Option<f64> {
    Some(report.subject(&setup.name())?.rate.median * setup.bytes as f64)
}

fn add_figures(report: &mut Report, setups: &[Setup]) {
    let usual = setups[0];
    for setup in setups {
        if let Some(bandwidth) = bandwidth(report, setup) {
            let text = format!("{}/s", number::bytes(bandwidth as u64));
            report.fact(format!("bandwidth, {}", setup.name()), bandwidth, text);
        }
    }
    let by_size = setups.iter().filter(|setup| Setup { bytes: usual.bytes, ..**setup } == usual);
    let points = by_size.filter_map(|setup| Some((setup.bytes as f64, bandwidth(report, setup)?)));
    report.lines.push(LineChart {
        name: "log-bandwidth".to_owned(),
        title: "Bytes of log a second, by size of a block".to_owned(),
        x: "bytes".to_owned(),
        y: "bytes/s".to_owned(),
        lines: vec![Line { name: "braid".to_owned(), points: points.collect() }],
    });
}

fn add_crawled(report: &mut Report, setups: &[Setup], counted: &[Rc<Cell<LogStats>>]) {
    for (setup, log) in setups.iter().zip(counted.iter().map(|counted| counted.get())) {
        let advanced = log.crawled_bytes + log.hopped_bytes;
        if advanced > 0 {
            let share = 100.0 * log.crawled_bytes as f64 / advanced as f64;
            report.fact(format!("crawled, {}", setup.name()), share, format!("{share:.1} %"));
        }
    }
}

fn judge_trackers(report: &mut Report, settings: &Settings, judged: bool) {
    let usual = Setup::usual(settings.workers);
    for tracker in [HoleTracker::default(), HoleTracker::Grasshopper] {
        for bytes in [SIZES[0], JUDGED] {
            let lock = Setup { bytes, tracker: HoleTracker::GlobalLock, ..usual };
            let over = report.ratio(&Setup { bytes, tracker, ..usual }.name(), &lock.name());
            let what = format!("{tracker} over global lock, {}", size(bytes as u64));
            report.bar(what, bars::TRACKER_OVER_LOCK, over, judged);
        }
    }
}

fn against_fio(
    stage: &Stage,
    report: &mut Report,
    place: &Place,
    settings: &Settings,
    judged: bool,
) {
    let mut best: Option<f64> = None;
    for (unit, new) in UNITS.into_iter().flat_map(|unit| [(unit, true), (unit, false)]) {
        stage.progress.doing(format!("fio: writes of {}", size(unit)));
        let Some(fio) = Fio::write(&place.join("fio"), unit, new, settings.quick) else {
            report.notes.push("fio is not here to compare the disk with".to_owned());
            return;
        };
        let text = format!("{}/s", number::bytes(fio.bytes_a_second as u64));
        let file = if new { "a new file" } else { "a file written before" };
        report.fact(format!("fio, {}, {file}", size(unit)), fio.bytes_a_second, text);
        if new {
            best = Some(best.unwrap_or(0.0).max(fio.bytes_a_second));
        }
    }
    let usual = Setup::usual(settings.workers);
    let ours = UNITS.iter().filter_map(|&unit| bandwidth(report, &Setup { unit, ..usual }));
    let share = ours.max_by(f64::total_cmp).zip(best).map(|(ours, best)| ours / best);
    report.bar("bandwidth over fio's best of a new file, 4 KiB", bars::LOG_OVER_FIO, share, judged);
}

/// Measures commits that arrive at half the measured rate, compared with one synced write.
fn latency(
    stage: &Stage,
    report: &mut Report,
    place: &Place,
    settings: &Settings,
    judged: bool,
) -> Result<(), Error> {
    // One core is reserved for the clients.
    let setup = Setup::usual(1);
    let Some(full) = report.subject(&setup.name()).map(|subject| subject.rate.median) else {
        return Ok(());
    };
    stage.progress.doing("commits at half load");
    let directory = place.join("latency");
    let database = Database::open(&directory, options(&setup, settings))?;
    let puts = Puts::on(&database, &setup, settings, 0)?;
    // Waits until the log reuses its own files.
    let begin = Instant::now();
    while !settings.quick && database.stats().log.segments_reused < REUSED {
        let warm = Effort::Seconds(0.1);
        drive(&database, 1, |worker| puts.with_seed(worker as u64 + 1), warm, 16)?;
        if begin.elapsed() > WARM_UP {
            break;
        }
    }
    let seconds = Duration::from_secs_f64(if settings.quick { 0.1 } else { 5.0 });
    // First, the files that a warm-up at full rate left are put in order.
    let half = |seconds| paced::run(&database, &puts.table, &puts.value, full / 2.0, seconds);
    half(seconds * 5 / 2)?;
    let half = half(seconds)?;
    let one = one_synced_write(&database, &puts, seconds / 5)?;
    let log = database.stats().log;
    let (made, reused) = (log.segments_created, log.segments_reused);
    let what = "segments made, and of reused files, by then";
    report.fact(what, reused as f64, format!("{made}, {reused}"));
    report.fact("rate at half load", half.rate, format!("{:.0}/s", half.rate));
    for (name, latency) in [("p50", half.p50), ("p99", half.p99), ("p99.9", half.p999)] {
        let nanoseconds = latency.as_nanos() as f64;
        report.fact(format!("commit at half load, {name}"), nanoseconds, format!("{latency:.1?}"));
    }
    report.fact("one commit alone", one.as_nanos() as f64, format!("{one:.1?}"));
    let over = half.p99.as_secs_f64() / one.as_secs_f64();
    report.bar("p99 of a commit over one alone", bars::COMMIT_P99, Some(over), judged);
    drop(puts);
    database.close()?;
    std::fs::remove_dir_all(&directory).map_err(Error::file(&directory))?;
    Ok(())
}

/// Returns the median latency of commits that share no flush.
fn one_synced_write(database: &Database, puts: &Puts, period: Duration) -> Result<Duration, Error> {
    let (begin, mut taken) = (Instant::now(), Vec::new());
    while begin.elapsed() < period || taken.is_empty() {
        let (one, table, value) = (Instant::now(), puts.table.clone(), puts.value.clone());
        database.run_blocking(async move |tx| tx.put(&table, &0, &value).await)?;
        taken.push(one.elapsed());
    }
    taken.sort_unstable();
    Ok(taken[taken.len() / 2])
}
