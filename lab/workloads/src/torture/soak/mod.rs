//! A soak: runs a mix of loads for a long time. It measures each quantity at intervals, checks that
//! it is within its bound, and reports it over time.
//!
//! The loads: steady overwrites of a table in memory and a paged one, with values from 200 bytes to
//! 100 kB; snapshots that are held for long; tables of both kinds that are created, filled and
//! dropped; and a second database that fills and empties a small disk. The database is closed and
//! opened again several times, with `Group` and `Relaxed` durability in turn.

mod load;
mod series;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::stats::WorkerStats;
use braiddb::{Database, Durability, Options, Tuning};
use serde::Serialize;

use super::disk::{Disk, Faulty};
use super::{Command, full};
use crate::bounds::{self, DiskUse, Load, Quantity};
use load::{Progress, Tables};
use series::{AllSeries, Unit};

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 8 * MIB;
const MEMORY_BUDGET: u64 = 160 * MIB;
/// Memory of the program itself, and of the database on a small disk.
const OTHER_MEMORY: u64 = 224 * MIB;
/// Open files that belong to no file of the database.
const OTHER_DESCRIPTORS: u64 = 192;
/// Openings of the database.
const LIVES: u64 = 8;
/// Number of measurements in a soak.
const READINGS: u64 = 240;
/// Number of clients that are not writers: a reader, one that creates and drops tables, and one
/// that does maintenance.
const OTHER_CLIENTS: u64 = 3;

/// The result of a soak.
#[derive(Debug, Serialize)]
struct SoakReport {
    seconds: f64,
    overwrites: u64,
    tables: u64,
    snapshots: u64,
    openings: u64,
    full_disks: FullDisks,
    quantities: AllSeries,
    figures: Vec<std::path::PathBuf>,
    /// Quantities above their bounds.
    exceeded: Vec<String>,
}

/// The cycles of filling and emptying a small disk.
#[derive(Clone, Debug, Default, Serialize)]
struct FullDisks {
    /// Bytes of values that fitted in each cycle.
    usable_bytes: Vec<u64>,
    /// The reason why there was none.
    left_out: Option<String>,
}

/// Runs the loads for `seconds`.
///
/// # Errors
/// A wrong answer, a quantity above its bound, or a failure to run.
pub(super) fn run(command: &Command, seconds: u64, json: bool) -> Result<()> {
    let directory = command.directory()?;
    let soak = Soak::new(command, seconds);
    // A soak that fails is reported too: its quantities may show the cause.
    let (mut report, result) = soak.run(directory.path());
    if let Some(out) = &command.out {
        report.figures = report.quantities.draw(out)?;
    }
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        let SoakReport { overwrites, tables, snapshots, openings, .. } = &report;
        writeln!(
            out,
            "{overwrites} overwrites, {tables} tables created and dropped, {snapshots} snapshots, \
             {openings} openings; live data {}\n\n{}\n",
            crate::harness::number::bytes(load::live_bytes()),
            report.quantities.table()
        )?;
        match &report.full_disks {
            FullDisks { left_out: Some(reason), .. } => {
                writeln!(out, "full disks were left out: {reason}")?;
            }
            FullDisks { usable_bytes, .. } => {
                let shown = usable_bytes.iter().map(|bytes| (bytes / MIB).to_string());
                let shown: Vec<_> = shown.collect();
                writeln!(out, "usable MiB of a small disk, by cycle: {}", shown.join(" "))?;
            }
        }
        report.figures.iter().try_for_each(|path| writeln!(out, "file: {}", path.display()))?;
    }
    result?;
    ensure!(report.exceeded.is_empty(), "above the bound: {}", report.exceeded.join("; "));
    Ok(())
}

struct Soak<'c> {
    command: &'c Command,
    time: Duration,
    begin: Instant,
    progress: Progress,
    /// Usable bytes of the small disk in its last cycle.
    usable: AtomicU64,
}

impl<'c> Soak<'c> {
    fn new(command: &'c Command, seconds: u64) -> Self {
        Self {
            command,
            time: Duration::from_secs(seconds),
            begin: Instant::now(),
            progress: Progress::default(),
            usable: AtomicU64::new(0),
        }
    }

    /// Returns the report, and the first failure.
    fn run(&self, parent: &Path) -> (SoakReport, Result<()>) {
        let (mut quantities, mut full_disks) = (AllSeries::default(), FullDisks::default());
        let cycles = &mut full_disks;
        let result = std::thread::scope(|scope| {
            let filling = scope.spawn(|| self.fill_disks(parent, cycles));
            let lives = (0..LIVES).try_for_each(|life| {
                self.life(&parent.join("database"), life, &mut quantities)
                    .with_context(|| format!("opening {life}"))
            });
            self.progress.stop.store(true, Ordering::SeqCst);
            lives.and(filling.join().expect("the disks' thread does not panic"))
        });
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let report = SoakReport {
            seconds: self.begin.elapsed().as_secs_f64(),
            overwrites: count(&self.progress.overwrites),
            tables: count(&self.progress.tables),
            snapshots: count(&self.progress.readers),
            openings: LIVES,
            full_disks,
            exceeded: quantities.exceeded(),
            quantities,
            figures: Vec::new(),
        };
        (report, result)
    }

