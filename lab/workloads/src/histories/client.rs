//! One client of a history: runs transactions one after another, abandons some, limits their time,
//! or lets them panic.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use braiddb::{Database, Error, Transaction};
use fastrand::Rng;

use super::map::Map;
use super::record::{Ended, Process, Record, Told, Wanted};
use super::tables::Tables;
use super::texts::Texts;
use crate::history::Answer;

/// The number of lists written at the same time, and the number of transactions after which other
/// lists are used.
const LISTS: u64 = 8;
const TRANSACTIONS_PER_LISTS: u64 = 600;
/// The number of registers.
const REGISTERS: u64 = 12;
/// The message of panics on purpose.
pub(super) const ON_PURPOSE: &str = "on purpose";

/// Counters of the clients' work.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: AtomicU64,
    /// Records that reads returned.
    pub(super) records_read: AtomicU64,
    pub(super) committed: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) audits: AtomicU64,
    pub(super) deletions: AtomicU64,
    pub(super) reverse_scans: AtomicU64,
    /// References to values that were read again after other transactions ran.
    pub(super) references_held: AtomicU64,
}

impl Counts {
    /// Counts the answers of a transaction on the map.
    pub(super) fn note(&self, answers: &[Answer]) {
        // Relaxed: sums.
        let add = |counter: &AtomicU64, more: usize| {
            _ = counter.fetch_add(more as u64, Ordering::Relaxed)
        };
        add(&self.operations, answers.len());
        for answer in answers {
            match answer {
                Answer::Got(..) | Answer::Contains(..) => add(&self.records_read, 1),
                Answer::Scanned { reverse, records, .. }
                | Answer::FoundBy { reverse, records, .. } => {
                    add(&self.records_read, records.len());
                    add(&self.reverse_scans, usize::from(*reverse));
                }
                Answer::Deleted(_, there) => add(&self.deletions, usize::from(*there)),
                _ => {}
            }
        }
    }
}

/// The state that the clients of one part of a round share.
pub(super) struct Shared {
    pub(super) db: Database,
    pub(super) tables: Tables,
    pub(super) map: Map,
    pub(super) texts: Texts,
    pub(super) lists: Record,
    pub(super) registers: Record,
    pub(super) counts: Counts,
    /// Transactions that are still to begin.
    pub(super) left: AtomicU64,
    /// The next number for elements and values.
    pub(super) numbers: AtomicU64,
    pub(super) stop: AtomicBool,
    /// The first impossible observation.
    pub(super) problem: Mutex<Option<String>>,
}

/// The time that a client waits for a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Whole,
    Polls(u32),
    For(Duration),
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is ready or the patience ends.
pub(super) fn wait<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    patience: Patience,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut context, start, mut polls) = (Context::from_waker(&waker), Instant::now(), 0);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        polls += 1;
        match patience {
            Patience::Whole => std::thread::park(),
            Patience::Polls(most) if polls >= most => return None,
            Patience::Polls(_) => std::thread::yield_now(),
            Patience::For(most) if start.elapsed() >= most => return None,
            Patience::For(most) => std::thread::park_timeout(most - start.elapsed().min(most)),
        }
    }
}

