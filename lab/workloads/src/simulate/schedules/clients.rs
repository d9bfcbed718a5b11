//! Clients of a schedule: run transactions of every kind, drop some of them, and run maintenance.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use braiddb::simulation::{give_way, pause};
use braiddb::{BusyWith, Database, Error, Outcome, Transaction, TransactionEnd};
use fastrand::Rng;

use super::super::oracle::{Number, Oracle};
use super::super::work::{Activity, Failure, SourceFailures, Tables};
use super::feeds::Feeds;
use super::histories::Histories;
use super::indexed::Indexed;
use super::records::{self, Records};

pub(super) const NO_PANIC: &str = "no thread panics while it is locked";

/// The main work of the clients in one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All kinds of work.
    All,
    /// Read and write the same few records, and check that the values read are consistent.
    Turns,
    /// Create and delete records, so that index nodes split and merge.
    Records,
    /// Record every answer and check it against the serial order.
    History,
    /// Write to a table with indexes, and create and drop indexes.
    Indexes,
    /// Write to a table and follow its changes.
    Feeds,
}

/// One transaction in `BLOCKING` blocks its worker's thread for this number of microseconds. This
/// is longer than the delay until other workers take over the transactions sent to that worker.
const BLOCKING: u64 = 16;
/// One transaction in `BULK` is a bulk operation, in databases with paged tables.
const BULK: u64 = 4;
const BLOCKED: u64 = 30_000;

/// One schedule in this number records histories.
const HISTORIES: u64 = 5;
/// One schedule in this number uses indexes.
const INDEXES: u64 = 4;
/// One schedule in this number uses change feeds.
const FEEDS: u64 = 8;

impl Mix {
    pub(super) fn draw(seed: u64, random: &mut Rng) -> Self {
        if seed.is_multiple_of(HISTORIES) {
            return Self::History;
        }
        if seed % INDEXES == 1 {
            return Self::Indexes;
        }
        match random.u32(0..4) {
            _ if Self::is_of_feeds(seed) => Self::Feeds,
            0 => Self::Turns,
            1 => Self::Records,
            _ => Self::All,
        }
    }

    /// Returns true if a seed's schedule uses change feeds.
    pub(super) fn is_of_feeds(seed: u64) -> bool {
        seed % FEEDS == FEEDS - 1 && !seed.is_multiple_of(HISTORIES)
    }

    /// Returns true if a seed's schedule has more tables than usual.
    pub(super) fn has_more_tables(seed: u64) -> bool {
        seed % INDEXES == 1 || Self::is_of_feeds(seed)
    }

    /// Returns the range of random actions: see [`Clients::run`].
    fn actions(self) -> std::ops::Range<u32> {
        match self {
            Self::All => 0..36,
            Self::Turns => 5..24,
            Self::Records => 22..33,
            Self::History => 33..60,
            Self::Indexes => 60..90,
            Self::Feeds => 90..120,
        }
    }

    /// Returns the number of steps of one client.
    pub(super) fn steps(self, random: &mut Rng) -> u32 {
        match self {
            Self::All => random.u32(2..7),
            _ => random.u32(4..10),
        }
    }
}

/// The state that clients share.
pub(super) struct Clients {
    pub(super) mix: Mix,
    pub(super) db: Database,
    pub(super) tables: Tables,
    pub(super) records: Records,
    pub(super) histories: Histories,
    pub(super) indexed: Indexed,
    /// Present in schedules with change feeds.
    pub(super) feeds: Option<Feeds>,
    pub(super) keys: u64,
    pub(super) seed: u64,
    pub(super) workers: usize,
    pub(super) oracle: std::sync::Arc<Mutex<Oracle>>,
    pub(super) numbers: AtomicU64,
    /// The acknowledged turns.
    pub(super) floors: Mutex<BTreeMap<u64, u64>>,
    /// The first impossible observation.
    pub(super) problem: Mutex<Option<String>>,
    /// True if the disk fails, so that operations may fail too.
    pub(super) disk_fails: bool,
    pub(super) closing: AtomicBool,
}

