//! The transactions that run on the simulated disk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::Result;
use braiddb::maintenance::Compaction;
use braiddb::simulation::SimulatedDisk;
use braiddb::{BusyWith, Database, Error, Outcome, Table, TableOptions, Transaction};
use futures_util::future::{MaybeDone, maybe_done};

use super::crash::Witness;
use super::observer::{self, Observer};
use super::oracle::{Contents, Number, Oracle, Taken};

/// The amount of data that transactions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// The number of keys that transactions take turns on; few, so that they conflict.
    pub(super) keys: u64,
    /// Percent of values with some, and with many, kilobytes.
    pub(super) large: (u32, u32),
    pub(super) paged: Paged,
}

/// The choice of tables with records on pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Paged {
    turns: bool,
    marks: bool,
    journal: bool,
}

impl Paged {
    /// Chooses tables by `number`, which may have any value: 0 chooses none, any other at least
    /// one.
    pub(super) fn some(number: u64) -> Self {
        let bits = if number == 0 { 0 } else { 1 + number % 7 };
        Self { turns: bits & 1 != 0, marks: bits & 2 != 0, journal: bits & 4 != 0 }
    }

    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

impl Scale {
    /// The choice for a long run with one worker. Every second seed has paged tables.
    pub(super) fn long(seed: u64) -> Self {
        let paged = Paged::some(if seed.is_multiple_of(2) { 0 } else { seed / 2 + 1 });
        Self { keys: 24, large: (10, 1), paged }
    }
}

/// Returns the options of a paged table or of a table in memory.
pub(super) fn kind(paged: bool) -> TableOptions {
    if paged { TableOptions::default().paged() } else { TableOptions::default() }
}

/// The number of transactions that write or only read turns, for each observer.
const WRITERS_PER_OBSERVER: u64 = 2;

/// The tables.
#[derive(Clone)]
pub(super) struct Tables {
    scale: Scale,
    /// The value starts with the turn and the transaction, followed by bytes derived from them.
    pub(super) turns: Table<u64, [u8]>,
    pub(super) marks: Table<str, u64>,
    journal: Table<Number, [u8]>,
}

/// The result of a transaction.
pub(super) enum Activity {
    Wrote(Vec<Taken>),
    Read(Vec<Number>),
    /// The transaction changed nothing, and its observations were recorded.
    Observed,
}

/// The reason why a transaction failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("aborted on purpose")]
    OnPurpose,
    /// The transaction saw a state that cannot exist.
    #[error("wrong: {0}")]
    Wrong(String),
    #[error(transparent)]
    Engine(#[from] Error),
}

/// The failures of a source's transactions. The body of such a transaction can return only errors
/// of the engine, so [`SourceFailures::body`] keeps its own reason until the reply.
#[derive(Clone, Default)]
pub(super) struct SourceFailures(Arc<Mutex<BTreeMap<Number, Failure>>>);

impl SourceFailures {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<Number, Failure>> {
        self.0.lock().expect("no thread panics while it is locked")
    }

    /// Converts the result of an attempt's body.
    pub(super) fn body<T>(&self, number: Number, result: Result<T, Failure>) -> Result<T, Error> {
        let mut kept = self.kept();
        // The reason of an attempt before.
        kept.remove(&number);
        result.map_err(|failure| match failure {
            Failure::Engine(error) => error,
            own => {
                kept.insert(number, own);
                // Any error that is not retried.
                Error::Closed
            }
        })
    }

    /// Converts the result of a transaction.
    pub(super) fn reply<T>(&self, number: Number, result: Result<T, Error>) -> Result<T, Failure> {
        let own = self.kept().remove(&number);
        result.map_err(|error| match (error, own) {
            (Error::Closed, Some(own)) => own,
            (error, _) => error.into(),
        })
    }
}

impl Tables {
    pub(super) async fn open(tx: &Transaction, scale: Scale) -> Result<Self, Error> {
        let Paged { turns, marks, journal } = scale.paged;
        Ok(Self {
            scale,
            // Records that recovery left on disk are read from disk each time.
            turns: tx.open_or_create_table_with("turns", kind(turns).cache_cold(false)).await?,
            marks: tx.open_or_create_table_with("marks", kind(marks)).await?,
            journal: tx.open_or_create_table_with("journal", kind(journal)).await?,
        })
    }

