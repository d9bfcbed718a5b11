//! Serializable transactions: certification of each kind of answer, error contents, and histories
//! of many threads that are replayed in the order of their LSNs.
//!
//! The replay is separate from that of simulated schedules, so that an error in one of them does
//! not hide errors from the other.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::common::{Watched, with_limit};
use crate::one_table::{in_memory, write_now};
use crate::table_kind::create_table;
use braiddb::stats::AbortStats;
use braiddb::{
    Database, Error, InteractiveTransaction, Isolation, Misuse, Options, Outcome, Table,
    Transaction,
};
use pollster::block_on;

type Reading = fn(&InteractiveTransaction, &Table<u64, u64>);

/// Ways to read key 5, and true if it had a record.
const READINGS: [(&str, bool, Reading); 16] = [
    ("a value", true, |tx, table| assert_eq!(get(tx, table, 5), Some(50))),
    ("no value", false, |tx, table| assert_eq!(get(tx, table, 5), None)),
    ("a lent value", true, |tx, table| assert_eq!(get_with(tx, table), Some(51))),
    ("no value to lend", false, |tx, table| assert_eq!(get_with(tx, table), None)),
    ("that it is there", true, |tx, table| assert!(contains(tx, table))),
    ("that it is not there", false, |tx, table| assert!(!contains(tx, table))),
    ("a refused insertion", true, |tx, table| {
        assert!(matches!(block_on(tx.insert(table, &5, &0)), Err(Error::KeyExists(_))));
    }),
    ("a refused update", false, |tx, table| {
        assert!(matches!(block_on(tx.update(table, &5, &0)), Err(Error::KeyNotFound(_))));
    }),
    ("a deletion of nothing", false, |tx, table| {
        assert!(!block_on(tx.delete(table, &5)).unwrap());
    }),
    ("a scan that met it", true, |tx, table| assert_eq!(scan(tx, table, false, 9), [4, 5, 6])),
    ("a scan that did not", false, |tx, table| assert_eq!(scan(tx, table, false, 9), [4, 6])),
    ("a scan in reverse", false, |tx, table| assert_eq!(scan(tx, table, true, 9), [6, 4])),
    ("a scan to a limit", false, |tx, table| assert_eq!(scan(tx, table, false, 2), [4, 6])),
    ("a limited scan in reverse", false, |tx, table| assert_eq!(scan(tx, table, true, 2), [6, 4])),
    ("a scan up to it", true, |tx, table| assert_eq!(scan(tx, table, false, 2), [4, 5])),
    ("several values", true, |tx, table| assert_eq!(multi_get(tx, table), [Some(40), Some(50)])),
];

fn get(tx: &InteractiveTransaction, table: &Table<u64, u64>, key: u64) -> Option<u64> {
    block_on(tx.get(table, &key)).unwrap()
}

fn get_with(tx: &InteractiveTransaction, table: &Table<u64, u64>) -> Option<u64> {
    let table = table.clone();
    let step = async move |tx: &Transaction| tx.get_with(&table, &5, |value| value + 1).await;
    block_on(tx.step(step)).unwrap()
}

fn contains(tx: &InteractiveTransaction, table: &Table<u64, u64>) -> bool {
    let table = table.clone();
    block_on(tx.step(async move |tx: &Transaction| tx.contains(&table, &5).await)).unwrap()
}

fn multi_get(tx: &InteractiveTransaction, table: &Table<u64, u64>) -> Vec<Option<u64>> {
    let table = table.clone();
    let step = async move |tx: &Transaction| tx.multi_get(&table, &[4, 5]).await;
    block_on(tx.step(step)).unwrap()
}

fn scan(
    tx: &InteractiveTransaction,
    table: &Table<u64, u64>,
    reverse: bool,
    limit: u64,
) -> Vec<u64> {
    let records = block_on(tx.scan(table, 4..=6, reverse, limit)).unwrap();
    records.into_iter().map(|record| record.0).collect()
}

