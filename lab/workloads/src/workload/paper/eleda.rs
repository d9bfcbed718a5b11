//! ELEDA (Jung et al., PVLDB 2017), figures 8 to 11, 14, 16 and 18 to 21: bandwidth of the log and
//! latency of commits.

use std::path::PathBuf;
use std::sync::Arc;

use braiddb::HoleTracker;
use braiddb::{Database, Durability, Options, Policy, Table, Transaction, Tuning, Width};

use super::sweep::{self, Axis, Point, distribution, driven, mean_ms};
use super::{Figure, Run};
use crate::engine::drive::Procedure;
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::{Uniform, key_of};
use crate::scale::arguments::Settings;
use crate::workload::contenders::Contender;
use crate::workload::missing_record;
use crate::workload::sysbench::SysbenchArguments;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "eleda-8",
        shows: "key-values (half reads, half writes of 1 KiB), durable, by threads: group commit and one sync a commit",
        found: "ELEDA makes WiredTiger 71 times as fast with 32 threads, about 10 times with one; 3.9 M/s at most",
        differs: "one sync a commit is Braid's sequential worker; what the paper measures beside is WiredTiger, and on memory \
                  in place of a disk, where its lock is what is left",
        run: |run| Ok(vec![key_values(run)?.0]),
    },
    Figure {
        name: "eleda-9",
        shows: "the latency of these commits",
        found: "1.3 ms in the mean with ELEDA, 0.58 ms without, at a fraction of the load",
        differs: "each of Braid's commits waits for its flush and for its turn after it; how long a sync takes is the disk's",
        run: |run| Ok(vec![key_values(run)?.1]),
    },
    Figure {
        name: "eleda-10",
        shows: "sysbench's OLTP (read-write), durable: group commit and one sync a commit",
        found: "ELEDA makes WiredTiger 32 times as fast with 32 threads; 1 M/s at most",
        differs: "all workers of this machine; serializable beside snapshots, READ UNCOMMITTED there",
        run: |run| sysbench(run, false),
    },
    Figure {
        name: "eleda-11",
        shows: "the latency of these commits",
        found: "3.7 ms in the mean with ELEDA, 1 ms without",
        differs: "as for 9",
        run: |run| sysbench(run, true),
    },
    Figure {
        name: "eleda-14",
        shows: "key-values by payload, 512 B to 5 KiB, flush unit 512 KiB",
        found: "transactions a second fall as the payload grows, and bandwidth rises, to 6.2 GiB/s at 5 KiB",
        differs: "two NVMe SSDs of 3.5 GiB/s there",
        run: payloads,
    },
    Figure {
        name: "eleda-16",
        shows: "the log alone: three records a transaction, by threads and size of records; latency of 128 B",
        found: "1.34 M/s with 128 B, the same up to 2 KiB; the devices' whole bandwidth (6.9 GiB/s) from 4 KiB on",
        differs: "Braid's records go with their transaction in one block, so three records are one reservation",
        run: micro,
    },
    Figure {
        name: "eleda-18",
        shows: "the latency of commits by flush unit, 64 and 512 KiB",
        found: "the smaller unit's latency is an order of magnitude shorter",
        differs: "Braid flushes what is filled without a hole when it can, the unit only bounds what is gathered while a \
                  flush is under way: so it matters under full load only",
        run: units,
    },
    Figure {
        name: "eleda-19",
        shows: "what hides the wait for the disk brings, and what the hole tracker brings on top",
        found: "with few threads hiding latency brings nearly all; from four threads on it collapses without Grasshopper",
        differs: "a lock around the log in place of a tracker is in builds for experiments only; contention needs cores",
        run: breakdown,
    },
    Figure {
        name: "eleda-20",
        shows: "how much Grasshopper advances by crawling, by threads and payload",
        found: "nearly all by crawling with few threads; hopping takes over as threads grow and payloads shrink",
        differs: "as many threads as workers here",
        run: crawling,
    },
    Figure {
        name: "eleda-21",
        shows: "Grasshopper beside a scan of a bitmap, by threads",
        found: "the scan ends at 40 MiB/s with two threads, and Grasshopper goes on",
        differs: "the trackers alone, without a disk; the bitmap has a bit for 64 bytes, not for each",
        run: scanning,
    },
];