    /// Returns the tables with records on pages.
    pub(super) fn paged(&self) -> Vec<Table<[u8], [u8]>> {
        let Paged { turns, marks, journal } = self.scale.paged;
        let turns = turns.then(|| self.turns.encoded());
        let marks = marks.then(|| self.marks.encoded());
        turns.into_iter().chain(marks).chain(journal.then(|| self.journal.encoded())).collect()
    }

    /// Returns the name of a key's mark. It is longer than the part that an index node compares in
    /// one step. On pages it nearly reaches the maximum key length, so that inner pages exist.
    pub(super) fn mark(&self, key: u64) -> String {
        let bytes = if self.scale.paged.marks { 450 } else { 0 };
        format!("mark {:.<bytes$}of key number {key}", key % 4)
    }

    /// Returns the keys that transactions take turns on.
    pub(super) fn keys(&self) -> std::ops::Range<u64> {
        0..self.scale.keys
    }

    /// Reads all contents: by scans forward and backward, and by key.
    pub(super) async fn contents(&self, tx: &Transaction) -> Result<Contents, Error> {
        let mut contents = Contents::default();
        let (mut forward, mut backward) = (tx.scan(&self.turns, ..)?, Vec::new());
        while let Some((key, value)) = forward.next().await? {
            let (turn, by) = parse(value).unwrap_or((0, 0));
            let right = value == self.value_of(key, turn, by);
            contents.turns.insert(key, if right { (turn, by) } else { (u64::MAX, by) });
            let again = tx.get(&self.turns, &key).await?;
            if again != Some(value) {
                contents.turns.insert(key, (u64::MAX, 0));
            }
        }
        let mut reverse = tx.scan(&self.turns, ..)?.rev();
        while let Some((key, _)) = reverse.next().await? {
            backward.push(key);
        }
        if !contents.turns.keys().rev().eq(&backward) {
            contents.turns.clear();
        }
        let mut marks = tx.scan(&self.marks, ..)?;
        while let Some((key, turn)) = marks.next().await? {
            contents.marks.insert(unmark(&key), turn);
        }
        let mut journal = tx.scan(&self.journal, ..)?;
        while let Some((number, taken)) = journal.next().await? {
            let taken = taken.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
            contents.journal.insert(number, taken.collect());
        }
        Ok(contents)
    }

    /// Returns the database's counts of records in the tables of turns, marks and the journal.
    /// Returns `None` if the count waits although no operation in progress could wake it.
    pub(super) fn lengths(
        &self,
        db: &Database,
        disk: &SimulatedDisk,
    ) -> Option<Result<[u64; 3], Error>> {
        let turns = wait(disk, db.len(&self.turns))?;
        let marks = wait(disk, db.len(&self.marks))?;
        let journal = wait(disk, db.len(&self.journal))?;
        Some(turns.and_then(|turns| Ok([turns, marks?, journal?])))
    }

    /// Reads keys twice in one snapshot and compares the two results: the turns, none of which may
    /// be below its `floor`, and the transactions that took them.
    pub(super) async fn read_in_snapshot(
        &self,
        tx: &Transaction,
        keys: &[u64],
        floors: &BTreeMap<u64, u64>,
        pause: impl AsyncFn(),
    ) -> Result<Vec<Number>, Failure> {
        let mut seen = Vec::new();
        for key in keys {
            let value = tx.get(&self.turns, key).await?;
            let (turn, by) = value.and_then(parse).unwrap_or((0, 0));
            if turn > 0 {
                seen.push(by);
            }
            let floor = floors.get(key).copied().unwrap_or(0);
            if turn < floor {
                return Err(Failure::Wrong(format!(
                    "key {key} is at turn {turn}, though turn {floor} was acknowledged before"
                )));
            }
            pause().await;
            let mark = tx.get(&self.marks, &self.mark(*key)).await?;
            if mark != (turn % 2 == 1).then_some(turn) {
                let problem = format!("key {key} is at turn {turn}, and its mark is {mark:?}");
                return Err(Failure::Wrong(problem));
            }
            if tx.get(&self.turns, key).await? != value {
                return Err(Failure::Wrong(format!("key {key} was at turn {turn} and is no more")));
            }
            if value.is_some_and(|value| value != self.value_of(*key, turn, by)) {
                return Err(Failure::Wrong(format!(
                    "the value of key {key}, turn {turn}, is wrong"
                )));
            }
        }
        Ok(seen)
    }

