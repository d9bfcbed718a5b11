//! Change feeds next to writers of all kinds, compaction and restarts: every commit is returned
//! once, completely and in order. Applying the returned changes reproduces the tables.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::changes::{ChangeKind, ChangeToken, ChangeTransaction, ChangesFrom};
use braiddb::{BusyWith, Database, Error, Options, Table, TableOptions, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 600;
const NAMES: [&str; 3] = ["rows", "pages", "expiring"];
const KEYS: u64 = 400;
const WRITERS: u64 = 3;
const PHASES: u64 = 4;
/// Transactions of each writer in a phase.
const COMMITS: u64 = 200;

type Tables = [Table<u64, [u8]>; 3];
/// The contents of the tables, by table name and key.
type Model = BTreeMap<(String, u64), Vec<u8>>;
/// The writes of a transaction, in order: table, key, and value unless deleted.
type Writes = Vec<(usize, u64, Option<Vec<u8>>)>;

fn open(directory: &std::path::Path) -> (Database, Tables) {
    let options =
        Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(64 << 10));
    let db = Database::open(directory, options.tune(|tuning| tuning.checkpoint_bytes(256 << 10)))
        .unwrap()
        .watched();
    let kinds = [
        TableOptions::default(),
        TableOptions::default().paged(),
        TableOptions::default().ttl(Duration::from_hours(1000)),
    ];
    let tables = db.run_blocking(async move |tx| {
        let mut tables = Vec::new();
        for (name, options) in NAMES.into_iter().zip(kinds) {
            tables.push(tx.open_or_create_table_with(name, options).await?);
        }
        Ok(tables)
    });
    (db, tables.unwrap().try_into().unwrap())
}

/// Returns some writes, sometimes so many that they are logged in parts. At least one is new,
/// because a transaction without changes is not logged and has the LSN of another commit.
fn some_writes(random: &mut fastrand::Rng, writer: u64, number: u64) -> Writes {
    let count = if random.u32(..40) == 0 { 60 } else { random.usize(1..6) };
    let write = |random: &mut fastrand::Rng| {
        let value = (random.u32(..4) > 0).then(|| vec![random.u8(..); random.usize(..900)]);
        (random.usize(..3), random.u64(..KEYS), value)
    };
    let new = (0, KEYS + writer, Some(number.to_le_bytes().to_vec()));
    (0..count).map(|_| write(random)).chain([new]).collect()
}

/// Commits transactions, and records them by LSN.
fn write_all(db: &Database, tables: &Tables, seed: u64, committed: &Mutex<BTreeMap<u64, Writes>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..COMMITS {
        let writes = some_writes(&mut random, seed, number);
        let gives_up = random.u32(..10) == 0;
        let (tables, doing) = (tables.clone(), writes.clone());
        let outcome = block_on(db.transaction().max_attempts(u32::MAX).run(async move |tx| {
            for (table, key, value) in &doing {
                match value {
                    Some(value) => tx.put(&tables[*table], key, value).await?,
                    None => _ = tx.delete(&tables[*table], key).await?,
                }
            }
            if gives_up { Err(Error::Closed) } else { Ok(()) }
        }));
        match outcome {
            Ok(outcome) => {
                let before = committed.lock().unwrap().insert(outcome.commit_lsn, writes);
                assert_eq!(before, None, "two commits at {}", outcome.commit_lsn);
            }
            Err(error) => assert!(gives_up, "{error}"),
        }
    }
}

fn apply(transaction: &ChangeTransaction, model: &mut Model) {
    for change in &transaction.changes {
        let key = || (change.table.to_string(), change.key_as::<u64>().unwrap());
        match change.kind {
            ChangeKind::Insert | ChangeKind::Update | ChangeKind::Put => {
                let before = model.insert(key(), change.value.clone());
                if change.kind == ChangeKind::Insert {
                    assert_eq!(before, None, "{change:?}");
                } else if change.kind == ChangeKind::Update {
                    assert!(before.is_some(), "{change:?}");
                }
            }
            ChangeKind::Delete => _ = model.remove(&key()),
            _ => {}
        }
    }
}

fn contents(db: &Database, tables: &Tables) -> Model {
    let tables = tables.clone();
    let all = db.run_blocking(async move |tx| {
        let mut all = Model::new();
        for table in &tables {
            let mut scan = tx.scan(table, ..)?;
            while let Some((key, value)) = scan.next().await? {
                all.insert((table.name().to_owned(), key), value.to_vec());
            }
        }
        Ok(all)
    });
    all.unwrap()
}