/// A transaction with an answer about key 5 fails at its write elsewhere if and only if the key was
/// written since. The error names the key.
#[test]
fn all_returned_results_are_validated() {
    with_limit(120, |_| {
        for (what, exists, reading) in READINGS {
            for (changed, paged) in [(false, false), (true, false), (false, true), (true, true)] {
                let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
                let table = create_table(&db, "records", paged);
                write_now(&db, &table, 4, Some(40));
                write_now(&db, &table, 6, Some(60));
                if exists {
                    write_now(&db, &table, 5, Some(50));
                }
                let reader = block_on(db.begin()).unwrap();
                reading(&reader, &table);
                if changed {
                    write_now(&db, &table, 5, if exists { None } else { Some(51) });
                }
                // A key that none of them read.
                write_now(&db, &table, 3, Some(30));
                write_now(&db, &table, 7, Some(70));
                block_on(reader.put(&table, &100, &1)).unwrap();
                let committed = block_on(reader.commit());
                let stats = db.stats();
                if !changed {
                    assert!(committed.is_ok(), "{what}: {committed:?}");
                    assert_eq!(stats.aborted.certification, 0);
                    continue;
                }
                let Err(Error::NotSerializable { attempts: 1, read }) = &committed else {
                    panic!("{what}: {committed:?}");
                };
                let key = 5_u64.to_be_bytes();
                let covers = |low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>| {
                    let above = match low {
                        Bound::Included(low) => low[..] <= key[..],
                        Bound::Excluded(_) | Bound::Unbounded => false,
                    };
                    let below = match high {
                        Bound::Included(high) => key[..] <= high[..],
                        Bound::Excluded(_) | Bound::Unbounded => false,
                    };
                    above && below
                };
                assert!(read.table == "records" && covers(&read.keys.0, &read.keys.1), "{read:?}");
                assert_eq!(stats.aborted.certification, 1, "{what}");
                assert!(committed.unwrap_err().is_retryable());
            }
        }
    });
}

/// Records beyond the point where a scan was stopped do not matter.
#[test]
fn a_stopped_scan_is_validated_up_to_its_position() {
    with_limit(60, |_| {
        for (reverse, beyond) in [(false, 60), (true, 40)] {
            let (db, table) = in_memory(Options::default().workers(1));
            for key in 0..100 {
                write_now(&db, &table, key, Some(key));
            }
            let reader = block_on(db.begin()).unwrap();
            let (stopped, written) = (table.clone(), table.clone());
            let step = async move |tx: &Transaction| {
                let scan = tx.scan(&stopped, ..)?;
                let mut scan = if reverse { scan.rev() } else { scan };
                for _ in 0..45 {
                    scan.next().await?;
                }
                Ok(())
            };
            block_on(reader.step(step)).unwrap();
            write_now(&db, &table, beyond, None);
            block_on(reader.put(&written, &1000, &1)).unwrap();
            block_on(reader.commit()).unwrap();
        }
    });
}

#[test]
fn read_only_transactions_neither_fail_nor_log() {
    with_limit(60, |_| {
        let (db, table) = in_memory(Options::default().workers(2));
        write_now(&db, &table, 1, Some(1));
        let undeclared = block_on(db.begin()).unwrap();
        let declared = block_on(db.transaction().read_only(true).begin()).unwrap();
        for reader in [&undeclared, &declared] {
            assert_eq!(get(reader, &table, 1), Some(1));
        }
        write_now(&db, &table, 1, Some(2));
        assert!(matches!(
            block_on(declared.put(&table, &1, &3)),
            Err(Error::Misuse(Misuse::ReadOnlyTransaction))
        ));
        assert!(matches!(
            block_on(declared.delete(&table, &1)),
            Err(Error::Misuse(Misuse::ReadOnlyTransaction))
        ));
        for reader in [undeclared, declared] {
            assert_eq!(get(&reader, &table, 1), Some(1));
            block_on(reader.commit()).unwrap();
        }
        let refused = block_on(
            db.transaction()
                .read_only(true)
                .run(async |tx| tx.create_table::<u64, u64>("more").await),
        );
        assert!(matches!(refused, Err(Error::Misuse(Misuse::ReadOnlyTransaction))));
    });
}

/// A failed certification is retried up to the limit and then returned.
#[test]
fn run_retries_and_then_reports_the_changed_record() {
    with_limit(60, |_| {
        let (db, table) = in_memory(Options::default().workers(1));
        write_now(&db, &table, 1, Some(0));
        let run = |attempts: u32, changes: u32| {
            let (other, table, failing) = (db.clone(), table.clone(), db.clone());
            block_on(failing.transaction().max_attempts(attempts).run(async move |tx| {
                let seen = tx.get(&table, &1).await?.unwrap();
                if tx.attempt() <= changes {
                    let table = table.clone();
                    other.run(async move |tx| tx.put(&table, &1, &(seen + 1)).await).await?;
                }
                tx.put(&table, &2, &seen).await
            }))
        };
        let outcome = run(8, 5).unwrap();
        assert_eq!(outcome.attempts, 6);
        assert_eq!(db.stats().aborted.certification, 5);
        let error = run(3, 5).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::NotSerializable { attempts: 3, .. }), "{error:?}");
        assert!(message.contains("changed table \"records\", key 1"), "{message}");
    });
}

