//! Every operation of a transaction is dropped after each possible number of polls. The transaction
//! must continue as if the operation was never called, whether it repeats the call or not. (A range
//! deletion may be partly done.) The table, its indexes and the recovered state must then contain
//! exactly the committed writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::abort::Abort;
use crate::common::{Watched, with_limit};
use crate::polls::poll_at_most;
use braiddb::simulation::{Faults, SimulatedDisk};
use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, Options, Table, TableOptions, Transaction,
};
use pollster::block_on;

type Records = Table<u64, u64>;
type Model = BTreeMap<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 48;
/// The keys that the transaction writes before the operation and after the drop.
const BEFORE: u64 = 1_000;
const AFTER: u64 = 2_000;
/// The number of seeds for each operation.
const SEEDS: u64 = 2;
/// More polls than any operation needs.
const MAX_POLLS: usize = 5_000;

#[derive(Clone)]
struct Tables {
    records: Records,
    /// Several records share a key.
    classes: Index<u64, u64, u64>,
    /// Each value belongs to one record.
    values: Index<u64, u64, u64>,
}

/// The operations, each on records around a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    GetWith,
    GetPart,
    MultiGet,
    Put,
    Insert,
    Update,
    Delete,
    UpdateWith,
    FetchUpdate,
    FetchUpdateToNone,
    CompareAndSet,
    CompareAndDelete,
    CompareInVain,
    DeleteRange,
    Count,
    Keys,
    ScanBy,
    EntriesBy,
    GetBy,
}

const ALL: [Operation; 20] = [
    Operation::Get,
    Operation::GetWith,
    Operation::GetPart,
    Operation::MultiGet,
    Operation::Put,
    Operation::Insert,
    Operation::Update,
    Operation::Delete,
    Operation::UpdateWith,
    Operation::FetchUpdate,
    Operation::FetchUpdateToNone,
    Operation::CompareAndSet,
    Operation::CompareAndDelete,
    Operation::CompareInVain,
    Operation::DeleteRange,
    Operation::Count,
    Operation::Keys,
    Operation::ScanBy,
    Operation::EntriesBy,
    Operation::GetBy,
];

/// Returns the new value of a record, which no other record has.
fn changed(value: u64) -> u64 {
    value + 1_000_000
}

fn class(value: u64) -> u64 {
    value % 5
}

impl Operation {
    /// Runs the operation and returns its answer as numbers.
    async fn call(self, tx: &Transaction, tables: &Tables, key: u64) -> Result<Vec<u64>, Error> {
        let (table, value) = (&tables.records, first_value(key));
        let number = |flag: bool| vec![u64::from(flag)];
        let listed = |value: Option<u64>| value.into_iter().collect();
        let mut found = Vec::new();
        match self {
            Self::Get => Ok(listed(tx.get(table, &key).await?)),
            Self::GetWith => Ok(listed(tx.get_with(table, &key, |value| value).await?)),
            Self::GetPart => Ok(listed(tx.get_part(table, &key, class).await?)),
            Self::MultiGet => {
                let keys = [key, key + 1, key + 7];
                Ok(tx.multi_get(table, &keys).await?.into_iter().flatten().collect())
            }
            Self::Put => tx.put(table, &key, &changed(value)).await.map(|()| found),
            Self::Insert => tx.insert(table, &(key + 500), &changed(value)).await.map(|()| found),
            Self::Update => tx.update(table, &key, &changed(value)).await.map(|()| found),
            Self::Delete => Ok(number(tx.delete(table, &key).await?)),
            Self::UpdateWith => Ok(number(tx.update_with(table, &key, changed).await?)),
            Self::FetchUpdate => {
                Ok(listed(tx.fetch_update(table, &key, |value| value.map(changed)).await?))
            }
            Self::FetchUpdateToNone => {
                Ok(listed(tx.fetch_update(table, &key, |_| None::<u64>).await?))
            }
            Self::CompareAndSet => {
                let to = changed(value);
                Ok(number(tx.compare_and_set(table, &key, Some(&value), Some(&to)).await?))
            }
            Self::CompareAndDelete => {
                Ok(number(tx.compare_and_set(table, &key, Some(&value), None).await?))
            }
            Self::CompareInVain => {
                Ok(number(tx.compare_and_set(table, &key, None, Some(&value)).await?))
            }
            Self::DeleteRange => Ok(vec![tx.delete_range(table, key..key + 6).await?]),
            Self::Count => Ok(vec![tx.count(table, key..).await?]),
            Self::Keys => {
                let mut keys = tx.keys(table, key..)?.rev();
                while let Some(key) = keys.next().await? {
                    found.push(key);
                }
                Ok(found)
            }
            Self::ScanBy => {
                let mut scan = tx.scan_by(&tables.classes, class(value)..=class(value))?;
                while let Some((_, key, value)) = scan.next().await? {
                    found.extend([key, value]);
                }
                Ok(found)
            }
            Self::EntriesBy => {
                let mut entries = tx.entries_by(&tables.values, value..)?;
                while let Some((value, key)) = entries.next().await? {
                    found.extend([value, key]);
                }
                Ok(found)
            }
            Self::GetBy => {
                let found = tx.get_by(&tables.values, &value).await?;
                Ok(found.map_or_else(Vec::new, |(key, value)| vec![key, value]))
            }
        }
    }

