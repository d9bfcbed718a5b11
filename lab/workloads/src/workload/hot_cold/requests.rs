//! The transactions: ten reads, or read-modify-writes, of hot records. Storage-bound transactions
//! have eight of these and two reads of cold records. Also measures each class.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braiddb::{Error as BraidError, Transaction};

use super::tables::HotCold;
use crate::engine::drive::{Driven, Procedure};
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::Uniform;
use crate::workload::missing_record;
use crate::workload::points::OPERATIONS;

/// The number of cold operations in a storage-bound transaction.
pub(super) const COLD_READS: usize = 2;
/// One hot transaction in this number is timed, and every storage-bound one.
const TIMED_ONE_IN: u64 = 16;

/// The mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    /// Percent of transactions that are storage-bound.
    pub(super) cold: u32,
    /// Percent that modify the hot records they read.
    pub(super) updates: u32,
    pub(super) nesting: Nesting,
}

/// The way in which a transaction calls the engine (MosaicDB §6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    /// One state machine, which the compiler generates from nested `async fn`s.
    Flattened,
    /// Boxed futures for reads that may need storage.
    Selective,
    /// Boxed futures for all operations.
    Boxed,
}

impl Mix {
    /// Returns a mix of flattened reads.
    pub(super) fn reads(cold: u32) -> Self {
        Self { cold, updates: 0, nesting: Nesting::Flattened }
    }
}

/// The inputs of one transaction.
pub(super) struct Request {
    hot: [u64; OPERATIONS],
    /// Keys of cold records, which replace the first hot ones.
    cold: Option<[u64; COLD_READS]>,
    update: bool,
    asked: Option<Instant>,
}

/// Draws requests and runs them.
#[derive(Clone)]
struct Requests {
    tables: HotCold,
    mix: Mix,
    hot: Uniform,
    cold: Uniform,
    dice: Uniform,
    drawn: u64,
    classes: Arc<[Class; 2]>,
}

