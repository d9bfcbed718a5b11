//! An answer is returned only after everything that it depends on is durable. Therefore, if the
//! disk crashes at the moment of an answer, the same question has the same answer after recovery.
//!
//! A simulated disk delays the commit of a *change*. While the commit is in progress, the test asks
//! *questions* one after the other, whose answers depend on the change. At each answer the disk
//! crashes. No other transaction writes. Therefore the recovered database must repeat every answer
//! that reflects the change. Everything runs on the one worker of a simulated disk, so a seed
//! always gives the same run. Every second seed uses paged tables.

mod scenes;

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::simulation::{CrashCounts, Faults, SimulatedDisk};
use braiddb::{Database, Error, Options, Table, Transaction, Tuning, Width};
use scenes::{Scene, Script};

const SEEDS: Range<u64> = 0..20;
const KEY: u64 = 7;
/// The maximum number of questions and other transactions in progress.
const MAX_IN_FLIGHT: usize = 24;
/// The number of crashes in a run that are recovered.
const CRASHES: usize = 2;
/// The maximum worker turns of a transfer; some questions are asked during it.
const MAX_DELAY: u32 = 400;

/// The time limit for all seeds of a case, which need one or two seconds.
const SECONDS: u64 = 120;

type Numbers = Table<u64, u64>;

/// The change whose commit is delayed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Insert,
    Update,
    Delete,
    CreateTable,
}

/// A question whose answer depends on the change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    Get,
    GetWith,
    Contains,
    MultiGet,
    Scan,
    ReverseScan,
    First,
    Last,
    Delete,
    Update,
    Insert,
    UpdateHandled,
    InsertHandled,
    /// A get, after which the closure returns a custom error.
    OwnError,
    /// A get, after which the closure panics.
    Panic,
    /// A closure that stores the result of its first attempt and returns it in the second.
    KeptFromFirstAttempt,
    Tables,
    CreateTable,
    OpenTable,
}

/// The way in which a question is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Run,
    Source,
    Interactive,
}