    /// Returns the expected answer and applies the operation to the model.
    fn expect(self, model: &mut Model, key: u64) -> Vec<u64> {
        let value = first_value(key);
        let listed = |value: Option<u64>| value.into_iter().collect();
        match self {
            Self::Get | Self::GetWith => listed(model.get(&key).copied()),
            Self::GetPart => listed(model.get(&key).map(|value| class(*value))),
            Self::MultiGet => {
                let keys = [key, key + 1, key + 7];
                keys.iter().filter_map(|key| model.get(key).copied()).collect()
            }
            Self::Put | Self::Update => {
                model.insert(key, changed(value));
                Vec::new()
            }
            Self::Insert => {
                model.insert(key + 500, changed(value));
                Vec::new()
            }
            Self::Delete | Self::CompareAndDelete => {
                vec![u64::from(model.remove(&key).is_some())]
            }
            Self::UpdateWith | Self::CompareAndSet => {
                vec![u64::from(model.insert(key, changed(value)).is_some())]
            }
            Self::FetchUpdate => listed(model.insert(key, changed(value))),
            Self::FetchUpdateToNone => listed(model.remove(&key)),
            Self::CompareInVain => vec![0],
            Self::DeleteRange => {
                let before = model.len();
                model.retain(|one, _| !(key..key + 6).contains(one));
                vec![(before - model.len()) as u64]
            }
            Self::Count => vec![model.range(key..).count() as u64],
            Self::Keys => model.range(key..).rev().map(|(key, _)| *key).collect(),
            Self::ScanBy => {
                let same = model.iter().filter(|(_, one)| class(**one) == class(value));
                same.flat_map(|(key, value)| [*key, *value]).collect()
            }
            Self::EntriesBy => {
                let all: BTreeSet<_> = model.iter().map(|(key, value)| (*value, *key)).collect();
                all.range((value, 0)..).flat_map(|(value, key)| [*value, *key]).collect()
            }
            Self::GetBy => {
                let found = model.iter().find(|(_, one)| **one == value);
                found.map_or_else(Vec::new, |(key, value)| vec![*key, *value])
            }
        }
    }
}

/// Returns the initial value of a record.
fn first_value(key: u64) -> u64 {
    key * 7
}

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Tables) {
    let db = Database::open_simulated(disk, Options::default(), seed).unwrap().watched();
    let records: Records = db
        .run_blocking(async |tx| match tx.open_table("records").await {
            // Cold records are read from disk each time.
            Err(Error::TableNotFound(_)) => {
                tx.create_table_with("records", TableOptions::default().cache_cold(false)).await
            }
            opened => opened,
        })
        .unwrap();
    let by_class = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&class(value));
    let by_value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
    let unique = IndexOptions::default().unique(true);
    let classes = block_on(db.index(&records, "classes", IndexOptions::default(), by_class));
    let values = block_on(db.index(&records, "values", unique, by_value));
    (db, Tables { records, classes: classes.unwrap(), values: values.unwrap() })
}

/// Returns all records of the table; panics if an index does not match it.
async fn contents(tx: &Transaction, tables: &Tables) -> Result<Model, Error> {
    let (mut scan, mut found) = (tx.scan(&tables.records, ..)?, Model::new());
    while let Some((key, value)) = scan.next().await? {
        found.insert(key, value);
    }
    for (index, part) in
        [(&tables.classes, class as fn(u64) -> u64), (&tables.values, |value| value)]
    {
        let expected: BTreeSet<_> =
            found.iter().map(|(key, value)| (part(*value), *key, *value)).collect();
        let (mut scan, mut by_index) = (tx.scan_by(index, ..)?, Vec::new());
        while let Some(one) = scan.next().await? {
            by_index.push(one);
        }
        assert!(expected.iter().eq(&by_index), "{}: {by_index:?} of {found:?}", index.name());
    }
    Ok(found)
}

/// The transaction's reaction after it dropped the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Commits,
    /// Repeats the operation and waits for it.
    Insists,
    /// Rolls back to a savepoint that it had set before.
    RollsBack,
    Aborts,
}

