//! Runs transactions through the engine from typed sources, whose futures are stored unboxed in the
//! workers' slots. Only this file depends on the shape of the engine's sources.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braiddb::{Database, Isolation, Transaction, TransactionBuilder};

use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::rounds::{AbortCount, Effort, KindSample, Sample, Subject};

/// In timed runs, the number of transactions between two reads of the clock: a read of the clock
/// costs as much as a cached read.
const CLOCK_PERIOD: u64 = 64;

/// The cause of failed attempts: another transaction wrote a record first.
pub const CONFLICT: &str = "conflict";
/// The cause of failed attempts: a record that was read has changed.
pub const CERTIFICATION: &str = "certification";

/// A stored procedure: draws its inputs, runs as a transaction and retries after a conflict.
pub trait Procedure: Clone + Send + 'static {
    /// The inputs of one transaction.
    type Input: 'static;
    /// The names of the kinds of transactions.
    const KINDS: &'static [&'static str] = &["all"];
    /// Draws the next transaction's inputs.
    fn draw(&mut self) -> Self::Input;
    /// Returns the kind of a transaction as an index into `KINDS`.
    fn kind(_input: &Self::Input) -> usize {
        0
    }
    /// Returns true if a committed transaction did not find the records it should read or change,
    /// in workloads with such transactions.
    fn is_unsuccessful(_input: &Self::Input) -> bool {
        false
    }
    /// Runs the transaction.
    fn run(
        &self,
        transaction: &Transaction,
        input: &Self::Input,
    ) -> impl Future<Output = Result<(), braiddb::Error>>;
}

/// Runs one procedure from `make` on each of the first `workers` workers.
pub fn drive<P: Procedure>(
    database: &Database,
    workers: usize,
    make: impl FnMut(usize) -> P,
    effort: Effort,
    timed_one_in: u32,
) -> Result<Sample, Error> {
    drive_with(&database.transaction(), workers, make, effort, timed_one_in)
}

/// Drives like `drive`, with the options of `transaction`.
fn drive_with<P: Procedure>(
    transaction: &TransactionBuilder,
    workers: usize,
    mut make: impl FnMut(usize) -> P,
    effort: Effort,
    timed_one_in: u32,
) -> Result<Sample, Error> {
    assert!(workers > 0, "at least one thread is required");
    let begin = Instant::now();
    let mut runs = Vec::with_capacity(workers);
    let mut totals = Vec::with_capacity(workers);
    for worker in 0..workers {
        let (procedure, total) = (make(worker), Arc::new(Mutex::new(None)));
        let share = share_of(effort, worker, workers);
        let stream =
            Stream { procedure: procedure.clone(), share, timed_one_in, total: total.clone() };
        let body = async move |tx: &Transaction, call: &Call<P>| {
            if tx.attempt() > 1 {
                let conflicts = &call.gathered.kinds[call.kind].conflicts;
                conflicts.set(conflicts.get() + 1);
            }
            procedure.run(tx, &call.input).await
        };
        let reply = |_, result: Result<_, braiddb::Error>| result.map(drop);
        runs.push(transaction.clone().run_source(worker, stream, body, reply)?);
        totals.push(total);
    }
    // Waits for all runs before it reports a failure, so that no run overlaps the next measurement.
    let results: Vec<_> = runs.into_iter().map(braiddb::SourceRun::wait).collect();
    results.into_iter().collect::<Result<(), _>>()?;
    let elapsed = begin.elapsed();
    let none = |name: &&'static str| KindSample {
        name,
        transactions: 0,
        unsuccessful: 0,
        conflicts: 0,
        latencies: Latencies::one_in(timed_one_in),
    };
    let mut kinds: Vec<KindSample> = P::KINDS.iter().map(none).collect();
    for total in totals {
        let total = total.lock().expect("no thread panics while it is locked").take();
        let total: Vec<Total> = total.expect("a source that is done has left its total");
        for (kind, total) in kinds.iter_mut().zip(total) {
            kind.transactions += total.transactions;
            kind.unsuccessful += total.unsuccessful;
            kind.conflicts += total.conflicts;
            kind.latencies.merge(&total.latencies);
        }
    }
    Ok(in_all(kinds, elapsed, timed_one_in))
}

/// Returns the sample of all kinds together; does not list a single kind separately.
fn in_all(kinds: Vec<KindSample>, elapsed: Duration, timed_one_in: u32) -> Sample {
    let mut sample = Sample::plain(0, elapsed, Latencies::one_in(timed_one_in));
    for kind in &kinds {
        sample.transactions += kind.transactions;
        sample.conflicts += kind.conflicts;
        sample.latencies.merge(&kind.latencies);
    }
    if kinds.len() > 1 {
        sample.kinds = kinds;
    }
    sample
}

/// Returns a worker's share of an effort.
fn share_of(effort: Effort, worker: usize, workers: usize) -> Effort {
    match effort {
        Effort::Seconds(seconds) => Effort::Seconds(seconds),
        Effort::Transactions(count) => {
            let (worker, workers) = (worker as u64, workers as u64);
            Effort::Transactions(count / workers + u64::from(worker < count % workers))
        }
    }
}

/// The results of a worker's transactions by kind, for the thread that waits for them.
struct Total {
    transactions: u64,
    unsuccessful: u64,
    conflicts: u64,
    latencies: Latencies,
}