const THREADS: Axis = Axis { name: "threads", title: "Transactions a second by threads" };
const GROUP: &str = "group commit";
const ONE_SYNC: &str = "one sync a commit";
const VOLATILE: &str = "no log";
/// The size of a key-value record in the paper's figures.
const PAYLOAD: usize = 1_024;
/// Memory for values: these figures measure the log.
const BUDGET: u64 = 1 << 30;
/// The number of records in the table: enough to keep transactions apart.
const RECORDS: u64 = 100_000;

/// A transaction with several reads and puts of uniform records.
#[derive(Clone)]
struct KeyValues {
    table: Table<u64, [u8]>,
    keys: Uniform,
    random: fastrand::Rng,
    value: Arc<[u8]>,
    shape: Shape,
}

/// The operations of a transaction.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// A read or a put, half of each.
    HalfWrites,
    /// Three puts.
    ThreePuts,
}

impl Procedure for KeyValues {
    type Input = ([u64; 3], bool);

    fn draw(&mut self) -> Self::Input {
        (self.keys.keys(), self.random.bool())
    }

    async fn run(&self, tx: &Transaction, input: &Self::Input) -> Result<(), braiddb::Error> {
        let (keys, write) = input;
        match (self.shape, write) {
            (Shape::HalfWrites, true) => tx.put(&self.table, &keys[0], &self.value).await,
            (Shape::HalfWrites, false) => {
                let found = tx.get(&self.table, &keys[0]).await?;
                std::hint::black_box(found.ok_or_else(missing_record)?);
                Ok(())
            }
            (Shape::ThreePuts, _) => {
                for key in keys {
                    tx.put(&self.table, key, &self.value).await?;
                }
                Ok(())
            }
        }
    }
}

/// A database of key-values; if it is on disk, its directory is removed with the last handle.
struct KeyValueBed {
    database: Database,
    table: Table<u64, [u8]>,
    value: Arc<[u8]>,
    records: u64,
}

impl KeyValueBed {
    fn open(
        options: Options,
        path: Option<PathBuf>,
        payload: usize,
        settings: &Settings,
    ) -> Result<Self, Error> {
        const PIECE: u64 = 100;
        let database = match path {
            Some(path) => Database::open(path, options)?,
            None => Database::in_memory(options)?,
        };
        let table: Table<u64, [u8]> = pollster::block_on(database.create_table("values"))?;
        let value: Arc<[u8]> = vec![7; payload].into();
        let records = settings.records.min(RECORDS);
        let insert = {
            let (table, value) = (table.clone(), value.clone());
            async move |tx: &Transaction, range: &std::ops::Range<u64>| {
                for record in range.clone() {
                    tx.insert(&table, &key_of(record), &value).await?;
                }
                Ok(())
            }
        };
        load_in_pieces(&database, 1, 0..records, PIECE, insert)?;
        Ok(Self { database, table, value, records })
    }

    fn subject(&self, shape: Shape, threads: usize, seed: u64) -> Box<dyn Subject> {
        let (table, value, records) = (self.table.clone(), self.value.clone(), self.records);
        let make = move |seed| KeyValues {
            table: table.clone(),
            keys: Uniform::below(records, seed),
            random: fastrand::Rng::with_seed(seed),
            value: value.clone(),
            shape,
        };
        driven(&self.database, threads, seed, make)
    }
}

/// Returns options for durable group commit, the default.
fn group(settings: &Settings) -> Options {
    Options::default()
        .workers(settings.workers)
        .durability(Durability::Group)
        .memory_budget(Some(BUDGET))
        .tuning(Tuning::default().pin(settings.pin))
}

/// Returns options with one transaction at a time on each worker, each of which waits for a
/// separate sync.
fn one_sync(settings: &Settings) -> Options {
    group(settings).tune(|tuning| tuning.policy(Policy::Sequential).hot_width(Width::Fixed(1)))
}