/// The failure of a question's transaction.
#[derive(Debug)]
enum Failure {
    Engine(Error),
    Own(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// The change, the question and the way of a case.
#[derive(Clone, Copy, Debug)]
struct Case {
    change: Change,
    question: Question,
    way: Way,
}

/// One run of a case.
#[derive(Clone)]
struct Run {
    case: Case,
    db: Database,
    disk: SimulatedDisk,
    table: Numbers,
    /// A table that no question reads.
    beside: Numbers,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    /// The results inside closures, and the durable LSN at that time.
    found: Vec<(String, u64)>,
    /// The returned answers, and the disk after a crash at that moment.
    told: Vec<(String, SimulatedDisk)>,
    /// The LSN of the change, or its error.
    changed: Option<Result<u64, Error>>,
}

impl Run {
    async fn change(&self, tx: &Transaction) -> Result<(), Error> {
        match self.case.change {
            Change::Insert => tx.insert(&self.table, &KEY, &1).await,
            Change::Update => tx.update(&self.table, &KEY, &1).await,
            Change::Delete => tx.delete(&self.table, &KEY).await.map(|there| assert!(there)),
            Change::CreateTable => tx.create_table::<u64, u64>("new").await.map(drop),
        }
    }

    /// Answers the question. Changes nothing, because otherwise its commit would answer the next
    /// question.
    async fn answer(&self, tx: &Transaction) -> Result<String, Failure> {
        let found = self.look(tx).await;
        let durable = self.db.stats().lsn.durable;
        self.record.lock().unwrap().found.push((format!("{found:?}"), durable));
        match self.case.question {
            Question::OwnError => Err(Failure::Own(found?)),
            Question::Panic => panic!("{found:?}"),
            _ => found,
        }
    }

    async fn look(&self, tx: &Transaction) -> Result<String, Failure> {
        let table = &self.table;
        Ok(match self.case.question {
            Question::Get | Question::OwnError | Question::Panic => {
                format!("{:?}", tx.get(table, &KEY).await?)
            }
            Question::KeptFromFirstAttempt => unreachable!("see `keep_and_tell`"),
            Question::GetWith => format!("{:?}", tx.get_with(table, &KEY, |value| value).await?),
            Question::Contains => format!("{}", tx.contains(table, &KEY).await?),
            Question::MultiGet => format!("{:?}", tx.multi_get(table, [&1, &KEY, &2]).await?),
            Question::Scan => scan(tx, table, false).await?,
            Question::ReverseScan => scan(tx, table, true).await?,
            Question::First => format!("{:?}", tx.first(table).await?),
            Question::Last => format!("{:?}", tx.last(table).await?),
            Question::Delete => refused_if(!tx.delete(table, &KEY).await?, "nothing to delete")?,
            Question::Update => {
                tx.update(table, &KEY, &2).await?;
                refused_if(false, "")?
            }
            Question::Insert => {
                tx.insert(table, &KEY, &2).await?;
                refused_if(false, "")?
            }
            Question::UpdateHandled => {
                refused_if(tx.update(table, &KEY, &2).await.is_err(), "nothing to update")?
            }
            Question::InsertHandled => {
                refused_if(tx.insert(table, &KEY, &2).await.is_err(), "is there already")?
            }
            Question::Tables => {
                let names = tx.tables().await?.into_iter().map(|table| table.name);
                names.collect::<Vec<_>>().join(", ")
            }
            Question::CreateTable => {
                tx.create_table::<u64, u64>("new").await?;
                refused_if(false, "")?
            }
            Question::OpenTable => format!("{:?}", tx.open_table::<u64, u64>("new").await?),
        })
    }

    /// Asks the question once and records the answer.
    async fn ask(self) {
        let run = self.clone();
        let told = match (self.case.way, self.case.question) {
            (Way::Run, Question::KeptFromFirstAttempt) => self.keep_and_tell().await,
            (Way::Run, _) => self.db.try_run(async move |tx| run.answer(tx).await).await,
            (Way::Source, _) => return self.ask_source().await,
            (Way::Interactive, _) => {
                let transaction = self.db.begin().await.unwrap();
                transaction.try_step(async move |tx: &Transaction| run.answer(tx).await).await
            }
        };
        self.tell(&told);
    }

    async fn ask_source(self) {
        let (run, replies, db) = (self.clone(), self.clone(), self.db.clone());
        let body = async move |tx: &Transaction, _: &u64| match run.answer(tx).await {
            Err(Failure::Engine(error)) => Err(error),
            // Transactions of a source fail with the engine's error type.
            Err(Failure::Own(found)) => Err(Error::Options(found)),
            Ok(found) => Ok(found),
        };
        let reply = move |_, told: Result<braiddb::Outcome<String>, Error>| {
            replies.tell(&told.map(|outcome| outcome.value));
            Ok(())
        };
        db.transaction()
            .run_source(0, std::iter::once(0), body, reply)
            .unwrap()
            .done()
            .await
            .unwrap();
    }

    /// The first attempt reads, and fails because of another transaction. The second attempt reads
    /// nothing and returns the result of the first.
    async fn keep_and_tell(&self) -> Result<String, Failure> {
        let (run, kept) = (self.clone(), Mutex::new(None));
        let body = async move |tx: &Transaction| {
            let before = kept.lock().unwrap().take();
            if let Some(before) = before {
                return Ok(before);
            }
            let found = format!("{:?}", tx.get(&run.table, &KEY).await?);
            let durable = run.db.stats().lsn.durable;
            run.record.lock().unwrap().found.push((found.clone(), durable));
            *kept.lock().unwrap() = Some(found);
            let rival = run.db.begin().await?;
            rival.put(&run.beside, &1000, &0).await?;
            let lost = tx.put(&run.beside, &1000, &1).await;
            rival.abort().await?;
            assert!(matches!(lost, Err(Error::Conflict { .. })), "{lost:?}");
            lost.map(|()| String::new()).map_err(Failure::from)
        };
        self.db.try_run(body).await
    }

    fn tell(&self, told: &impl std::fmt::Debug) {
        let mut record = self.record.lock().unwrap();
        let seed = record.told.len() as u64;
        let crashed = self.disk.crash(seed, &mut CrashCounts::default());
        record.told.push((format!("{told:?}"), crashed));
    }

    async fn write_beside(self) {
        let beside = self.beside.clone();
        // If the disk fails, this fails too.
        _ = self.db.run(async move |tx| tx.put(&beside, &0, &0).await).await;
    }

    async fn make_change(self) {
        let (run, retry) = (self.clone(), self.db.transaction().max_attempts(u32::MAX));
        let changed = retry.run(async move |tx| run.change(tx).await).await;
        let lsn = changed.map(|outcome| outcome.commit_lsn);
        self.record.lock().unwrap().changed = Some(lsn);
    }

    /// Asks the question, makes the change, and repeats the question until an answer reflects the
    /// change. Then asks a last time. A chain of short transactions repeats the question, because
    /// one long transaction would keep deleted records from being reclaimed. Next to a source of
    /// questions it is one long transaction, because a worker takes inputs from one source before
    /// those of another.
    fn change_and_ask(&self, seed: u64) -> Record {
        let script = Script { run: self.clone(), seed };
        if self.case.way == Way::Source {
            let play = async move |_: &Transaction| {
                for scene in script.clone() {
                    scene.borrow_mut().go_on();
                    give_way().await;
                }
                Ok(())
            };
            self.db.run_blocking(play).unwrap();
        } else {
            let rounds = self.db.run_source(0, script, async |_, scene: &Rc<RefCell<Scene>>| {
                scene.borrow_mut().go_on();
                Ok(())
            });
            rounds.unwrap().wait().unwrap();
        }
        self.disk.settle();
        std::mem::take(&mut *self.record.lock().unwrap())
    }
}

/// Yields to the worker.
async fn give_way() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn scan(tx: &Transaction, table: &Numbers, reverse: bool) -> Result<String, Error> {
    let scan = tx.scan(table, ..)?;
    let (mut scan, mut found) = (if reverse { scan.rev() } else { scan }, Vec::new());
    while let Some(record) = scan.next().await? {
        found.push(record);
    }
    Ok(format!("{found:?}"))
}

/// Returns `answer` if a write was refused; otherwise an error that rolls the write back.
fn refused_if(refused: bool, answer: &str) -> Result<String, Failure> {
    if refused { Ok(answer.to_owned()) } else { Err(Failure::Own("carried out".to_owned())) }
}

/// Returns true if the tables of a seed are paged.
fn is_paged(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options =
        Options::default().tuning(Tuning::default().hot_width(Width::Fixed(4)).max_open(64));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

impl Case {
    fn on(self, disk: &SimulatedDisk, seed: u64) -> Run {
        let db = open(disk, seed);
        let open = |name| match pollster::block_on(db.open_table::<u64, u64>(name)) {
            Err(Error::TableNotFound(_)) => create_table(&db, name, is_paged(seed)),
            opened => opened.unwrap(),
        };
        let [table, beside] = ["numbers", "beside"].map(open);
        Run { case: self, db, disk: disk.clone(), table, beside, record: Arc::default() }
    }

    /// Creates a database with the record that will change.
    fn prepare(self, seed: u64) -> Run {
        fastrand::seed(seed);
        let run = self.on(&SimulatedDisk::new(seed), seed);
        let mut keys: Vec<u64> = (0..4).collect();
        if matches!(self.question, Question::First | Question::Last) {
            keys.clear();
        }
        if matches!(self.change, Change::Delete | Change::Update) {
            keys.push(KEY);
        }
        let table = run.table.clone();
        let load = async move |tx: &Transaction| {
            for key in &keys {
                tx.insert(&table, key, &0).await?;
            }
            Ok(())
        };
        run.db.run_blocking(load).unwrap();
        run
    }

    /// Runs the case and compares its answers with the state after each crash. Returns the number
    /// of questions that saw the change before it was durable.
    fn check(self, seed: u64) -> usize {
        let run = self.prepare(seed);
        run.disk.set_faults(Faults { max_delay: MAX_DELAY, ..Faults::default() });
        let Record { found, told, changed } = run.change_and_ask(seed);
        let lsn = changed.unwrap().unwrap();
        if self.change == Change::Delete && is_paged(seed) {
            // The catalog's rows of two tables; if the change were kept with its chain, it would
            // use more.
            let versions = run.db.stats().memory.versions;
            assert!(versions < 160, "{self:?}, seed {seed}: nothing reclaimed, {versions} bytes");
        } else if self.change == Change::Delete {
            assert!(
                run.db.stats().records_reclaimed > 0,
                "{self:?}, seed {seed}: nothing reclaimed"
            );
        }
        run.db.close().unwrap();
        let after = &told.last().unwrap().0;
        assert_ne!(*after, told[0].0, "{self:?}, seed {seed}: the change changes the answer");
        for (_, crashed) in told.iter().filter(|(answer, _)| answer == after).take(CRASHES) {
            let recovered = self.on(crashed, seed);
            pollster::block_on(recovered.clone().ask());
            let again = &recovered.record.lock().unwrap().told[0].0;
            assert_eq!(
                again, after,
                "{self:?}, seed {seed}: told before a crash, and not after it"
            );
            recovered.db.close().unwrap();
        }
        let last = &found.last().unwrap().0;
        found.iter().filter(|(what, durable)| what == last && *durable <= lsn).count()
    }
}

/// Runs a function for each seed, within a time limit.
fn for_each_seed(each: impl Fn(u64) + Send + 'static) {
    with_limit(SECONDS, move |limit| {
        let under_way = Arc::new(Mutex::new(None));
        let seed = under_way.clone();
        limit.on_timeout("seed", move || format!("{:?}", seed.lock().unwrap()));
        for seed in SEEDS {
            *under_way.lock().unwrap() = Some(seed);
            each(seed);
        }
    });
}

/// Checks a case over all seeds.
fn check(change: Change, question: Question, way: Way) {
    let case = Case { change, question, way };
    for_each_seed(move |seed| {
        let ahead = case.check(seed);
        assert!(ahead > 0, "{case:?}, seed {seed}: no question found what was not durable");
    });
}

macro_rules! cases {
    ($($name:ident: $change:ident, $question:ident, $way:ident;)*) => {
        $(#[test]
        fn $name() {
            check(Change::$change, Question::$question, Way::$way);
        })*
    };
}

cases! {
    a_value_by_run: Update, Get, Run;
    a_value_by_source: Update, Get, Source;
    a_value_by_a_step: Update, Get, Interactive;
    get_of_a_deleted_record: Delete, Get, Run;
    get_of_a_deleted_record_by_source: Delete, Get, Source;
    get_of_a_deleted_record_by_a_step: Delete, Get, Interactive;
    a_lent_value: Update, GetWith, Run;
    get_with_of_a_deleted_record: Delete, GetWith, Run;
    contains_of_a_deleted_record: Delete, Contains, Run;
    multi_get_of_a_deleted_record: Delete, MultiGet, Run;
    scan_past_a_deleted_record: Delete, Scan, Run;
    scan_past_a_deleted_record_by_a_step: Delete, Scan, Interactive;
    reverse_scan_past_a_deleted_record: Delete, ReverseScan, Run;
    first_past_a_deleted_record: Delete, First, Run;
    last_past_a_deleted_record: Delete, Last, Run;
    delete_of_a_deleted_record: Delete, Delete, Run;
    delete_of_a_deleted_record_by_a_step: Delete, Delete, Interactive;
    key_not_found_returned: Delete, Update, Run;
    key_not_found_returned_by_source: Delete, Update, Source;
    key_not_found_returned_by_a_step: Delete, Update, Interactive;
    key_not_found_handled: Delete, UpdateHandled, Run;
    key_exists_returned: Insert, Insert, Run;
    key_exists_returned_by_source: Insert, Insert, Source;
    key_exists_returned_by_a_step: Insert, Insert, Interactive;
    key_exists_handled: Insert, InsertHandled, Run;
    the_closures_own_error_after_a_value: Insert, OwnError, Run;
    the_closures_own_error_after_an_absence: Delete, OwnError, Run;
    the_closures_own_error_by_source: Insert, OwnError, Source;
    the_closures_own_error_by_a_step: Insert, OwnError, Interactive;
    a_panics_message: Insert, Panic, Run;
    what_a_closure_kept_from_its_first_attempt: Insert, KeptFromFirstAttempt, Run;
    the_list_of_tables: CreateTable, Tables, Run;
    table_exists: CreateTable, CreateTable, Run;
    a_table_that_was_opened: CreateTable, OpenTable, Run;
}

/// If the log fails while an answer waits, the caller receives the error of the log instead of the
/// answer.
#[test]
fn a_log_failure_replaces_all_waiting_answers() {
    for_each_seed(|seed| {
        for way in [Way::Run, Way::Source, Way::Interactive] {
            for (change, question) in [
                (Change::Update, Question::Get),
                (Change::Delete, Question::Get),
                (Change::Delete, Question::Update),
                (Change::Insert, Question::Insert),
                (Change::Insert, Question::OwnError),
            ] {
                fail_meanwhile(Case { change, question, way }, seed);
            }
        }
    });
}

fn fail_meanwhile(case: Case, seed: u64) {
    let run = case.prepare(seed);
    run.disk.set_faults(Faults { max_delay: MAX_DELAY, errors: 1, ..Faults::default() });
    let Record { found, told, changed } = run.change_and_ask(seed);
    assert!(changed.unwrap().is_err(), "{case:?}, seed {seed}: every write fails");
    assert!(matches!(run.db.close(), Err(Error::Io(_))));
    let before = &told[0].0;
    assert!(
        found.iter().any(|(what, _)| *what != found[0].0),
        "{case:?}, seed {seed}: no question found what was not durable"
    );
    for (answer, _) in told.iter().filter(|(answer, _)| answer != before) {
        // A conflict does not depend on the change.
        let nothing_told = answer.contains("Io(") || answer.contains("Conflict");
        assert!(nothing_told, "{case:?}, seed {seed}: told {answer}");
    }
}

/// A step waits for the commits that it read, not for later commits of other transactions.
#[test]
fn a_step_that_read_only_durable_data_does_not_wait() {
    for_each_seed(|seed| {
        let case = Case { change: Change::Update, question: Question::Get, way: Way::Interactive };
        let run = case.prepare(seed);
        run.disk.set_faults(Faults { max_delay: MAX_DELAY, ..Faults::default() });
        let host = run.clone();
        let steps = async move |_: &Transaction| {
            // A commit to a table that no step reads at first.
            let mut commit = pin!(host.clone().write_beside());
            let tail = host.db.stats().lsn.tail;
            while host.db.stats().lsn.tail == tail {
                _ = commit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                give_way().await;
            }
            let transaction = host.db.begin().await?;
            assert_eq!(transaction.get(&host.table, &KEY).await?, Some(0));
            transaction.put(&host.table, &KEY, &1).await?;
            assert_eq!(transaction.get(&host.table, &KEY).await?, Some(1), "its own write");
            assert_eq!(transaction.get(&host.table, &100).await?, None);
            assert!(!transaction.delete(&host.table, &101).await?);
            let told_at = host.db.stats().lsn.durable;
            assert_eq!(transaction.get(&host.beside, &0).await?, Some(0));
            let fresh_at = host.db.stats().lsn.durable;
            transaction.abort().await?;
            commit.await;
            Ok((tail, told_at, fresh_at))
        };
        let (committed, told_at, fresh_at) = run.db.run_blocking(steps).unwrap();
        assert!(told_at <= committed, "seed {seed}: a step waited for what it did not read");
        assert!(fresh_at > committed, "seed {seed}: a step did not wait for what it read");
        run.db.close().unwrap();
    });
}