/// The measurements of hot transactions or of storage-bound ones.
#[derive(Debug)]
struct Class {
    done: AtomicU64,
    shed: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl Class {
    fn new() -> Self {
        let (done, shed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { done, shed, latencies: Mutex::new(Latencies::one_in(1)) }
    }

    fn clear(&self) {
        // Relaxed: no transaction runs, and locks order this before the next ones.
        self.done.store(0, Ordering::Relaxed);
        self.shed.store(0, Ordering::Relaxed);
        *self.latencies.lock().expect("no thread panics while it is locked") = Latencies::one_in(1);
    }
}

impl Requests {
    fn on(tables: &HotCold, mix: Mix, classes: &Arc<[Class; 2]>, seed: u64) -> Self {
        Self {
            tables: tables.clone(),
            mix,
            hot: Uniform::below(tables.hot.records, seed),
            cold: Uniform::below(tables.cold_records, !seed),
            dice: Uniform::below(100, seed ^ 0x5EED),
            drawn: 0,
            classes: classes.clone(),
        }
    }

    async fn read_cold(&self, tx: &Transaction, key: &u64) -> Result<(), BraidError> {
        let value = tx.get(&self.tables.cold, key).await?.ok_or_else(missing_record)?;
        std::hint::black_box(value);
        Ok(())
    }

    async fn touch_hot(&self, tx: &Transaction, key: &u64, update: bool) -> Result<(), BraidError> {
        let table = &self.tables.hot.table;
        let value = tx.get(table, key).await?.ok_or_else(missing_record)?;
        if update {
            return tx.update(table, key, &value.wrapping_add(1)).await;
        }
        std::hint::black_box(value);
        Ok(())
    }

    async fn body(&self, tx: &Transaction, request: &Request) -> Result<(), BraidError> {
        let mut skipped = 0;
        if let Some(cold) = &request.cold {
            for key in cold {
                match self.mix.nesting {
                    Nesting::Flattened => self.read_cold(tx, key).await?,
                    _ => Box::pin(self.read_cold(tx, key)).await?,
                }
            }
            skipped = COLD_READS;
        }
        for key in &request.hot[skipped..] {
            match self.mix.nesting {
                Nesting::Boxed => Box::pin(self.touch_hot(tx, key, request.update)).await?,
                _ => self.touch_hot(tx, key, request.update).await?,
            }
        }
        Ok(())
    }
}

impl Procedure for Requests {
    type Input = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        let bound = self.dice.record() < u64::from(self.mix.cold);
        let update = self.mix.updates > 0 && self.dice.record() < u64::from(self.mix.updates);
        self.drawn += 1;
        let timed = bound || self.drawn.is_multiple_of(TIMED_ONE_IN);
        Request {
            hot: self.hot.keys(),
            cold: bound.then(|| self.cold.keys()),
            update,
            asked: timed.then(Instant::now),
        }
    }

    #[inline]
    async fn run(&self, tx: &Transaction, request: &Request) -> Result<(), BraidError> {
        let result = self.body(tx, request).await;
        let class = &self.classes[usize::from(request.cold.is_some())];
        // Relaxed: read after the workers' locks, when they have finished.
        match result {
            Ok(()) => _ = class.done.fetch_add(1, Ordering::Relaxed),
            Err(BraidError::Overloaded) => {
                class.shed.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            other => return other,
        }
        if let Some(asked) = request.asked {
            let mut latencies =
                class.latencies.lock().expect("no thread panics while it is locked");
            latencies.record(asked.elapsed());
        }
        Ok(())
    }
}

/// A mix on one set of tables, as a subject that measures each class separately.
pub(super) struct Mixed {
    name: String,
    driven: Box<dyn Subject>,
    figures: ClassFigures,
    warm: bool,
}

/// The results of a subject's classes, reported after its rounds. Cheap to clone.
#[derive(Clone)]
pub(super) struct ClassFigures {
    name: String,
    classes: Arc<[Class; 2]>,
    elapsed: Arc<Mutex<Duration>>,
}

impl Mixed {
    pub(super) fn new(name: String, tables: &HotCold, mix: Mix, seed: u64) -> Self {
        let classes = Arc::new([Class::new(), Class::new()]);
        let figures =
            ClassFigures { name: name.clone(), classes: classes.clone(), elapsed: Arc::default() };
        let (database, tables) = (tables.hot.database.clone(), tables.clone());
        let workers = database.stats().workers.len();
        let make = move |seed| Requests::on(&tables, mix, &classes, seed);
        let driven = Box::new(Driven::new(&name, &database, workers, seed, make));
        Self { name, driven, figures, warm: false }
    }

    pub(super) fn figures(&self) -> ClassFigures {
        self.figures.clone()
    }
}

impl Subject for Mixed {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let sample = self.driven.round(effort)?;
        let mut elapsed = self.figures.elapsed.lock().expect("no thread panics while it is locked");
        if std::mem::replace(&mut self.warm, true) {
            *elapsed += sample.elapsed;
        } else {
            self.figures.classes.iter().for_each(Class::clear);
        }
        Ok(sample)
    }
}

impl ClassFigures {
    /// Returns hot and storage-bound transactions per second over all rounds.
    pub(super) fn rates(&self) -> [f64; 2] {
        let elapsed =
            self.elapsed.lock().expect("no thread panics while it is locked").as_secs_f64();
        // Relaxed: the workers have finished.
        [0, 1].map(|class| self.classes[class].done.load(Ordering::Relaxed) as f64 / elapsed)
    }

    /// Adds to a report the latency of each class from request to result, and the number of shed
    /// requests.
    pub(super) fn add_to(&self, report: &mut Report) {
        for (class, name) in self.classes.iter().zip(["hot", "storage-bound"]) {
            let latencies = class.latencies.lock().expect("no thread panics while it is locked");
            let Some(summary) = latencies.summary() else { continue };
            let at = |wanted: &str| {
                let mut all = summary.percentiles.iter();
                all.find(|percentile| percentile.name == wanted).map_or(0, |p| p.nanoseconds)
            };
            let text = ["p50", "p99", "p99.9"]
                .map(|name| format!("{name} {:.0?}", Duration::from_nanos(at(name))));
            let what = format!("latency, {}, {name}", self.name);
            report.fact(what, at("p99") as f64, text.join(", "));
            // Relaxed: the workers have finished.
            let shed = class.shed.load(Ordering::Relaxed);
            if shed > 0 {
                let what = format!("shed, {}, {name}", self.name);
                report.fact(what, shed as f64, number::grouped(shed));
            }
        }
    }
}