/// The transactions that one consumer received in all phases.
#[derive(Default)]
struct Consumer {
    /// The name of its slot.
    slot: &'static str,
    token: Option<ChangeToken>,
    model: Model,
    given: Vec<u64>,
}

impl Consumer {
    /// Reads transactions until `last` was returned, or until enough were.
    fn take(&mut self, db: &Database, last: Option<u64>, most: usize) {
        let from = self.token.map_or(ChangesFrom::Snapshot, ChangesFrom::Token);
        let mut changes = db.changes(from);
        for _ in 0..most {
            if last.is_some_and(|last| self.token.is_some_and(|token| token.commit_lsn() >= last)) {
                return;
            }
            let transaction = block_on(changes.next()).unwrap().unwrap();
            apply(&transaction, &mut self.model);
            if !transaction.snapshot {
                self.given.push(transaction.commit_lsn);
            }
            self.token = transaction.token.or(self.token);
            if let Some(token) = transaction.token.filter(|_| fastrand::u32(..20) == 0) {
                block_on(db.advance_change_slot(self.slot, &token)).unwrap();
            }
        }
    }
}

/// Returns the contents of the tables after the commits up to an LSN.
fn model_at(committed: &BTreeMap<u64, Writes>, lsn: u64) -> Model {
    let mut model = Model::new();
    for (table, key, value) in committed.range(..=lsn).flat_map(|(_, writes)| writes) {
        let key = (NAMES[*table].to_owned(), *key);
        match value {
            Some(value) => _ = model.insert(key, value.clone()),
            None => _ = model.remove(&key),
        }
    }
    model
}

#[test]
fn every_commit_is_returned_once_across_compaction_and_restarts() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let committed = Arc::new(Mutex::new(BTreeMap::<u64, Writes>::new()));
        let mut consumer = Consumer { slot: "s", ..Consumer::default() };
        let mut late = Consumer { slot: "late", ..Consumer::default() };
        let mut segments = 0;
        for phase in 0..PHASES {
            let (db, tables) = open(directory.path());
            if phase == 0 {
                consumer.token = Some(block_on(db.create_change_slot("s", 1 << 30)).unwrap());
            }
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..WRITERS)
                    .map(|n| {
                        let (db, tables, committed) = (&db, &tables, &committed);
                        scope.spawn(move || write_all(db, tables, phase * WRITERS + n, committed))
                    })
                    .collect();
                let compaction = scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        match block_on(db.compact()) {
                            Ok(_) | Err(Error::Busy(BusyWith::Checkpoint)) => {}
                            Err(error) => panic!("{error}"),
                        }
                        std::thread::sleep(Duration::from_millis(100));
                    }
                });
                // Not all: the rest in the next phase, after the restart.
                let most = (WRITERS * COMMITS / 2) as usize;
                consumer.take(&db, None, most);
                if phase == 1 {
                    block_on(db.create_change_slot("late", 1 << 30)).unwrap();
                    late.take(&db, None, 50);
                }
                writers.into_iter().for_each(|writer| writer.join().unwrap());
                over.store(true, Ordering::Relaxed);
                compaction.join().unwrap();
            });
            // At least once, independent of the threads above.
            while let Err(error) = block_on(db.compact()) {
                assert!(matches!(error, Error::Busy(BusyWith::Checkpoint)), "{error}");
                std::thread::yield_now();
            }
            segments += db.stats().log.segments_freed;
            if phase + 1 == PHASES {
                let committed = committed.lock().unwrap();
                let last = *committed.last_key_value().unwrap().0;
                let lsns: Vec<u64> = committed.keys().copied().collect();
                assert!(model_at(&committed, last) == contents(&db, &tables));
                consumer.take(&db, Some(last), usize::MAX);
                assert!(consumer.model == model_at(&committed, last));
                assert!(consumer.given == lsns, "each once, and in order");
                late.take(&db, Some(last), usize::MAX);
                assert!(late.model == consumer.model);
            } else {
                // The returned transactions so far are the commits so far.
                let lsn = consumer.token.unwrap().commit_lsn();
                assert!(consumer.model == model_at(&committed.lock().unwrap(), lsn));
            }
            db.close().unwrap();
        }
        assert!(segments > 0, "nothing was freed");
    });
}
