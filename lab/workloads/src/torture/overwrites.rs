//! Steady overwrites: 64 clients overwrite random records for some time. Reports how much disk the
//! database takes compared with its data, how long a checkpoint takes under the load, and how long
//! the next opening takes, for both kinds of tables, two durabilities and three sizes of values.
//! Checks that the space is within its bound (`docs/internals/bounds.md`); the goal is lower.

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Durability, Error, Options, Table, TableOptions};
use futures_util::stream::{FuturesUnordered, StreamExt};
use pollster::block_on;
use serde::Serialize;

use super::Command;
use crate::bounds::{self, DiskUse};
use crate::harness::number::bytes;

/// Bytes of values of the table.
const DATA_BYTES: u64 = 128 << 20;
const CLIENTS: u64 = 64;
/// Sizes of values: small, and large in two sizes. A quarter of the small ones are large for a page.
const SIZES: [RangeInclusive<usize>; 3] = [900..=1100, 5000..=5000, 100_000..=100_000];
/// The most disk space that a database should take, as a multiple of its data.
const DISK_GOAL: f64 = 5.0;
/// Segments of a database with default options.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Time between the measured checkpoint and the end of the load, whose log the next opening replays.
const AFTER_CHECKPOINT: Duration = Duration::from_secs(3);
/// Limits of a run.
const MAX_CHECKPOINT: Duration = Duration::from_secs(60);
const MAX_OPENING: Duration = Duration::from_secs(10);
/// Time between two readings of the directory.
const INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of values that a transaction writes while the table is filled.
const BATCH_BYTES: usize = 1 << 20;

type Records = Table<u64, [u8]>;

/// The results for one load.
#[derive(Debug, Serialize)]
struct Outcome {
    kind: &'static str,
    durability: &'static str,
    value_bytes: RangeInclusive<usize>,
    overwrites_per_second: u64,
    /// Most and last bytes of the directory, as multiples of the data.
    most_disk: f64,
    last_disk: f64,
    /// The directory when it was largest.
    disk: DiskUse,
    checkpoint_seconds: f64,
    opening_seconds: f64,
}

/// Runs each load for `seconds`.
///
/// # Errors
/// A figure above its limit, or a failure to run.
pub(super) fn run(command: &Command, seconds: u64, json: bool) -> Result<()> {
    let mut out = std::io::stdout();
    let (mut exceeded, mut above_goal) = (Vec::new(), 0);
    if !json {
        writeln!(
            out,
            "kind    durability  bytes of values  overwrites/s  disk × data (last)  log, pages, \
             checkpoints, reserve      checkpoint  opening"
        )?;
    }
    for durability in [("relaxed", Durability::Relaxed), ("group", Durability::Group)] {
        for kind in
            [("memory", TableOptions::default()), ("paged", TableOptions::default().paged())]
        {
            for size in SIZES {
                let load = Load { durability, kind, size, seconds, writers: CLIENTS };
                if !load.name().contains(&command.load) {
                    continue;
                }
                let directory = command.directory()?;
                let outcome = load.run(&directory.path().join("database"), command)?;
                outcome.write(&mut out, json)?;
                exceeded.extend(outcome.exceeded());
                above_goal += u32::from(outcome.most_disk > DISK_GOAL);
            }
        }
    }
    if !json {
        writeln!(out, "{above_goal} loads took more than {DISK_GOAL} × their data")?;
    }
    ensure!(exceeded.is_empty(), "above the limit: {}", exceeded.join("; "));
    Ok(())
}