/// The inputs of one worker, before they reach it.
struct Stream<P> {
    procedure: P,
    share: Effort,
    timed_one_in: u32,
    total: Arc<Mutex<Option<Vec<Total>>>>,
}

impl<P: Procedure> IntoIterator for Stream<P> {
    type Item = Call<P>;
    type IntoIter = Calls<P>;

    fn into_iter(self) -> Calls<P> {
        let none = |_: &&str| GatheredKind {
            finished: Cell::new(0),
            unsuccessful: Cell::new(0),
            conflicts: Cell::new(0),
            latencies: RefCell::new(Latencies::one_in(1)),
        };
        let kinds = P::KINDS.iter().map(none).collect();
        let gathered = Gathered { kinds, total: self.total };
        let (left, end) = match self.share {
            Effort::Transactions(count) => (count, None),
            Effort::Seconds(seconds) => {
                (u64::MAX, Some(Instant::now() + Duration::from_secs_f64(seconds)))
            }
        };
        Calls {
            procedure: self.procedure,
            started: 0,
            left,
            end,
            timer: Latencies::one_in(self.timed_one_in),
            gathered: Rc::new(gathered),
        }
    }
}

/// The inputs of one worker, drawn when a slot becomes free.
struct Calls<P> {
    procedure: P,
    started: u64,
    left: u64,
    end: Option<Instant>,
    /// Determines only which transactions are timed.
    timer: Latencies,
    gathered: Rc<Gathered>,
}

impl<P: Procedure> Iterator for Calls<P> {
    type Item = Call<P>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let look = self.started.is_multiple_of(CLOCK_PERIOD);
        if self.left == 0 || (look && self.end.is_some_and(|end| Instant::now() >= end)) {
            return None;
        }
        self.left -= 1;
        self.started += 1;
        let (start, input) = (self.timer.start(), self.procedure.draw());
        Some(Call { kind: P::kind(&input), input, start, gathered: self.gathered.clone() })
    }
}

/// The inputs of one transaction. The engine drops them when the transaction has ended: it
/// committed, or its failure was reported as the source's failure.
struct Call<P: Procedure> {
    input: P::Input,
    kind: usize,
    start: Option<Instant>,
    gathered: Rc<Gathered>,
}

impl<P: Procedure> Drop for Call<P> {
    #[inline]
    fn drop(&mut self) {
        let kind = &self.gathered.kinds[self.kind];
        kind.finished.set(kind.finished.get() + 1);
        if P::is_unsuccessful(&self.input) {
            kind.unsuccessful.set(kind.unsuccessful.get() + 1);
        }
        if self.start.is_some() {
            kind.latencies.borrow_mut().finish(self.start);
        }
    }
}

/// The collected results of one worker's transactions; the last transaction stores them in `total`.
struct Gathered {
    kinds: Vec<GatheredKind>,
    total: Arc<Mutex<Option<Vec<Total>>>>,
}

struct GatheredKind {
    finished: Cell<u64>,
    unsuccessful: Cell<u64>,
    conflicts: Cell<u64>,
    latencies: RefCell<Latencies>,
}

impl Drop for Gathered {
    fn drop(&mut self) {
        let total = |kind: &GatheredKind| Total {
            transactions: kind.finished.get(),
            unsuccessful: kind.unsuccessful.get(),
            conflicts: kind.conflicts.get(),
            latencies: kind.latencies.borrow().clone(),
        };
        let total = self.kinds.iter().map(total).collect();
        *self.total.lock().expect("no thread panics while it is locked") = Some(total);
    }
}

/// A subject that runs a procedure on a database.
pub struct Driven<M> {
    name: String,
    database: Database,
    workers: usize,
    make: M,
    timed_one_in: u32,
    seed: u64,
    transaction: TransactionBuilder,
}

impl<P: Procedure, M: FnMut(u64) -> P> Driven<M> {
    /// Returns a subject on the first `workers` workers of `database`. `make` creates a worker's
    /// procedure from a seed that differs for every worker and round.
    pub fn new(name: &str, database: &Database, workers: usize, seed: u64, make: M) -> Self {
        let (name, database) = (name.to_owned(), database.clone());
        let transaction = database.transaction();
        Self { name, database, workers, make, timed_one_in: 16, seed: seed << 32, transaction }
    }

    /// Sets the isolation level of the transactions.
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { transaction: self.transaction.isolation(isolation), ..self }
    }

    /// Sets whether the transactions only read.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { transaction: self.transaction.read_only(read_only), ..self }
    }

    /// Times every `period`-th transaction (default: 16).
    pub fn time_one_in(self, period: u32) -> Self {
        Self { timed_one_in: period, ..self }
    }
}

impl<P: Procedure, M: FnMut(u64) -> P> Subject for Driven<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let Self { database, make, seed, transaction, .. } = self;
        #[cfg(test)]
        crate::limit::working_on(database);
        let make = |_worker| {
            *seed += 1;
            make(*seed)
        };
        let before = database.stats().aborted;
        let mut sample = drive_with(transaction, self.workers, make, effort, self.timed_one_in)?;
        let after = database.stats().aborted;
        sample.aborts = vec![
            AbortCount { cause: CONFLICT, attempts: after.conflict - before.conflict },
            AbortCount {
                cause: CERTIFICATION,
                attempts: after.certification - before.certification,
            },
        ];
        Ok(sample)
    }
}