    /// Runs transaction `number`.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        mut random: fastrand::Rng,
        number: Number,
    ) -> Result<Activity, Failure> {
        let kind = random.u32(0..10);
        let mut keys: Vec<u64> =
            (0..random.u64(1..5)).map(|_| random.u64(0..self.scale.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        if kind < 3 {
            let mut seen = Vec::new();
            for key in &keys {
                let value = tx.get(&self.turns, key).await?;
                seen.extend(value.and_then(parse).map(|(_, by)| by));
            }
            return Ok(Activity::Read(seen));
        }
        let mut taken: Vec<Taken> = Vec::new();
        for key in keys {
            let before =
                tx.get(&self.turns, &key).await?.and_then(parse).map_or(0, |(turn, _)| turn);
            let turn = before + 1;
            let value = self.value_of(key, turn, number);
            if before == 0 {
                tx.insert(&self.turns, &key, &value).await?;
            } else {
                tx.update(&self.turns, &key, &value).await?;
            }
            if turn % 2 == 1 {
                tx.insert(&self.marks, &self.mark(key), &turn).await?;
            } else {
                tx.delete(&self.marks, &self.mark(key)).await?;
            }
            taken.push((key, turn));
        }
        if kind == 3 {
            return Err(Failure::OnPurpose);
        }
        let bytes: Vec<u8> = taken
            .iter()
            .flat_map(|(key, turn)| [key.to_le_bytes(), turn.to_le_bytes()])
            .flatten()
            .collect();
        tx.insert(&self.journal, &number, &bytes).await?;
        Ok(Activity::Wrote(taken))
    }

    /// Returns the value of a key's turn.
    fn value_of(&self, key: u64, turn: u64, by: Number) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(key << 48 ^ turn << 24 ^ by);
        let (some, many) = self.scale.large;
        let hundredth = random.u32(0..100);
        let length = if hundredth < many {
            random.usize(20_000..80_000)
        } else if hundredth < some {
            random.usize(3000..9000)
        } else {
            random.usize(0..300)
        };
        let mut value = [turn.to_le_bytes(), by.to_le_bytes()].concat();
        value.extend((0..length).map(|_| random.u8(..)));
        value
    }
}

thread_local! {
    /// The seed that this thread runs.
    pub(super) static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Waits until the worker sleeps and no operation is in progress. Ends the program if this never
/// happens, because the database then cannot be closed.
pub(super) fn settle(disk: &SimulatedDisk) {
    /// A seed takes only seconds in total.
    const LIMIT: Duration = Duration::from_secs(300);
    if !disk.settles_within(LIMIT) {
        let (seed, files) = (SEED.get(), disk.files());
        eprintln!(
            "seed {seed}: the worker has been at work for {LIMIT:?} without an end; files: {files:?}"
        );
        std::process::exit(1);
    }
}

/// Runs one transaction. Returns `None` if it waits although no operation in progress could wake
/// it.
pub(super) fn once<T: Send + 'static>(
    db: &Database,
    disk: &SimulatedDisk,
    body: impl AsyncFn(&Transaction) -> Result<T, Error> + Send + 'static,
) -> Option<Result<T, Error>> {
    wait(disk, db.run(body))
}

/// Waits for a future. Returns `None` if it waits although no operation in progress could wake it.
pub(super) fn wait<T>(disk: &SimulatedDisk, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        settle(disk);
    }
    None
}

/// Runs transactions and reports their ends to the oracle. Returns true if all ended. Returns false
/// if a transaction waits although the worker sleeps and no operation is in progress.
pub(super) fn run(
    db: &Database,
    disk: &SimulatedDisk,
    observer: Observer,
    seed: u64,
    numbers: std::ops::Range<Number>,
) -> Result<bool> {
    let (tables, witness) = (observer.tables.clone(), observer.witness.clone());
    let left = Arc::new(Mutex::new(numbers.end - numbers.start));
    let counted = left.clone();
    let failures = SourceFailures::default();
    let replies = failures.clone();
    let source = db.transaction().run_source(
        0,
        numbers,
        async move |tx, number| {
            let random = fastrand::Rng::with_seed(seed ^ number << 20);
            if number.is_multiple_of(WRITERS_PER_OBSERVER + 1) {
                return failures.body(*number, observer.run(tx, random, *number).await);
            }
            let did = failures.body(*number, tables.run(tx, random, *number).await)?;
            if let Activity::Wrote(taken) = &did {
                observer.witness.with(|oracle| oracle.writes(taken));
            }
            Ok(did)
        },
        move |number, result| {
            let result = replies.reply(number, result);
            witness.answer(|oracle| note(oracle, number, result));
            *counted.lock().expect("no thread panics while it is locked") -= 1;
            Ok(())
        },
    )?;
    settle(disk);
    let over = *left.lock().expect("no thread panics while it is locked") == 0;
    if over {
        source.wait()?;
    }
    Ok(over)
}

