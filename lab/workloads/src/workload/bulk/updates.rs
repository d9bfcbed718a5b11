//! A bulk operation that changes every record of a table larger than its memory, while readers run.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use braiddb::{Database, Durability, Transaction};

use super::{RECORD_BYTES, Records, open, value, with_most_versions};
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::harness::spread::Spread;
use crate::random::{Uniform, key_of};
use crate::scale::arguments::Settings;
use crate::workload::bars;
use crate::workload::missing_record;
use crate::workload::points::OPERATIONS;
use crate::workload::stage::Stage;

const ALONE: &str = "readers alone";
const BESIDE: &str = "readers beside a bulk update";

/// The table size as a multiple of its memory; the part of the table that readers use.
const TIMES: u64 = 5;
const PART: u64 = 8;
/// The log's ring, which the budget includes, and the minimum for the rest.
const RING_BYTES: u64 = 32 << 20;
const MIN_BYTES: u64 = 4 << 20;

/// The results of bulk updates over all rounds.
#[derive(Debug, Default)]
struct Updates {
    rounds: Cell<u64>,
    rates: std::cell::RefCell<Vec<f64>>,
    versions: Cell<u64>,
    resident: Cell<u64>,
}

/// Readers of a part of a table on one worker. They run for some time, or until a bulk operation
/// has changed all records.
struct Readers {
    name: &'static str,
    database: Database,
    table: Records,
    records: u64,
    seed: u64,
    updates: Option<Rc<Updates>>,
}

impl Readers {
    /// Returns the result of `work`, which runs while a worker runs readers, and the result of the
    /// readers.
    fn read_beside<T>(
        &mut self,
        worker: usize,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, Sample), Error> {
        self.seed += 1;
        let mut uniform = Uniform::below((self.records / PART).max(1), self.seed);
        let (stop, drawn) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (told, count) = (stop.clone(), drawn.clone());
        // Relaxed: a few additional transactions do no harm, and the count is read when the source
        // has ended.
        let keys = std::iter::from_fn(move || {
            count.fetch_add(1, Ordering::Relaxed);
            (!told.load(Ordering::Relaxed)).then(|| uniform.keys::<OPERATIONS>())
        });
        let table = self.table.clone();
        let body = async move |tx: &Transaction, keys: &[u64; OPERATIONS]| {
            for key in keys {
                let value = tx.get(&table, key).await?.ok_or_else(missing_record)?;
                std::hint::black_box(value);
            }
            Ok(())
        };
        let begin = Instant::now();
        let run = self.database.run_source(worker, keys, body)?;
        let result = work();
        // Relaxed: a late read costs only a few transactions.
        stop.store(true, Ordering::Relaxed);
        run.wait()?;
        // The last call only found that it should stop. Relaxed: the run was waited for, so the
        // source has ended.
        let transactions = drawn.load(Ordering::Relaxed) - 1;
        let sample = Sample::plain(transactions, begin.elapsed(), Latencies::one_in(1));
        Ok((result?, sample))
    }

    /// Changes every record in one bulk operation while readers run on the next worker.
    fn update_beside(&mut self, updates: &Updates) -> Result<Sample, Error> {
        let (begun, worker) = mpsc::channel();
        let (table, fill) = (self.table.clone(), updates.rounds.get() + 1);
        let body = async move |tx: &Transaction| {
            // The send fails only if the receiver no longer waits.
            _ = begun.send(std::thread::current().name().map(str::to_owned));
            let mut changed = 0;
            let mut scan = tx.scan(&table, ..)?;
            while let Some((key, before)) = scan.next().await? {
                let after = value(u64::from(before[0]) + 1);
                tx.update(&table, &key, &after).await?;
                changed += 1;
            }
            Ok(changed)
        };
        let update = self.database.run_bulk(&self.table, body);
        let workers = self.database.stats().workers.len();
        let database = self.database.clone();
        let ((changed, time, versions), sample) = std::thread::scope(|scope| {
            let begin = Instant::now();
            let updating = scope.spawn(move || (pollster::block_on(update), begin.elapsed()));
            // The thread name of a worker contains its number.
            let name = worker.recv().ok().flatten();
            let number = name.and_then(|name| name.rsplit_once('-')?.1.parse::<usize>().ok());
            let next = number.map_or(0, |number| (number + 1) % workers);
            let wait = || -> Result<_, Error> {
                let join =
                    || updating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let ((changed, time), versions) = with_most_versions(&database, join);
                Ok((changed?, time, versions))
            };
            self.read_beside(next, wait)
        })?;
        if changed != self.records {
            let there = self.records;
            return Err(Error::Wrong(format!(
                "a bulk operation changed {changed} records of {there}"
            )));
        }
        updates.rounds.set(fill);
        updates.rates.borrow_mut().push(changed as f64 / time.as_secs_f64());
        updates.versions.set(updates.versions.get().max(versions));
        let resident = self.database.stats().memory.resident;
        updates.resident.set(updates.resident.get().max(resident));
        Ok(sample)
    }
}

