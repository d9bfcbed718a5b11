//! Snapshot isolation against a sequential model of versions: several open transactions with
//! randomly interleaved steps. The model predicts every read, scan, conflict and commit.

use std::collections::BTreeMap;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{
    Database, Durability, Error, InteractiveTransaction, Isolation, Options, Table, Transaction,
};
use pollster::block_on;
use proptest::prelude::*;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

type Records = Table<u64, u64>;

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Get(u64),
    Put(u64, u64),
    Delete(u64),
    ScanAll,
    Commit,
    Abort,
}

/// The number of open transactions.
const PLACES: usize = 4;
const KEYS: u64 = 6;

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        3 => Just(Step::Begin),
        4 => (0..KEYS).prop_map(Step::Get),
        5 => (0..KEYS, any::<u64>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (0..KEYS).prop_map(Step::Delete),
        2 => Just(Step::ScanAll),
        3 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ];
    (0..PLACES, step)
}

/// The model: the committed versions of each key, with the number of commits before them.
#[derive(Default)]
struct Versions {
    commits: usize,
    versions: BTreeMap<u64, Vec<(usize, Option<u64>)>>,
}

impl Versions {
    fn at(&self, snapshot: usize, key: u64) -> Option<u64> {
        let versions = self.versions.get(&key)?;
        versions.iter().rev().find(|(commit, _)| *commit <= snapshot)?.1
    }

    fn newest(&self, key: u64) -> usize {
        self.versions.get(&key).and_then(|v| v.last()).map_or(0, |(commit, _)| *commit)
    }
}

struct Open {
    transaction: InteractiveTransaction,
    snapshot: usize,
    writes: BTreeMap<u64, Option<u64>>,
}

impl Open {
    fn sees(&self, model: &Versions, key: u64) -> Option<u64> {
        self.writes.get(&key).copied().unwrap_or_else(|| model.at(self.snapshot, key))
    }
}

/// Returns true if a write by `place` to `key` conflicts with another transaction's.
fn loses(model: &Versions, open: &[Option<Open>], place: usize, key: u64) -> bool {
    let me = open[place].as_ref().unwrap();
    if me.writes.contains_key(&key) {
        return false;
    }
    let in_flight = open.iter().enumerate().any(|(other, slot)| {
        other != place && slot.as_ref().is_some_and(|o| o.writes.contains_key(&key))
    });
    in_flight || model.newest(key) > me.snapshot
}

fn write(
    db: &Records,
    open: &mut [Option<Open>],
    model: &Versions,
    place: usize,
    key: u64,
    value: Option<u64>,
) {
    let lost = loses(model, open, place, key);
    let me = open[place].as_mut().unwrap();
    let table = db.clone();
    let present = me.sees(model, key).is_some();
    let result = block_on(me.transaction.step(async move |tx: &Transaction| match value {
        Some(value) => tx.put(&table, &key, &value).await.map(|()| true),
        None => tx.delete(&table, &key).await,
    }));
    if lost {
        assert!(matches!(result, Err(Error::Conflict { .. })), "first updater wins: {result:?}");
        // A transaction after a conflict cannot commit.
        let me = open[place].take().unwrap();
        assert!(matches!(block_on(me.transaction.commit()), Err(Error::Conflict { .. })));
        return;
    }
    assert_eq!(result.unwrap(), value.is_some() || present);
    // A delete of a missing record writes nothing.
    if value.is_some() || present {
        me.writes.insert(key, value);
    }
}

/// The storage of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Hot,
    Paged,
    /// On a page that is evicted before each step by a read of another table.
    PagedAndLeaves,
}

fn check(steps: Vec<(usize, Step)>, workers: usize, place: Place) {
    let options = Options::default().workers(workers).isolation(Isolation::Snapshot);
    let directory = tempfile::tempdir().unwrap();
    let leaves = place == Place::PagedAndLeaves;
    let db = if leaves {
        let options = options
            .durability(Durability::Volatile)
            .tune(|tuning| tuning.log_segment_bytes(64 << 10));
        Database::open(directory.path(), options.tune(|tuning| tuning.page_frames(Some(1))))
            .unwrap()
            .watched()
    } else {
        Database::in_memory(options).unwrap().watched()
    };
    let table: Records = create_table(&db, "model", place != Place::Hot);
    let other: Records = create_table(&db, "other", place != Place::Hot);
    let (mut faults, all) = (0, steps.len() as u64);
    let mut model = Versions::default();
    let mut open: Vec<Option<Open>> = (0..PLACES).map(|_| None).collect();
    for (place, step) in steps {
        if leaves {
            assert_eq!(block_on(db.get(&other, &0)).unwrap(), None);
            faults = db.stats().pages.faults;
        }
        if open[place].is_none() {
            let transaction = block_on(db.begin()).unwrap();
            let snapshot = model.commits;
            open[place] = Some(Open { transaction, snapshot, writes: BTreeMap::new() });
        }
        let me = open[place].as_ref().unwrap();
        match step {
            Step::Begin => {}
            Step::Get(key) => {
                let table = table.clone();
                let read = async move |tx: &Transaction| tx.get(&table, &key).await;
                let found: Result<_, Error> = block_on(me.transaction.step(read));
                assert_eq!(found.unwrap(), me.sees(&model, key), "{key} at {}", me.snapshot);
            }
            Step::ScanAll => {
                let table = table.clone();
                let found: Result<Vec<_>, Error> =
                    block_on(me.transaction.step(async move |tx: &Transaction| {
                        let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
                        while let Some(record) = scan.next().await? {
                            found.push(record);
                        }
                        Ok(found)
                    }));
                let expected: Vec<_> =
                    (0..KEYS).filter_map(|key| Some((key, me.sees(&model, key)?))).collect();
                assert_eq!(found.unwrap(), expected);
            }
            Step::Put(key, value) => write(&table, &mut open, &model, place, key, Some(value)),
            Step::Delete(key) => write(&table, &mut open, &model, place, key, None),
            Step::Commit => {
                let me = open[place].take().unwrap();
                block_on(me.transaction.commit()).unwrap();
                if !me.writes.is_empty() {
                    model.commits += 1;
                    for (key, value) in me.writes {
                        model.versions.entry(key).or_default().push((model.commits, value));
                    }
                }
            }
            Step::Abort => block_on(open[place].take().unwrap().transaction.abort()).unwrap(),
        }
    }
    // Except for the first time, each read of the other table loads its page, unless a step loaded
    // none.
    assert!(!leaves || 8 * faults + 16 > all, "{faults} faults in {all} steps");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_step_matches_the_model(
        steps in prop::collection::vec(step(), 1..80),
        workers in 1usize..3,
        place in prop::sample::select(&[Place::Hot, Place::Paged, Place::PagedAndLeaves][..]),
    ) {
        with_limit(LIMIT_SECONDS, move |_| check(steps, workers, place));
    }
}