    /// Opens the database, runs the clients for a part of the time, and closes it.
    fn life(&self, dir: &Path, life: u64, quantities: &mut AllSeries) -> Result<()> {
        let begin = Instant::now();
        let db = Database::open(dir, self.options(life)).context("opening the database")?;
        let opening = begin.elapsed().as_micros() as u64;
        quantities.note(self.seconds(), ("opening", Unit::Microseconds), opening, None);
        let log_of_earlier_lives = db.stats().log.disk_bytes;
        let tables = Tables::open(&db)?;
        tables.check(&db).context("after opening")?;
        let part = self.time / LIVES as u32;
        let end = Instant::now() + part;
        let clients = Progress::default();
        let (writers, seed) = (self.command.writers, self.command.seed ^ life);
        let first = self.progress.tables.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            let running = [
                scope.spawn(|| tables.overwrite(&db, writers, seed, &clients)),
                scope.spawn(|| tables.read(&db, part / 5, &clients)),
                scope.spawn(|| load::churn(&db, first, &clients)),
            ];
            let mut read = Ok(());
            while read.is_ok()
                && Instant::now() < end
                && !running.iter().any(|client| client.is_finished())
            {
                std::thread::sleep(self.interval());
                read = self.read(&db, dir, log_of_earlier_lives, &clients, quantities);
            }
            clients.stop.store(true, Ordering::SeqCst);
            let ended = running.map(|client| client.join().expect("a client does not panic"));
            ended.into_iter().collect::<Result<()>>().and(read)
        })?;
        let all = &self.progress;
        for (of_life, sum) in [
            (&clients.overwrites, &all.overwrites),
            (&clients.tables, &all.tables),
            (&clients.readers, &all.readers),
        ] {
            sum.fetch_add(of_life.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        tables.check(&db).context("before closing")?;
        db.close().context("closing")
    }

    fn options(&self, life: u64) -> Options {
        // With `Relaxed`, writes to the table in memory run on the caller's thread.
        let durability =
            if life.is_multiple_of(2) { Durability::Group } else { Durability::Relaxed };
        Options::default()
            .workers(self.command.workers)
            .durability(durability)
            .memory_budget(Some(MEMORY_BUDGET))
            // Only traced workers measure processor time.
            .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).trace(1))
    }

    fn interval(&self) -> Duration {
        (self.time / READINGS as u32).clamp(Duration::from_millis(50), Duration::from_secs(30))
    }

    fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Reads every quantity. `log_of_earlier_lives` is the size of the log in bytes when the database
    /// was opened.
    fn read(
        &self,
        db: &Database,
        dir: &Path,
        log_of_earlier_lives: u64,
        progress: &Progress,
        quantities: &mut AllSeries,
    ) -> Result<()> {
        let (at, stats) = (self.seconds(), db.stats());
        let disk = DiskUse::of_directory(dir).context("reading the directory")?;
        let clients = self.command.writers + OTHER_CLIENTS;
        let load = Load { live_bytes: load::live_bytes(), segment_bytes: SEGMENT_BYTES, clients };
        let mut note = |name, unit, value, bound| quantities.note(at, (name, unit), value, bound);
        let logged_before = progress.logged_before_snapshots.load(Ordering::SeqCst);
        let kept_for_snapshots = stats.log.bytes_written.saturating_sub(logged_before);
        // The first compaction frees the segments that were kept for a snapshot of an earlier life.
        let freed = stats.log.segments_freed * SEGMENT_BYTES;
        let kept = kept_for_snapshots + log_of_earlier_lives.saturating_sub(freed);
        for Quantity { name, value, mut bound } in load.quantities(&stats, &disk) {
            if name == bounds::DISK {
                bound = bound.map(|bound| bound + kept);
            }
            let unit = match name {
                bounds::DISK | bounds::RESERVE => Unit::Disk,
                bounds::VERSIONS | bounds::MEMORY => Unit::Memory,
                _ => Unit::Count,
            };
            note(name, unit, value, bound);
        }
        note("disk", Unit::Disk, disk.bytes(), None);
        note("log", Unit::Disk, disk.log, None);
        note("pages", Unit::Disk, disk.pages, None);
        note("checkpoints", Unit::Disk, disk.checkpoints, None);
        let resident = MEMORY_BUDGET + MEMORY_BUDGET / 10 + OTHER_MEMORY;
        note("resident memory", Unit::Memory, stats.memory.resident, Some(resident));
        note("superseded versions", Unit::Count, stats.versions_waiting, None);
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
        let most = disk.files + OTHER_DESCRIPTORS;
        note("descriptors", Unit::Count, descriptors, Some(most));
        let longest = |of: fn(&WorkerStats) -> Duration| {
            stats.workers.iter().map(of).max().unwrap_or_default().as_micros() as u64
        };
        let wall = longest(|worker| worker.longest_stretch);
        note("longest stretch", Unit::Microseconds, wall, None);
        let cpu = longest(|worker| worker.longest_cpu_stretch);
        note("longest stretch of processor time", Unit::Microseconds, cpu, None);
        let usable = self.usable.load(Ordering::SeqCst);
        note("usable of a small disk", Unit::Disk, usable, None);
        Ok(())
    }

    /// Fills and empties a small disk until the clients stop.
    fn fill_disks(&self, parent: &Path, cycles: &mut FullDisks) -> Result<()> {
        let root = parent.join("small");
        std::fs::create_dir(&root).context("creating a directory for the small disk")?;
        let small = match Faulty::make(Disk::Full, &root) {
            Ok(small) => small,
            Err(error) => {
                cycles.left_out = Some(format!("{error:#}"));
                return Ok(());
            }
        };
        while !self.progress.is_over() {
            let cycle = cycles.usable_bytes.len();
            let usable = full::cycle(&small.database())
                .with_context(|| format!("cycle {cycle} of a full disk"))?;
            self.usable.store(usable, Ordering::SeqCst);
            cycles.usable_bytes.push(usable);
            let first = cycles.usable_bytes[0];
            ensure!(
                usable >= first / 10 * 9,
                "cycle {cycle} of a full disk: {usable} bytes fit, {first} did at first"
            );
        }
        Ok(())
    }
}