impl Subject for Readers {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        if let Some(updates) = self.updates.clone() {
            return self.update_beside(&updates);
        }
        let time = match effort {
            Effort::Seconds(seconds) => Duration::from_secs_f64(seconds),
            Effort::Transactions(_) => Duration::from_secs(1),
        };
        let rest = || {
            std::thread::sleep(time);
            Ok(())
        };
        Ok(self.read_beside(0, rest)?.1)
    }
}

/// Loads all records in bulk.
async fn load(database: &Database, table: &Records, records: u64) -> braiddb::Result<()> {
    let kept = table.clone();
    let insert = async move |tx: &Transaction| {
        for record in 0..records {
            tx.insert(&kept, &key_of(record), &value(0)).await?;
        }
        Ok(())
    };
    database.run_bulk(table, insert).await
}

pub(super) fn measure(
    stage: &mut Stage,
    settings: &Settings,
    place: &Place,
) -> Result<Report, Error> {
    let records = settings.records;
    let budget = (records * RECORD_BYTES / TIMES).max(MIN_BYTES) + RING_BYTES;
    let opening = Opening::braided(settings).durability(Durability::Group);
    let (database, table) = open(place, "updated", opening, Some(budget))?;
    stage.progress.doing(format!("loading {} records", number::grouped(records)));
    pollster::block_on(load(&database, &table, records))?;
    let updates = Rc::<Updates>::default();
    let readers = |name, seed, updates| Readers {
        name,
        database: database.clone(),
        table: table.clone(),
        records,
        seed,
        updates,
    };
    let subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(readers(ALONE, settings.seed << 32, None)),
        Box::new(readers(BESIDE, (settings.seed + 1) << 32, Some(updates.clone()))),
    ];
    let what = format!(
        "10 reads of an eighth of a paged table {TIMES} times as large as its memory, on one worker of {}, durable",
        settings.workers
    );
    let mut report = stage.measure("bulk-update", what, settings, subjects)?;
    report.notes.push(place.describe());
    let judged = records >= bars::BULK_RECORDS && !settings.quick;
    let over = report.ratio(BESIDE, ALONE);
    report.bar("readers beside a bulk update over alone", bars::READERS_BESIDE_BULK, over, judged);
    if let Some(rate) = Spread::of(updates.rates.borrow().iter().copied()) {
        let text = format!(
            "{} ({} to {})",
            number::scaled(rate.median),
            number::scaled(rate.min),
            number::scaled(rate.max)
        );
        report.fact("records changed a second, in bulk", rate.median, text);
    }
    let versions = updates.versions.get();
    report.fact("memory of versions, at most", versions as f64, number::bytes(versions));
    let resident = updates.resident.get();
    report.fact("memory of the process, at most", resident as f64, number::bytes(resident));
    report.fact("memory budget", budget as f64, number::bytes(budget));
    check(&database, &table, updates.rounds.get())?;
    database.close()?;
    Ok(report)
}

/// Checks that every record was changed this number of times.
fn check(database: &Database, table: &Records, rounds: u64) -> Result<(), Error> {
    let (table, expected) = (table.clone(), value(rounds));
    let count = async move |tx: &Transaction| {
        let (mut scan, mut others) = (tx.scan(&table, ..)?, 0_u64);
        while let Some((_, value)) = scan.next().await? {
            others += u64::from(*value != expected);
        }
        Ok(others)
    };
    match database.run_blocking(count)? {
        0 => Ok(()),
        others => Err(Error::Wrong(format!("{others} records miss an update"))),
    }
}