/// One operation of a history and its answer.
#[derive(Debug)]
enum Told {
    Got(u64, Option<u64>),
    Scanned { low: u64, high: u64, reverse: bool, limit: usize, records: Vec<(u64, u64)> },
    Put(u64, u64),
    Deleted(u64, bool),
    Inserted { key: u64, value: u64, refused: bool },
}

impl Told {
    fn wrote(&self) -> bool {
        match self {
            Told::Got(..) | Told::Scanned { .. } => false,
            Told::Put(..) => true,
            Told::Deleted(_, was) => *was,
            Told::Inserted { refused, .. } => !refused,
        }
    }
}

/// A committed transaction of a history.
struct Entry {
    commit: u64,
    told: Vec<Told>,
}

const KEYS: u64 = 24;

async fn carry_out(
    tx: &Transaction,
    table: &Table<u64, u64>,
    random: &mut fastrand::Rng,
) -> Result<Vec<Told>, Error> {
    let mut told = Vec::new();
    for _ in 0..random.usize(1..6) {
        let (key, value) = (random.u64(..KEYS), random.u64(..));
        told.push(match random.u8(..8) {
            0..=2 => Told::Got(key, tx.get(table, &key).await?),
            3 | 4 => {
                let (high, reverse) = (key + random.u64(..8), random.bool());
                let limit = random.usize(1..6);
                let scan = tx.scan(table, key..=high)?;
                let mut scan = if reverse { scan.rev() } else { scan };
                let mut records = Vec::new();
                while records.len() < limit
                    && let Some((key, value)) = scan.next().await?
                {
                    records.push((key, value));
                }
                Told::Scanned { low: key, high, reverse, limit, records }
            }
            5 => {
                tx.put(table, &key, &value).await?;
                Told::Put(key, value)
            }
            6 => Told::Deleted(key, tx.delete(table, &key).await?),
            _ => {
                let refused = match tx.insert(table, &key, &value).await {
                    Ok(()) => false,
                    Err(Error::KeyExists(_)) => true,
                    Err(error) => return Err(error),
                };
                Told::Inserted { key, value, refused }
            }
        });
    }
    Ok(told)
}