/// Measures transactions by threads, and their latencies at the largest number of threads.
fn key_values(run: &mut Run<'_>) -> Result<(Report, Report), Error> {
    let (settings, place) = (run.settings, run.place()?);
    let open = |name: &str, options: Options| {
        KeyValueBed::open(options, Some(place.join(name)), PAYLOAD, settings)
    };
    run.stage.progress.doing("loading");
    let grouped = open("group", group(settings))?;
    let synced = open("one-sync", one_sync(settings))?;
    // Eviction is impossible without a disk.
    let volatile = group(settings).durability(Durability::Volatile).memory_budget(None);
    let volatile = KeyValueBed::open(volatile, None, PAYLOAD, settings)?;
    let (mut points, counts) = (Vec::new(), run.thread_counts());
    for &threads in &counts {
        for (series, bed) in [(GROUP, &grouped), (ONE_SYNC, &synced), (VOLATILE, &volatile)] {
            let subject = bed.subject(Shape::HalfWrites, threads, settings.seed);
            points.push(Point::new(series, threads as f64, subject));
        }
    }
    let what = "transactions of one read or one put of 1 KiB, half of each";
    let mut report = sweep::measure(run, what, THREADS, points)?;
    report.notes.push(place.describe());
    let most = *counts.last().expect("there is one");
    let name = |series, threads: usize| THREADS.subject(series, threads as f64);
    let over =
        |report: &Report, threads| report.over(&name(GROUP, threads), &name(ONE_SYNC, threads));
    let (one, all) = (over(&report, 1), over(&report, most));
    report.published("group commit over one sync a commit, 1 thread", 10.0, one, "×");
    report.published(format!("the same, {most} threads (32 there)"), 71.0, all, "×");
    let rate = report.subject(&name(GROUP, most)).map(|subject| subject.rate.median);
    report.published(format!("transactions, {most} threads (32 there)"), 3.9e6, rate, "/s");
    let mut latencies = report.clone();
    let last = format!("{most} threads");
    latencies.measured.retain(|measured| measured.name.ends_with(&last));
    latencies.published.clear();
    latencies.lines.clear();
    distribution(&mut latencies, "Latency of transactions from their first step to their commit");
    let (grouped, synced) =
        (mean_ms(&latencies, &name(GROUP, most)), mean_ms(&latencies, &name(ONE_SYNC, most)));
    latencies.published("mean latency, group commit", 1.3, grouped, "ms");
    latencies.published("mean latency, one sync a commit", 0.576, synced, "ms");
    Ok((report, latencies))
}

fn sysbench(run: &mut Run<'_>, latencies: bool) -> Result<Vec<Report>, Error> {
    let own = [
        "--scripts",
        "read-write",
        "--distribution",
        "uniform",
        "--tables",
        "4",
        "--records",
        "25000",
        "--subjects",
        "serializable,snapshot,sequential",
    ];
    let arguments: SysbenchArguments = run.arguments_on_disk(&own);
    let mut reports = arguments.run(run.stage)?;
    let report = reports.first_mut().expect("one script and one distribution were asked for");
    let [grouped, synced] = [Contender::Serializable, Contender::Sequential].map(Contender::name);
    if latencies {
        report.lines.clear();
        distribution(report, "Latency of sysbench's transactions");
        let means = [grouped, synced].map(|name| mean_ms(report, name));
        report.published("mean latency, group commit", 3.7, means[0], "ms");
        report.published("mean latency, one sync a commit", 1.0, means[1], "ms");
    } else {
        let over = report.over(grouped, synced);
        let what = "group commit over one sync a commit, all threads (32 there)";
        report.published(what, 32.0, over, "×");
    }
    Ok(reports)
}

fn payloads(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "bytes", title: "Key-values by payload" };
    const PAYLOADS: [usize; 5] = [512, 1_024, 2_048, 3_072, 5_120];
    let (settings, place) = (run.settings, run.place()?);
    let mut points = Vec::new();
    for payload in PAYLOADS {
        let options = group(settings).tune(|tuning| tuning.flush_unit(512 << 10));
        let path = place.join(&payload.to_string());
        let bed = KeyValueBed::open(options, Some(path), payload, settings)?;
        let subject = bed.subject(Shape::HalfWrites, settings.workers, settings.seed);
        points.push(Point::new(GROUP, payload as f64, subject));
    }
    let what = "transactions of one read or one put, half of each, durable, all workers";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.notes.push(place.describe());
    let name = |payload: usize| AXIS.subject(GROUP, payload as f64);
    let rates = PAYLOADS
        .map(|payload| report.subject(&name(payload)).map_or(0.0, |subject| subject.rate.median));
    let bandwidth = |place: usize| rates[place] / 2.0 * PAYLOADS[place] as f64;
    let points =
        (0..PAYLOADS.len()).map(|place| (PAYLOADS[place] as f64, bandwidth(place))).collect();
    report.lines.push(bandwidth_chart("Bytes of payload logged a second, by payload", points));
    let most = (0..PAYLOADS.len()).map(bandwidth).fold(0.0, f64::max);
    report.published(
        "bytes of payload logged, at most",
        6.2 * (1u64 << 30) as f64,
        Some(most),
        "B/s",
    );
    Ok(vec![report])
}