/// Runs one transaction that drops an operation after some polls. Returns true if it did, and the
/// resulting contents.
async fn give_up(
    tx: &Transaction,
    tables: &Tables,
    (operation, key): (Operation, u64),
    (polls, then): (usize, Then),
    mut model: Model,
) -> Result<(bool, Model), Abort> {
    tx.put(&tables.records, &BEFORE, &BEFORE).await?;
    model.insert(BEFORE, BEFORE);
    let (savepoint, saved) = (tx.savepoint(), model.clone());
    let answer = poll_at_most(operation.call(tx, tables, key), polls).await.transpose()?;
    let was_given_up = answer.is_none();
    match answer {
        Some(answer) => assert_eq!(answer, operation.expect(&mut model, key)),
        None if operation == Operation::DeleteRange => {
            // Some of the records, from the first on.
            let left = contents(tx, tables).await?;
            let gone: Vec<u64> =
                model.keys().copied().filter(|key| !left.contains_key(key)).collect();
            assert!(gone.iter().copied().eq((key..key + 6).take(gone.len())), "{gone:?}");
            gone.iter().for_each(|key| _ = model.remove(key));
        }
        None => {}
    }
    assert_eq!(contents(tx, tables).await?, model, "after {polls} polls");
    match then {
        Then::Insists if was_given_up => {
            let answer = operation.call(tx, tables, key).await?;
            assert_eq!(answer, operation.expect(&mut model, key));
        }
        Then::RollsBack => {
            tx.rollback_to(&savepoint).await?;
            model = saved;
        }
        _ => {}
    }
    tx.put(&tables.records, &AFTER, &AFTER).await?;
    model.insert(AFTER, AFTER);
    assert_eq!(contents(tx, tables).await?, model, "before the end");
    match then {
        Then::Aborts => Err(Abort::OnPurpose),
        _ => Ok((was_given_up, model)),
    }
}

/// Drops one operation after each number of polls, until it completes first. Returns the number of
/// drops.
fn attack(operation: Operation, then: Then, seed: u64) -> usize {
    let disk = SimulatedDisk::new(seed);
    let (db, tables) = open(&disk, seed);
    let mut model: Model = (0..RECORDS).map(|key| (key, first_value(key))).collect();
    let (filled, table) = (model.clone(), tables.records.clone());
    db.run_blocking(async move |tx| {
        for (key, value) in &filled {
            tx.insert(&table, key, value).await?;
        }
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
    drop((db, tables));
    // Reopens, so that all records are only on disk.
    disk.set_faults(Faults { max_delay: 4, ..Faults::default() });
    let (db, tables) = open(&disk, seed + 1);
    let first = model.clone();
    for polls in 1..MAX_POLLS {
        let key = 5 + seed % 20;
        let (handles, before) = (tables.clone(), model.clone());
        let ran = db.transaction().try_run_blocking(async move |tx: &Transaction| {
            let ended = (polls, then);
            give_up(tx, &handles, (operation, key), ended, before.clone()).await
        });
        let was_given_up = match ran {
            Ok(outcome) => {
                let (was_given_up, left) = outcome.value;
                model = left;
                was_given_up
            }
            // The number is unknown, but an operation needs fewer polls than this.
            Err(Abort::OnPurpose) => polls < 200,
            Err(error) => panic!("{operation:?} after {polls} polls, {then:?}: {error}"),
        };
        let handles = tables.clone();
        let found = db.run_blocking(async move |tx| contents(tx, &handles).await);
        assert_eq!(found.unwrap(), model, "{operation:?} after {polls} polls, {then:?}");
        if !was_given_up {
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
            db.close().unwrap();
            drop((db, tables));
            let (db, tables) = open(&disk, seed + 2);
            let found = db.run_blocking(async move |tx| contents(tx, &tables).await);
            assert_eq!(found.unwrap(), model, "{operation:?}, {then:?}, recovered");
            db.close().unwrap();
            return polls - 1;
        }
        // Repeats with the same records only on disk.
        let (table, records) = (tables.records.clone(), first.clone());
        if model.iter().filter(|(key, _)| **key < BEFORE).ne(first.iter()) {
            db.run_blocking(async move |tx| {
                tx.delete_range(&table, ..BEFORE).await?;
                for (key, value) in &records {
                    tx.put(&table, key, value).await?;
                }
                Ok(())
            })
            .unwrap();
            model.retain(|key, _| *key >= BEFORE);
            model.extend(&first);
        }
    }
    panic!("{operation:?} is not ready after {MAX_POLLS} polls");
}

#[test]
fn a_transaction_continues_after_a_dropped_operation() {
    for then in [Then::Commits, Then::Insists, Then::RollsBack, Then::Aborts] {
        for operation in ALL {
            with_limit(LIMIT_SECONDS, move |limit| {
                limit.on_timeout("the operation", move || format!("{operation:?}, {then:?}"));
                let given_up: usize = (0..SEEDS).map(|seed| attack(operation, then, seed)).sum();
                // All others need records from disk.
                let waits =
                    !matches!(operation, Operation::Insert | Operation::Count | Operation::Keys);
                assert!(given_up > 0 || !waits, "{operation:?} was ready at once");
            });
        }
    }
}