/// Reports the end of a transaction to the oracle.
fn note(oracle: &mut Oracle, number: Number, result: Result<Outcome<Activity>, Failure>) {
    match result {
        Ok(Outcome { value: Activity::Wrote(taken), commit_lsn, .. }) => {
            oracle.committed_writer(number, commit_lsn, taken);
        }
        Ok(Outcome { value: Activity::Read(seen), .. }) => oracle.committed_reader(seen),
        Ok(Outcome { value: Activity::Observed, .. }) => oracle.answered(number),
        Err(Failure::Engine(Error::CommitUnknown { .. })) => oracle.commit_unknown(number),
        // The transaction's own reason, or an error that states that none of its writes remain.
        Err(failure) => {
            oracle.aborted(number);
            observer::answered_by(oracle, number, &failure);
        }
    }
}

/// Runs bulk operations on the paged tables one after the other. Each bulk operation does the work
/// of several transactions. Returns the same results as [`run`].
pub(super) fn run_bulk(
    db: &Database,
    disk: &SimulatedDisk,
    (tables, witness): (&Tables, &Witness),
    seed: u64,
    numbers: std::ops::Range<Number>,
) -> bool {
    for number in numbers {
        let (inner, told) = (tables.clone(), witness.clone());
        let body = async move |tx: &Transaction| {
            let random = fastrand::Rng::with_seed(seed ^ number << 20);
            let did = inner.run(tx, random, number).await?;
            if let Activity::Wrote(taken) = &did {
                told.with(|oracle| oracle.writes(taken));
            }
            Ok::<_, Failure>(did)
        };
        let mut run = db.transaction().try_run_bulk(tables.paged(), body);
        let mut context = Context::from_waker(Waker::noop());
        let polls = (0..3).find_map(|_| {
            let polled = run.as_mut().poll(&mut context);
            settle(disk);
            if let Poll::Ready(result) = polled { Some(result) } else { None }
        });
        let Some(result) = polls else { return false };
        witness.answer(|oracle| note(oracle, number, result));
    }
    true
}

/// Starts a compaction of the database; the worker continues it.
pub(super) fn begin_to_compact(db: &Database) -> Pin<Box<MaybeDone<impl Compacting>>> {
    let mut compacting = Box::pin(maybe_done(db.compact()));
    // The future keeps its result if it is already complete.
    _ = compacting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    compacting
}

/// A compaction in progress.
pub(super) trait Compacting: Future<Output = Result<Compaction, Error>> {}

impl<F: Future<Output = Result<Compaction, Error>>> Compacting for F {}

/// Waits until the compaction has finished, unless a checkpoint was in progress. Waits like
/// [`once`]. Returns the bytes that compaction freed between pages.
pub(super) fn compact(
    disk: &SimulatedDisk,
    mut compacting: Pin<Box<MaybeDone<impl Compacting>>>,
) -> Option<Result<u64, Error>> {
    wait(disk, compacting.as_mut())?;
    Some(match compacting.as_mut().take_output().expect("it has ended") {
        Ok(compacted) => Ok(compacted.page_bytes_freed),
        Err(Error::Busy(BusyWith::Checkpoint)) => Ok(0),
        Err(error) => Err(error),
    })
}

pub(super) fn parse(value: &[u8]) -> Option<(u64, Number)> {
    Some((word(value.get(..8)?), word(value.get(8..16)?)))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

pub(super) fn unmark(mark: &str) -> u64 {
    mark.rsplit(' ').next().and_then(|key| key.parse().ok()).unwrap_or(u64::MAX)
}