/// A future that yields once.
struct Pause(bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Runs transactions of two workers on few keys, many at a time on each worker. Returns the
/// committed ones.
fn history(
    options: Options,
    isolation: Isolation,
    rounds: u64,
    paged: bool,
) -> (Vec<Entry>, braiddb::Stats) {
    let directory = tempfile::tempdir().unwrap();
    let options = options.workers(2).isolation(isolation);
    let db = match paged {
        true => Database::in_memory(options).unwrap().watched(),
        false => Database::open(directory.path(), options).unwrap().watched(),
    };
    let table: Table<u64, u64> = create_table(&db, "records", paged);
    let entries = Arc::new(Mutex::new(Vec::new()));
    let sources: Vec<_> = (0..2_u64)
        .map(|worker| {
            let (table, entries) = (table.clone(), entries.clone());
            let body = async move |tx: &Transaction, round: &u64| {
                let seed = worker << 32 | round | u64::from(tx.attempt()) << 48;
                let mut random = fastrand::Rng::with_seed(seed);
                let told = carry_out(tx, &table, &mut random).await?;
                Pause(false).await;
                Ok(told)
            };
            let reply = move |_, result: Result<Outcome<Vec<Told>>, Error>| {
                let outcome = result?;
                let (told, commit) = (outcome.value, outcome.commit_lsn);
                entries.lock().unwrap().push(Entry { commit, told });
                Ok(())
            };
            db.transaction().run_source(worker as usize, 0..rounds, body, reply).unwrap()
        })
        .collect();
    sources.into_iter().for_each(|source| source.wait().unwrap());
    let stats = db.stats();
    db.close().unwrap();
    (std::mem::take(&mut *entries.lock().unwrap()), stats)
}

/// Replays a history in serial order: each transaction at its commit LSN, and transactions without
/// writes before all that committed at that LSN or later. Returns the first answer that differs.
fn replay(mut entries: Vec<Entry>) -> Option<String> {
    // The LSN of a transaction without writes is its snapshot: it saw what was committed before.
    entries.sort_by_key(|entry| (entry.commit, entry.told.iter().any(Told::wrote)));
    let mut state = BTreeMap::new();
    for Entry { told, .. } in entries {
        for answer in told {
            let fits = match &answer {
                Told::Got(key, value) => state.get(key).copied() == *value,
                Told::Scanned { low, high, reverse, limit, records } => {
                    let range = state.range(low..=high).map(|(key, value)| (*key, *value));
                    let expected: Vec<_> = match reverse {
                        false => range.take(*limit).collect(),
                        true => range.rev().take(*limit).collect(),
                    };
                    expected == *records
                }
                Told::Put(key, value) => {
                    state.insert(*key, *value);
                    true
                }
                Told::Deleted(key, was) => state.remove(key).is_some() == *was,
                Told::Inserted { key, value, refused } => {
                    let exists = state.contains_key(key);
                    if !exists {
                        state.insert(*key, *value);
                    }
                    exists == *refused
                }
            };
            if !fits {
                return Some(format!("{answer:?} beside {state:?}"));
            }
        }
    }
    None
}

#[test]
fn histories_are_equivalent_to_the_reported_order() {
    with_limit(300, |_| {
        // The interleaving is random: on a busy machine more rounds may be needed.
        for paged in [false, true] {
            let mut met = [0; 4];
            while met.contains(&0) {
                let (entries, stats) =
                    history(Options::default(), Isolation::Serializable, 6_000, paged);
                assert_eq!(entries.len(), 12_000);
                assert_eq!(replay(entries), None);
                let AbortStats { certification, conflict, stale_read, .. } = stats.aborted;
                let now = [certification, conflict, stale_read, stats.snapshots_extended];
                met = std::array::from_fn(|kind| met[kind] + now[kind]);
            }
        }
    });
}

/// The replay detects histories that are not serializable.
#[test]
fn histories_under_snapshot_isolation_are_not_serializable() {
    with_limit(300, |_| {
        let found = (0..20).any(|_| {
            let (entries, stats) = history(Options::default(), Isolation::Snapshot, 1_000, false);
            assert_eq!(stats.aborted.certification, 0);
            replay(entries).is_some()
        });
        assert!(found, "no write skew in many transactions on few keys");
    });
}

/// Long transactions with many reads and few writes make progress while short ones continuously
/// write the records that they read, on every worker.
#[test]
fn long_writers_are_not_starved_by_short_ones() {
    const LONG: u64 = 30;
    const RECORDS: u64 = 2_000;
    with_limit(300, |_| {
        let (db, table) = in_memory(Options::default().workers(2));
        let fill = table.clone();
        db.run_blocking(async move |tx| {
            for key in 0..RECORDS {
                tx.put(&fill, &key, &0).await?;
            }
            Ok(())
        })
        .unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let short: Vec<_> = (0..2)
            .map(|worker| {
                let (over, table) = (over.clone(), table.clone());
                let inputs = (0..).take_while(move |_| !over.load(Ordering::Relaxed));
                let body = async move |tx: &Transaction, n: &u64| {
                    tx.put(&table, &(n * 7919 % RECORDS), n).await
                };
                db.run_source(worker, inputs, body).unwrap()
            })
            .collect();
        let mut attempts = 0;
        for n in 0..LONG {
            let table = table.clone();
            let body = async move |tx: &Transaction| {
                let mut sum = 0;
                for key in 0..RECORDS {
                    sum += tx.get(&table, &key).await?.unwrap();
                }
                tx.put(&table, &(RECORDS + n), &sum).await
            };
            let outcome = block_on(db.transaction().run(body)).unwrap();
            attempts += u64::from(outcome.attempts);
        }
        over.store(true, Ordering::Relaxed);
        for source in short {
            source.wait().unwrap();
        }
        let stats = db.stats();
        let turned_back = stats.aborted.certification + stats.aborted.stale_read;
        assert!(turned_back > LONG, "short ones did get in the way: {stats:?}");
        assert!(attempts <= LONG * 64 && stats.committed > 2 * LONG, "{attempts} {stats:?}");
    });
}

/// Only the projected part of a read matters. A deletion, or a panic of the projection, counts as a
/// different part.
#[test]
fn projected_reads_are_validated_by_the_projected_part() {
    with_limit(60, |_| {
        let part = |value: u64| {
            assert!(value != 666, "made to panic");
            value % 10
        };
        for (before, after, fails) in [
            (Some(17), Some(27), false),
            (Some(17), Some(18), true),
            (Some(17), None, true),
            (Some(17), Some(666), true),
            (None, Some(17), true),
            (Some(17), Some(17), false),
        ] {
            let (db, table) = in_memory(Options::default().workers(1));
            if before.is_some() {
                write_now(&db, &table, 1, before);
            }
            let tx = block_on(db.begin()).unwrap();
            let read = table.clone();
            let step = async move |tx: &Transaction| tx.get_part(&read, &1, part).await;
            assert_eq!(block_on(tx.step(step)).unwrap(), before.map(|value| value % 10));
            write_now(&db, &table, 1, after);
            block_on(tx.put(&table, &2, &2)).unwrap();
            let committed = block_on(tx.commit());
            let failed = matches!(committed, Err(Error::NotSerializable { .. }));
            assert_eq!(failed, fails, "{before:?} {after:?}: {committed:?}");
        }
    });
}