struct Load {
    durability: (&'static str, Durability),
    kind: (&'static str, TableOptions),
    size: RangeInclusive<usize>,
    seconds: u64,
    writers: u64,
}

impl Load {
    fn name(&self) -> String {
        format!("{}, {}, {:?} bytes", self.kind.0, self.durability.0, self.size)
    }

    fn run(self, dir: &Path, command: &Command) -> Result<Outcome> {
        let options = Options::default().workers(command.workers).durability(self.durability.1);
        let db = Database::open(dir, options.clone()).context("opening")?;
        let kind = self.kind.1;
        let open = async move |tx: &braiddb::Transaction| {
            tx.open_or_create_table_with("records", kind).await
        };
        let table: Records = db.run_blocking(open).context("creating the table")?;
        let mean = (self.size.start() + self.size.end()) / 2;
        let keys = DATA_BYTES / mean as u64;
        self.fill(&db, &table, keys).context("filling the table")?;
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut most, mut last) = (DiskUse::default(), DiskUse::default());
        let begin = Instant::now();
        let mut checkpoint = Duration::ZERO;
        let live_bytes = keys * (size_of::<u64>() + mean) as u64;
        let bounds =
            bounds::Load { live_bytes, segment_bytes: SEGMENT_BYTES, clients: self.writers };
        std::thread::scope(|scope| {
            let writing =
                scope.spawn(|| self.overwrite(&db, &table, (keys, command.seed), &stop, &written));
            let mut watch = |until: Duration| -> Result<()> {
                while begin.elapsed() < until && !writing.is_finished() {
                    std::thread::sleep(INTERVAL);
                    last = DiskUse::of_directory(dir).context("reading the directory")?;
                    bounds.check(&db.stats(), &last).context("a bound is exceeded")?;
                    if last.bytes() > most.bytes() {
                        most = last;
                    }
                }
                Ok(())
            };
            let mut measure = || -> Result<()> {
                watch(Duration::from_secs(self.seconds))?;
                let start = Instant::now();
                while let Err(error) = block_on(db.checkpoint()) {
                    ensure!(matches!(error, Error::Busy(_)), "a checkpoint: {error}");
                    ensure!(start.elapsed() < MAX_CHECKPOINT, "no checkpoint ends");
                    std::thread::sleep(Duration::from_millis(10));
                }
                checkpoint = start.elapsed();
                watch(begin.elapsed() + AFTER_CHECKPOINT)
            };
            let measured = measure();
            stop.store(true, Ordering::SeqCst);
            writing.join().expect("writers do not panic").and(measured)
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        db.close().context("closing")?;
        let start = Instant::now();
        let db = Database::open(dir, options).context("opening again")?;
        let opening = start.elapsed();
        db.close().context("closing again")?;
        let of_data = |disk: &DiskUse| disk.bytes() as f64 / DATA_BYTES as f64;
        Ok(Outcome {
            kind: self.kind.0,
            durability: self.durability.0,
            value_bytes: self.size,
            overwrites_per_second: (written.into_inner() as f64 / seconds) as u64,
            most_disk: of_data(&most),
            last_disk: of_data(&last),
            disk: most,
            checkpoint_seconds: checkpoint.as_secs_f64(),
            opening_seconds: opening.as_secs_f64(),
        })
    }

    fn fill(&self, db: &Database, table: &Records, keys: u64) -> Result<(), Error> {
        let batch = (BATCH_BYTES / self.size.end()).max(1);
        for first in (0..keys).step_by(batch) {
            let (table, size) = (table.clone(), self.size.clone());
            db.run_blocking(async move |tx| {
                for key in first..keys.min(first + batch as u64) {
                    tx.put(&table, &key, &vec![key as u8; *size.end()][..]).await?;
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }

    fn overwrite(
        &self,
        db: &Database,
        table: &Records,
        (keys, seed): (u64, u64),
        stop: &AtomicBool,
        written: &AtomicU64,
    ) -> Result<()> {
        let client = async |client: u64| {
            let mut random = fastrand::Rng::with_seed(seed ^ client << 32);
            while !stop.load(Ordering::SeqCst) {
                let value = vec![random.u8(..); random.usize(self.size.clone())];
                db.put(table, &random.u64(..keys), &value[..]).await.context("overwriting")?;
                written.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, anyhow::Error>(())
        };
        let mut writing: FuturesUnordered<_> = (0..self.writers).map(client).collect();
        block_on(async {
            while let Some(result) = writing.next().await {
                result?;
            }
            Ok(())
        })
    }
}

impl Outcome {
    fn write(&self, out: &mut impl Write, json: bool) -> Result<()> {
        if json {
            return Ok(writeln!(out, "{}", serde_json::to_string(self)?)?);
        }
        let DiskUse { log, pages, checkpoints, reserve, .. } = self.disk;
        let kinds = [log, pages, checkpoints, reserve].map(bytes).join(", ");
        writeln!(
            out,
            "{:<6}  {:<10}  {:>15}  {:>12}  {:>11.1} ({:.1})  {kinds:>48}  {:>8.1} s  {:>5.1} s",
            self.kind,
            self.durability,
            format!("{}..{}", self.value_bytes.start(), self.value_bytes.end()),
            self.overwrites_per_second,
            self.most_disk,
            self.last_disk,
            self.checkpoint_seconds,
            self.opening_seconds
        )?;
        Ok(())
    }

    /// Names the figures above their limits.
    fn exceeded(&self) -> Vec<String> {
        let figures = [
            ("s for a checkpoint", self.checkpoint_seconds, MAX_CHECKPOINT.as_secs_f64()),
            ("s to open", self.opening_seconds, MAX_OPENING.as_secs_f64()),
        ];
        let above = figures.into_iter().filter(|(_, value, limit)| value > limit);
        let load = format!("{}, {}, {:?} bytes", self.kind, self.durability, self.value_bytes);
        above
            .map(|(name, value, limit)| format!("{load}: {value:.1} {name}, limit {limit}"))
            .collect()
    }
}