impl Shared {
    pub(super) fn report_problem(&self, problem: String) {
        self.problem.lock().expect("no thread panics while it is locked").get_or_insert(problem);
        // Relaxed: read before each transaction.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Runs transactions until none are left.
    pub(super) fn client(&self, seed: u64) {
        let random = &mut Rng::with_seed(seed);
        let mut processes = (self.lists.process(), self.registers.process());
        // Relaxed, like the others: unique numbers, and a hint to stop.
        while !self.stop.load(Ordering::Relaxed) {
            let drawn =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            let Ok(left) = drawn else { return };
            match random.u32(0..20) {
                0..7 => self.on_lists(random, &mut processes.0, left),
                7..11 => self.on_registers(random, &mut processes.1),
                11..16 => self.on_the_map(random),
                16..18 => self.on_texts(random),
                _ => self.on_the_bank(random),
            }
        }
    }

    fn number(&self) -> u64 {
        // Relaxed: the counter only makes numbers unique.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn on_lists(&self, random: &mut Rng, process: &mut Process, left: u64) {
        let first = left / TRANSACTIONS_PER_LISTS * LISTS;
        let wanted: Vec<_> = (0..random.u32(1..5))
            .map(|_| {
                let list = first + random.u64(0..LISTS);
                if random.bool() { Wanted::Read(list) } else { Wanted::Append(list, self.number()) }
            })
            .collect();
        let (tables, all, panics) = (self.tables.clone(), wanted.clone(), random.u32(0..50) == 0);
        self.recorded(&self.lists, process, &wanted, random, async move |tx: &Transaction| {
            let told = tables.on_lists(tx, &all).await?;
            assert!(!panics, "{ON_PURPOSE}");
            Ok(told)
        });
    }

    fn on_registers(&self, random: &mut Rng, process: &mut Process) {
        let wanted: Vec<_> = (0..random.u32(1..6))
            .map(|_| {
                let key = random.u64(0..REGISTERS);
                if random.bool() { Wanted::Read(key) } else { Wanted::Write(key, self.number()) }
            })
            .collect();
        let (tables, all, panics) = (self.tables.clone(), wanted.clone(), random.u32(0..50) == 0);
        self.recorded(&self.registers, process, &wanted, random, async move |tx: &Transaction| {
            let told = tables.on_registers(tx, &all).await?;
            assert!(!panics, "{ON_PURPOSE}");
            Ok(told)
        });
    }

    /// Runs a transaction and records its reads.
    fn recorded(
        &self,
        record: &Record,
        process: &mut Process,
        wanted: &[Wanted],
        random: &mut Rng,
        body: impl AsyncFn(&Transaction) -> Result<Vec<Told>, Error> + Send + 'static,
    ) {
        let patience = match random.u32(0..20) {
            0 => Patience::Polls(random.u32(1..4)),
            1 => Patience::For(Duration::from_micros(random.u64(1..300))),
            _ => Patience::Whole,
        };
        record.invoke(process, wanted);
        let run = pin!(self.db.run(body));
        let ended = self.ended(wait(run, patience));
        // Relaxed: sums.
        self.counts.operations.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        if let Ended::Committed(told) = &ended {
            let records = told.iter().map(|told| told.len().max(1) as u64).sum();
            self.counts.records_read.fetch_add(records, Ordering::Relaxed);
        }
        record.complete(process, wanted, &ended);
    }

    fn ended(&self, outcome: Option<Result<Vec<Told>, Error>>) -> Ended {
        let counts = &self.counts;
        // Relaxed: sums.
        let count = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        match outcome {
            None => {
                count(&counts.given_up);
                Ended::Unknown
            }
            Some(Ok(told)) => {
                count(&counts.committed);
                Ended::Committed(told)
            }
            Some(Err(Error::Panicked(message))) if message == ON_PURPOSE => {
                count(&counts.panicked);
                Ended::Failed
            }
            Some(Err(Error::Conflict { .. } | Error::NotSerializable { .. })) => {
                count(&counts.failed);
                Ended::Failed
            }
            // A part of the round ends while transactions are in progress.
            Some(Err(Error::Closed)) => Ended::Unknown,
            Some(Err(error)) => {
                self.report_problem(format!("a transaction failed: {error}"));
                Ended::Unknown
            }
        }
    }

    fn on_the_bank(&self, random: &mut Rng) {
        let (tables, audits) = (self.tables.clone(), random.bool());
        let (way, amount) = ((random.u64(..), random.u64(..)), random.u64(0..200));
        let done = wait(
            pin!(self.db.run(async move |tx: &Transaction| {
                if audits {
                    return tables.audit(tx).await;
                }
                tables.transfer(tx, way, amount).await?;
                Ok(Ok(4))
            })),
            Patience::Whole,
        );
        match done.expect("waited for") {
            Ok(Ok(records)) => {
                // Relaxed: sums.
                self.counts.audits.fetch_add(u64::from(audits), Ordering::Relaxed);
                self.counts.operations.fetch_add(4, Ordering::Relaxed);
                self.counts.records_read.fetch_add(records, Ordering::Relaxed);
            }
            Ok(Err(problem)) => self.report_problem(problem),
            Err(Error::Conflict { .. } | Error::NotSerializable { .. } | Error::Closed) => {}
            Err(error) => self.report_problem(format!("a transaction of the bank failed: {error}")),
        }
    }
}