fn bandwidth_chart(title: &str, points: Vec<(f64, f64)>) -> LineChart {
    LineChart {
        name: String::new(),
        title: title.to_owned(),
        x: "bytes".to_owned(),
        y: "bytes/s".to_owned(),
        lines: vec![Line { name: "braid".to_owned(), points }],
    }
}

/// A database that is created for each round and removed after it: a round may write gigabytes of
/// log.
struct Renewed {
    options: Options,
    path: PathBuf,
    payload: usize,
    threads: usize,
    settings: Settings,
}

impl Subject for Renewed {
    fn name(&self) -> &str {
        GROUP
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let options = self.options.clone().tune(|tuning| tuning.checkpoint_bytes(u64::MAX));
        let settings =
            Settings { records: self.settings.records.min(1_000), ..self.settings.clone() };
        let bed = KeyValueBed::open(options, Some(self.path.clone()), self.payload, &settings)?;
        let mut subject = bed.subject(Shape::ThreePuts, self.threads, settings.seed);
        let sample = subject.round(effort)?;
        drop(subject);
        bed.database.close()?;
        drop(bed);
        std::fs::remove_dir_all(&self.path).map_err(Error::file(&self.path))?;
        Ok(sample)
    }
}

fn micro(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis =
        Axis { name: "bytes", title: "Transactions of three log records, by size of a record" };
    const SIZES: [usize; 5] = [128, 512, 2_048, 4_096, 16_384];
    let (settings, place) = (run.settings, run.place()?);
    let (mut points, counts) = (Vec::new(), run.thread_counts());
    let series = |threads: usize| format!("{threads} threads");
    for &threads in &counts {
        for payload in SIZES {
            let options = group(settings).tune(|tuning| tuning.flush_unit(512 << 10));
            let (path, settings) = (place.join("log"), settings.clone());
            let subject = Renewed { options, path, payload, threads, settings };
            points.push(Point::new(series(threads), payload as f64, Box::new(subject)));
        }
    }
    let what = "transactions of three puts, durable, flush unit 512 KiB";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.notes.push(place.describe());
    let most = *counts.last().expect("there is one");
    let rate =
        |size: usize| Some(report.subject(&AXIS.subject(&series(most), size as f64))?.rate.median);
    let rates = SIZES.map(|size| (size as f64, rate(size).unwrap_or(0.0) * 3.0 * size as f64));
    let (small, kept) = (rate(128), rate(2_048).zip(rate(128)).map(|(large, small)| large / small));
    let best = rates.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    report
        .lines
        .push(bandwidth_chart("Bytes of records a second, by size of a record", rates.to_vec()));
    report.published("transactions, 128 B", 1.34e6, small, "/s");
    report.published("transactions, 2 KiB over 128 B", 1.0, kept, "×");
    report.published("bytes logged, at most", 6.9 * (1u64 << 30) as f64, Some(best), "B/s");
    let mut latencies = report.clone();
    latencies.published.clear();
    latencies.lines.clear();
    latencies.notes.clear();
    let of = AXIS.subject("", 128.0);
    latencies.measured.retain(|measured| measured.name.ends_with(of.trim_start_matches(',')));
    distribution(&mut latencies, "Latency of transactions of three records of 128 B");
    Ok(vec![report, latencies])
}

fn units(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "KiB", title: "Key-values by flush unit" };
    let (settings, place) = (run.settings, run.place()?);
    let mut points = Vec::new();
    for unit in [64_u64, 512] {
        let options = group(settings).tune(|tuning| tuning.flush_unit(unit << 10));
        let path = place.join(&unit.to_string());
        let bed = KeyValueBed::open(options, Some(path), PAYLOAD, settings)?;
        let subject = bed.subject(Shape::HalfWrites, settings.workers, settings.seed);
        points.push(Point::new("flush unit", unit as f64, subject));
    }
    let what = "transactions of one read or one put of 1 KiB, half of each, durable, all workers";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.notes.push(place.describe());
    report.lines.clear();
    distribution(&mut report, "Latency of transactions by flush unit");
    let mean = |unit| mean_ms(&report, &AXIS.subject("flush unit", unit));
    let over = mean(512.0).zip(mean(64.0)).map(|(large, small)| large / small);
    report.published("mean latency, 512 KiB over 64 KiB", 10.0, over, "×");
    Ok(vec![report])
}