/// A future that yields once: its worker suspends the transaction and resumes it later.
pub(super) struct Pause(pub(super) bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Clients {
    pub(super) fn number(&self) -> Number {
        // Relaxed: the counter only makes numbers unique.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn report(&self, problem: String) {
        self.problem.lock().expect(NO_PANIC).get_or_insert(problem);
    }

    pub(super) fn over(&self) -> bool {
        self.problem.lock().expect(NO_PANIC).is_some()
    }

    fn floors(&self) -> BTreeMap<u64, u64> {
        self.floors.lock().expect(NO_PANIC).clone()
    }

    fn keys(&self, random: &mut Rng) -> Vec<u64> {
        let mut keys: Vec<_> = (0..random.u64(1..4)).map(|_| random.u64(0..self.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Records the end of a transaction.
    pub(super) fn note(&self, number: Number, result: Result<Outcome<Activity>, Failure>) {
        self.note_activity(number, result.map(|outcome| (outcome.value, outcome.commit_lsn)));
    }

    /// Records the result of a transaction and its commit LSN.
    fn note_activity(&self, number: Number, result: Result<(Activity, u64), Failure>) {
        let mut oracle = self.oracle.lock().expect(NO_PANIC);
        match result {
            Ok((Activity::Wrote(taken), commit_lsn)) => {
                oracle.committed_writer(number, commit_lsn, taken.clone());
                let mut floors = self.floors.lock().expect(NO_PANIC);
                for (key, turn) in taken {
                    let floor = floors.entry(key).or_default();
                    *floor = turn.max(*floor);
                }
            }
            Ok((Activity::Read(seen), _)) => oracle.committed_reader(seen),
            Ok((Activity::Observed, _)) => oracle.answered(number),
            Err(Failure::OnPurpose) => oracle.aborted(number),
            Err(Failure::Engine(
                Error::Conflict { .. }
                | Error::NotSerializable { .. }
                | Error::Busy(BusyWith::BulkOperation { .. }),
            )) => oracle.aborted(number),
            Err(failure) => {
                oracle.commit_unknown(number);
                drop(oracle);
                self.excuse_failure("a transaction", &failure);
            }
        }
    }

    /// Ignores an error of the engine as [`Clients::excuse`] does. Records any other failure as a
    /// problem.
    pub(super) fn excuse_failure(&self, what: &str, failure: &Failure) {
        match failure {
            Failure::Engine(error) => self.excuse(what, error),
            Failure::OnPurpose | Failure::Wrong(_) => {
                self.report(format!("{what} failed: {failure}"));
            }
        }
    }

    /// Ignores an error that the disk or the close of the database explains. Records any other
    /// error as a problem.
    pub(super) fn excuse(&self, what: &str, error: &Error) {
        let excused = match error {
            Error::Io(_) | Error::Corrupt(_) | Error::CommitUnknown { .. } => self.disk_fails,
            // Relaxed: the client that closes sets it before it closes.
            Error::Closed | Error::TransactionEnded(TransactionEnd::Finished) => {
                self.disk_fails || self.closing.load(Ordering::Relaxed)
            }
            Error::Conflict { .. }
            | Error::NotSerializable { .. }
            | Error::Busy(BusyWith::BulkOperation { .. })
            | Error::Busy(BusyWith::Checkpoint)
            | Error::Overloaded => true,
            _ => false,
        };
        if !excused {
            self.report(format!("{what} failed: {error}"));
        }
    }

    /// Runs one client.
    pub(super) fn run(&self, client: u64, steps: u32) {
        let mut random = Rng::with_seed(self.seed ^ (client + 1) << 40);
        fastrand::seed(random.u64(..));
        for _ in 0..steps {
            if self.over() {
                break;
            }
            match random.u32(self.mix.actions()) {
                0..3 => self.give_up(&mut random),
                3..5 => self.interact(&mut random),
                5..7 => self.hold(&mut random),
                7..9 => self.stream(&mut random),
                9..18 => self.write(&mut random),
                18..22 => self.read_in_snapshot(&mut random),
                22..24 => self.audit(),
                24..29 => self.change_own(&mut random, client),
                29..33 => self.race(&mut random, client),
                33 | 60 | 90..93 => self.compact(),
                34 | 61 | 93 => self.checkpoint(),
                35 | 62 | 94 => self.check(),
                36..60 => self.add_to_history(&mut random),
                63..76 => self.write_indexed(&mut random),
                76..81 => self.look_by_index(&mut random),
                81..84 => {
                    let number = random.usize(0..2);
                    self.create_index(&mut random, number);
                }
                84..86 => self.drop_index(&mut random),
                95..102 => _ = self.write_fed(&mut random),
                102..106 => self.follow_own(&mut random),
                106..108 => self.follow_token(&mut random),
                108 => self.follow_snapshot(&mut random),
                109..120 => self.use_slot(&mut random),
                _ => self.give_up_index(&mut random),
            }
        }
    }

    fn write(&self, _random: &mut Rng) {
        let (number, seed, tables) = (self.number(), self.seed, self.tables.clone());
        let blocks = number.is_multiple_of(BLOCKING);
        if self.is_bulk(number) {
            let paged = self.tables.paged();
            let run = self.db.transaction().try_run_bulk(paged, async move |tx| {
                tables.run(tx, choices(seed, number), number).await
            });
            return self.note(number, pollster(run));
        }
        let run = self.db.transaction().try_run(async move |tx| {
            if blocks {
                pause(BLOCKED);
            }
            tables.run(tx, choices(seed, number), number).await
        });
        self.note(number, pollster(run));
    }

    /// Returns true if a transaction is a bulk operation on the paged tables.
    pub(super) fn is_bulk(&self, number: Number) -> bool {
        number % BULK == 1 && !self.tables.paged().is_empty()
    }

    fn read_in_snapshot(&self, random: &mut Rng) {
        let (keys, floors, tables) = (self.keys(random), self.floors(), self.tables.clone());
        let pauses = random.bool();
        let run = self.db.transaction().try_run(async move |tx: &Transaction| {
            let pause = async || {
                if pauses {
                    Pause(false).await;
                }
            };
            Ok(Activity::Read(tables.read_in_snapshot(tx, &keys, &floors, pause).await?))
        });
        self.note(0, pollster(run));
    }

    /// Reads all contents twice in one snapshot.
    fn audit(&self) {
        let (tables, table, floors) =
            (self.tables.clone(), self.records.table.clone(), self.records.floors());
        let audited = pollster(self.db.try_run(async move |tx: &Transaction| {
            let message = Failure::Wrong;
            let found = (tables.contents(tx).await?, records::scan(tx, &table).await?);
            found.0.check().map_err(|problem| message(format!("in one snapshot {problem:#}")))?;
            Pause(false).await;
            let again = (tables.contents(tx).await?, records::scan(tx, &table).await?);
            if again != found {
                return Err(message(format!("one snapshot shows {found:?}, then {again:?}")));
            }
            Ok(found.1)
        }));
        match audited {
            Ok(found) => {
                self.records.problem(&found, &floors).into_iter().for_each(|p| self.report(p))
            }
            Err(failure) => self.excuse_failure("reading everything", &failure),
        }
    }

    /// Starts a transaction and drops its future.
    fn give_up(&self, random: &mut Rng) {
        let (number, seed, tables) = (self.number(), self.seed, self.tables.clone());
        self.oracle.lock().expect(NO_PANIC).commit_unknown(number);
        let paged = tables.paged();
        let body = async move |tx: &Transaction| {
            let did = tables.run(tx, choices(seed, number), number).await;
            Pause(false).await;
            did
        };
        let mut run: Pin<Box<dyn Future<Output = Result<Outcome<Activity>, Failure>>>> =
            match self.is_bulk(number) {
                true => self.db.transaction().try_run_bulk(paged, body),
                false => Box::pin(self.db.transaction().try_run(body)),
            };
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..random.u32(1..12) {
            if let Poll::Ready(result) = run.as_mut().poll(&mut context) {
                self.note(number, result);
                return;
            }
            give_way();
        }
    }

    /// Runs a transaction in several steps, between which other transactions run.
    fn interact(&self, random: &mut Rng) {
        let (number, seed, tables) = (self.number(), self.seed, self.tables.clone());
        self.oracle.lock().expect(NO_PANIC).commit_unknown(number);
        let ended = pollster(async {
            let tx = self.db.begin().await?;
            let step =
                async move |tx: &Transaction| tables.run(tx, choices(seed, number), number).await;
            let did = tx.try_step(step).await;
            pause(random.u64(0..400));
            match (did, random.u32(0..4)) {
                (Ok(value), 1..) => {
                    let commit_lsn = tx.commit().await?;
                    Ok(Some((value, commit_lsn)))
                }
                (Ok(_), 0) => {
                    tx.abort().await?;
                    Ok(None)
                }
                (Err(error), _) => Err(error),
            }
        });
        match ended {
            Ok(Some(committed)) => self.note_activity(number, Ok(committed)),
            Ok(None) => self.oracle.lock().expect(NO_PANIC).aborted(number),
            Err(error) => self.note_activity(number, Err(error)),
        }
    }

    /// Runs a long reader that must see the same contents while other transactions write.
    fn hold(&self, random: &mut Rng) {
        let (keys, floors) = (self.keys(random), self.floors());
        let rounds = random.u32(1..4);
        let held = pollster(async {
            let tx = self.db.begin().await?;
            let mut first = None;
            for _ in 0..rounds {
                let (tables, looked, floors) = (self.tables.clone(), keys.clone(), floors.clone());
                let read = async move |tx: &Transaction| {
                    tables.read_in_snapshot(tx, &looked, &floors, async || Pause(false).await).await
                };
                let seen = tx.try_step(read).await?;
                if *first.get_or_insert_with(|| seen.clone()) != seen {
                    let message = format!("of keys {keys:?} it saw {first:?}, then {seen:?}");
                    return Err(Failure::Wrong(message));
                }
                pause(random.u64(1..4000));
            }
            Ok(tx.abort().await?)
        });
        if let Err(failure) = held {
            self.excuse_failure("a reader that stays", &failure);
        }
    }

    /// Runs transactions from a typed source on a worker of its choice.
    fn stream(&self, random: &mut Rng) {
        let numbers: Vec<_> = (0..random.u32(1..5)).map(|_| self.number()).collect();
        for number in &numbers {
            self.oracle.lock().expect(NO_PANIC).commit_unknown(*number);
        }
        let (tables, seed) = (self.tables.clone(), self.seed);
        let (ended, count) = (std::sync::Arc::new(Mutex::new(Vec::new())), numbers.len());
        let (replies, failures) = (ended.clone(), SourceFailures::default());
        let failed = failures.clone();
        let source = self.db.transaction().run_source(
            random.usize(0..self.workers),
            numbers,
            async move |tx, number| {
                failures.body(*number, tables.run(tx, choices(seed, *number), *number).await)
            },
            move |number, result| {
                let result = failed.reply(number, result);
                replies.lock().expect(NO_PANIC).push((number, result));
                Ok(())
            },
        );
        let over = source.and_then(braiddb::SourceRun::wait);
        let ended = std::mem::take(&mut *ended.lock().expect(NO_PANIC));
        if over.is_ok() && ended.len() != count {
            self.report(format!("a source of {count} inputs ended well after {}", ended.len()));
        }
        for (number, result) in ended {
            self.note(number, result);
        }
        if let Err(error) = over {
            self.excuse("a source", &error);
        }
    }

    /// Starts a transaction that begins to read every possible record and drops each read
    /// immediately. It then waits for a future that never completes. Only closing the database ends
    /// it, although those reads were its last operations.
    pub(super) fn wait_for_ever(&self) {
        let table = self.records.table.clone();
        let keys = 0..records::MAX_FILLED;
        let waited = pollster(self.db.run(async move |tx| {
            poll_fn(|context| {
                for key in keys.clone() {
                    _ = pin!(tx.get(&table, &key)).poll(context);
                }
                Poll::Ready(())
            })
            .await;
            pending::<Result<(), Error>>().await
        }));
        if let Err(error) = waited {
            self.excuse("a transaction that waits for ever", &error);
        }
    }

    fn compact(&self) {
        if let Err(error) = pollster(self.db.compact()) {
            self.excuse("compaction", &error);
        }
    }

    fn checkpoint(&self) {
        if let Err(error) = pollster(self.db.checkpoint()) {
            self.excuse("a checkpoint", &error);
        }
    }

    fn check(&self) {
        match self.db.check() {
            Ok(report) if report.problems.is_empty() || self.disk_fails => {}
            Ok(report) => self.report(format!("the check finds {}", report.problems.join("; "))),
            Err(error) => self.excuse("the check", &error),
        }
    }
}

/// Returns the random generator of transaction `number`: the same for each attempt.
fn choices(seed: u64, number: Number) -> Rng {
    Rng::with_seed(seed ^ number << 20)
}

/// Blocks this thread on a future in the way that threads of a schedule wait.
pub(super) fn pollster<T>(future: impl Future<Output = T>) -> T {
    braiddb::simulation::block_on(future)
}