fn breakdown(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let (settings, place) = (run.settings, run.place()?);
    let mut series = vec![("one sync a commit", one_sync(settings))];
    series.extend([
        (
            "+ latency hidden, a lock around the log",
            group(settings).tune(|tuning| tuning.hole_tracker(HoleTracker::GlobalLock)),
        ),
        (
            "+ latency hidden, Grasshopper",
            group(settings).tune(|tuning| tuning.hole_tracker(HoleTracker::Grasshopper)),
        ),
    ]);
    series.push(("+ latency hidden, in-flight marks", group(settings)));
    let (mut points, counts) = (Vec::new(), run.thread_counts());
    let mut beds = Vec::new();
    for (place_number, (name, options)) in series.iter().enumerate() {
        let path = place.join(&place_number.to_string());
        beds.push((*name, KeyValueBed::open(options.clone(), Some(path), PAYLOAD, settings)?));
    }
    for &threads in &counts {
        for (name, bed) in &beds {
            let subject = bed.subject(Shape::HalfWrites, threads, settings.seed);
            points.push(Point::new(*name, threads as f64, subject));
        }
    }
    let what = "transactions of one read or one put of 1 KiB, half of each, durable";
    let mut report = sweep::measure(run, what, THREADS, points)?;
    report.notes.push(place.describe());
    let name = |series: &str| THREADS.subject(series, 1.0);
    let hidden = series.last().expect("there are some").0;
    let over = report.over(&name(hidden), &name("one sync a commit"));
    report.published("latency hidden over one sync a commit, 1 thread", 10.0, over, "×");
    Ok(vec![report])
}

fn crawling(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "bytes", title: "Transactions a second, by payload" };
    let (settings, place) = (run.settings, run.place()?);
    let (mut points, mut databases) = (Vec::new(), Vec::new());
    for threads in run.thread_counts() {
        for payload in [128, 1_024, 4_096] {
            let options =
                group(settings).tune(|tuning| tuning.hole_tracker(HoleTracker::Grasshopper));
            let path = place.join(&format!("{threads}-{payload}"));
            let bed = KeyValueBed::open(options, Some(path), payload, settings)?;
            let series = format!("{threads} threads");
            databases.push((AXIS.subject(&series, payload as f64), bed.database.clone()));
            let subject = bed.subject(Shape::HalfWrites, threads, settings.seed);
            points.push(Point::new(series, payload as f64, subject));
        }
    }
    let what = "transactions of one read or one put, half of each, durable, Grasshopper";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.notes.push(place.describe());
    for (name, database) in databases {
        let log = database.stats().log;
        let advanced = (log.crawled_bytes + log.hopped_bytes).max(1);
        let percent = 100.0 * log.crawled_bytes as f64 / advanced as f64;
        report.fact(format!("crawled, {name}"), percent, format!("{percent:.1} %"));
    }
    Ok(vec![report])
}

fn scanning(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    use crate::workload::trackers::Driven;
    const BYTES: u64 = 1_024;
    let mut points = Vec::new();
    for threads in [1, 2, 4, 8, 16, 32] {
        for tracker in [HoleTracker::Grasshopper, HoleTracker::BitmapScan, HoleTracker::default()] {
            let subject = Box::new(Driven::new(tracker, threads, BYTES));
            points.push(Point::new(tracker.to_string(), threads as f64, subject));
        }
    }
    let what = "blocks of 1 KiB reserved, filled and found to be without a hole before them, without a disk";
    let mut report = sweep::measure(run, what, THREADS, points)?;
    report.unit = "blocks";
    let scan = HoleTracker::BitmapScan.to_string();
    let most = [1, 2, 4, 8, 16, 32].map(|threads| {
        report
            .subject(&THREADS.subject(&scan, f64::from(threads)))
            .map_or(0.0, |subject| subject.rate.median)
    });
    let most = most.into_iter().fold(0.0, f64::max) * BYTES as f64;
    report.published("bitmap scan, at most", 40.0 * f64::from(1 << 20), Some(most), "B/s");
    Ok(vec![report])
}
