//! Change feeds: their contents for tables of all kinds, their start points, and their ends.

use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::changes::{
    Change, ChangeKind, ChangeToken, ChangeTransaction, Changes, ChangesFrom, TokenError,
};
use braiddb::{
    ChangesError, Database, Durability, Error, IndexOptions, Misuse, Options, Table, TableOptions,
    Tuning,
};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

fn options() -> Options {
    Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(256 << 10))
}

fn open(directory: &tempfile::TempDir) -> Database {
    Database::open(directory.path(), options()).unwrap().watched()
}

fn next(changes: &mut Changes) -> ChangeTransaction {
    block_on(changes.next()).unwrap().expect("a feed ends with an error")
}

/// Returns table, kind and key of each change, with keys as numbers.
fn told(transaction: &ChangeTransaction) -> Vec<(&str, &str, u64)> {
    let told = |change: &'_ Change| match change.key.is_empty() {
        true => 0,
        false => change.key_as::<u64>().unwrap(),
    };
    let all = transaction.changes.iter();
    all.map(|change| (&*change.table, change.kind.name(), told(change))).collect()
}

fn put(db: &Database, table: &Table<u64, u64>, key: u64, value: u64) {
    block_on(db.put(table, &key, &value)).unwrap();
}

/// Runs a test with a database whose state the time limit prints.
fn with_database(test: impl FnOnce(&Database, &tempfile::TempDir) + Send + 'static) {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(&directory);
        test(&db, &directory);
    });
}

#[test]
fn whole_transactions_are_returned_in_commit_order() {
    with_database(|db, _| {
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let other: Table<u64, u64> = block_on(db.create_table("other")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now);
        put(db, &table, 1, 10);
        put(db, &table, 1, 11);
        let both = (table.clone(), other.clone());
        db.run_blocking(async move |tx| {
            tx.insert(&both.0, &2, &20).await?;
            tx.insert(&both.1, &3, &30).await?;
            tx.delete(&both.0, &1).await.map(drop)
        })
        .unwrap();
        let aborted = table.clone();
        let failed: Result<(), Error> = db.run_blocking(async move |tx| {
            tx.put(&aborted, &9, &9).await?;
            Err(Error::Closed)
        });
        assert!(failed.is_err());
        put(db, &other, 4, 40);

        let given: Vec<_> = (0..4).map(|_| next(&mut changes)).collect();
        assert_eq!(told(&given[0]), [("t", "insert", 1)]);
        assert_eq!(told(&given[1]), [("t", "update", 1)]);
        let third = [("t", "insert", 2), ("other", "insert", 3), ("t", "delete", 1)];
        assert_eq!(told(&given[2]), third);
        assert_eq!(told(&given[3]), [("other", "insert", 4)]);
        assert_eq!(given[1].changes[0].value_as::<u64>().unwrap(), 11);
        assert!(given[2].changes[2].value.is_empty());
        assert!(given.is_sorted_by(|one, next| one.commit_lsn < next.commit_lsn));
        for (number, transaction) in given.iter().enumerate() {
            let token = transaction.token.unwrap();
            assert_eq!(token.commit_lsn(), transaction.commit_lsn);
            let mut rest = db.changes(token.into());
            put(db, &table, 100 + number as u64, 0);
            let mut again: Vec<_> = Vec::new();
            while again.len() < given.len() - 1 - number {
                again.push(next(&mut rest));
            }
            assert_eq!(again, given[number + 1..]);
            assert_eq!(next(&mut rest).commit_lsn, {
                let mut later = db.changes(given[3].token.unwrap().into());
                next(&mut later).commit_lsn
            });
        }
    });
}

#[test]
fn tables_are_chosen_by_name_or_by_handle() {
    with_database(|db, _| {
        let [one, two, three] = ["one", "two", "three"]
            .map(|name| block_on(db.create_table::<u64, u64>(name)).unwrap());
        let from = ChangesFrom::Now;
        let mut named = db.changes(from.clone()).tables(["one", "four"]);
        let mut handled = db.changes(from.clone()).tables([&one, &three]);
        let mut none = db.changes(from).tables::<&str>([]);
        for table in [&two, &one, &three] {
            put(db, table, 1, 1);
        }
        block_on(db.rename_table("one", "uno")).unwrap();
        put(db, &one, 2, 2);
        block_on(db.rename_table("three", "four")).unwrap();
        put(db, &three, 3, 3);
        let given: Vec<_> = (0..4).map(|_| next(&mut named)).collect();
        let given: Vec<_> = given.iter().map(told).collect();
        assert_eq!(given[0], [("one", "insert", 1)]);
        assert_eq!(given[1], [("one", "table_renamed", 0)]);
        assert_eq!(given[2], [("three", "table_renamed", 0)]);
        assert_eq!(given[3], [("four", "insert", 3)]);
        let given: Vec<_> = (0..6).map(|_| next(&mut handled)).collect();
        assert_eq!(given[2].changes[0].kind, ChangeKind::TableRenamed { to: "uno".into() });
        let given: Vec<_> = given.iter().map(told).collect();
        assert_eq!(given[3], [("uno", "insert", 2)]);
        assert_eq!(given[5], [("four", "insert", 3)]);
        db.close().unwrap();
        assert!(matches!(block_on(none.next()), Err(Error::Closed)));
        assert!(matches!(block_on(none.next()), Ok(None)));
    });
}

/// Changes name their table by its name at that time, for every start point of the feed.
#[test]
fn changes_have_the_table_name_at_their_commit() {
    with_database(|db, directory| {
        let expiring = TableOptions::default().ttl(Duration::from_hours(1000));
        let mut live = db.changes(ChangesFrom::Now);
        let start = db.changes(ChangesFrom::Now);
        let one: Table<u64, u64> = db
            .run_blocking(async move |tx| {
                let one = tx.create_table_with("one", expiring).await?;
                tx.insert(&one, &1, &1).await?;
                Ok(one)
            })
            .unwrap();
        block_on(db.rename_table("one", "two")).unwrap();
        put(db, &one, 2, 2);
        let again: Table<u64, u64> = block_on(db.create_table("one")).unwrap();
        put(db, &again, 3, 3);
        block_on(db.drop_table("two")).unwrap();
        block_on(db.rename_table("one", "two")).unwrap();
        put(db, &again, 4, 4);
        let staged = block_on(db.stage_table::<u64, u64>("staged")).unwrap();
        put(db, staged.table(), 5, 5);
        let discarded = block_on(db.stage_table::<u64, u64>("discarded")).unwrap();
        put(db, discarded.table(), 5, 5);
        block_on(discarded.discard()).unwrap();
        let staged = block_on(staged.publish()).unwrap();
        put(db, &staged, 6, 6);
        let options = IndexOptions::default();
        let index = db.index(&again, "values", options, |value, keys| keys.push(&value));
        let _index: braiddb::Index<u64, u64, u64> = block_on(index).unwrap();
        put(db, &again, 7, 7);
        assert_eq!(block_on(db.clear(&staged)).unwrap(), 2);

        let expected = [
            vec![("one", "table_created", 0), ("one", "insert", 1)],
            vec![("one", "table_renamed", 0)],
            vec![("two", "insert", 2)],
            vec![("one", "table_created", 0)],
            vec![("one", "insert", 3)],
            vec![("two", "table_dropped", 0)],
            vec![("one", "table_renamed", 0)],
            vec![("two", "insert", 4)],
            vec![("staged", "table_published", 0)],
            vec![("staged", "insert", 6)],
            vec![("two", "insert", 7)],
            vec![("staged", "delete", 5), ("staged", "delete", 6)],
        ];
        let given: Vec<_> = expected.iter().map(|_| next(&mut live)).collect();
        for (given, expected) in given.iter().zip(&expected) {
            assert_eq!(told(given), *expected);
        }
        let of_expiring = &given[0].changes[1];
        assert_eq!(of_expiring.value_as::<u64>().unwrap(), 1);
        assert!(of_expiring.expires_at.is_some());
        assert_eq!(given[7].changes[0].expires_at, None);
        // Starts from each place, also in another process.
        drop(start);
        db.close().unwrap();
        let db = open(directory);
        for (number, transaction) in given.iter().enumerate() {
            let mut rest = db.changes(transaction.token.unwrap().into());
            for expected in &given[number + 1..] {
                assert_eq!(next(&mut rest), *expected);
            }
        }
    });
}

#[test]
fn changes_of_paged_tables_are_puts_and_deletes() {
    with_database(|db, _| {
        let table: Table<u64, u64> = db
            .run_blocking(async |tx| {
                tx.create_table_with("p", TableOptions::default().paged()).await
            })
            .unwrap();
        let mut changes = db.changes(ChangesFrom::Now);
        put(db, &table, 1, 1);
        put(db, &table, 1, 2);
        block_on(db.delete(&table, &1)).unwrap();
        let given: Vec<_> = (0..3).map(|_| next(&mut changes)).collect();
        let given: Vec<_> = given.iter().map(told).collect();
        assert_eq!(given.concat(), [("p", "put", 1), ("p", "put", 1), ("p", "delete", 1)]);
    });
}

/// Two large transactions are logged in interleaved parts, and a third one fails. A bulk operation
/// is one transaction, and an aborted one is none; a feed continues after it.
#[test]
fn bulk_operations_are_returned_whole() {
    const RECORDS: u64 = 5_000;
    with_database(|db, directory| {
        let paged = TableOptions::default().paged();
        let table: Table<u64, u64> = block_on(db.create_table_with("paged", paged)).unwrap();
        let mut changes = db.changes(ChangesFrom::Now).tables(["paged"]);
        put(db, &table, 0, 7);
        let aborted = table.clone();
        let failed = block_on(db.run_bulk(&table, async move |tx| {
            for key in 0..RECORDS {
                tx.put(&aborted, &key, &1).await?;
            }
            Err::<(), _>(Error::Closed)
        }));
        assert!(matches!(failed, Err(Error::Closed)));
        let done = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            for key in 1..RECORDS {
                tx.put(&done, &key, &key).await?;
            }
            tx.delete(&done, &0).await.map(drop)
        }))
        .unwrap();
        put(db, &table, 1, 8);
        assert_eq!(told(&next(&mut changes)), [("paged", "put", 0)]);
        let bulk = next(&mut changes);
        let (kinds, keys): (Vec<_>, Vec<_>) =
            told(&bulk).into_iter().map(|(_, kind, key)| (kind, key)).unzip();
        assert_eq!(kinds.iter().filter(|kind| **kind == "put").count() as u64, RECORDS - 1);
        assert_eq!(kinds.iter().filter(|kind| **kind == "delete").count(), 1);
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..RECORDS), "each record once");
        assert_eq!(told(&next(&mut changes)), [("paged", "put", 1)]);
        // Starts from its token, also after the database was reopened.
        let token = bulk.token.unwrap();
        db.close().unwrap();
        let again = open(directory);
        let mut rest = again.changes(token.into()).tables(["paged"]);
        assert_eq!(told(&next(&mut rest)), [("paged", "put", 1)]);
    });
}

#[test]
fn large_transactions_are_returned_whole() {
    with_database(|db, _| {
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now);
        let write = |tables: Table<u64, [u8]>, first: u64| {
            db.run(async move |tx| {
                for key in first..first + 300 {
                    tx.put(&tables, &key, &[first as u8; 1000]).await?;
                }
                Ok(())
            })
        };
        let all = futures_util::future::join_all((1..=5).map(|n| write(table.clone(), n * 1000)));
        block_on(all).into_iter().for_each(|written| written.unwrap());
        let mut seen = Vec::new();
        for _ in 0..5 {
            let transaction = next(&mut changes);
            assert_eq!(transaction.changes.len(), 300);
            let first = transaction.changes[0].key_as::<u64>().unwrap();
            for (change, key) in transaction.changes.iter().zip(first..) {
                assert_eq!(change.key_as::<u64>().unwrap(), key);
                assert!(change.value == [first as u8; 1000]);
            }
            seen.push(first);
            let mut rest = db.changes(transaction.token.unwrap().into());
            for _ in seen.len()..5 {
                let again = next(&mut rest);
                assert!(!seen.contains(&again.changes[0].key_as::<u64>().unwrap()));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [1000, 2000, 3000, 4000, 5000]);
    });
}

#[test]
fn a_feed_returns_the_snapshot_and_then_later_commits() {
    with_database(|db, _| {
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        let _empty: Table<u64, [u8]> = block_on(db.create_table("empty")).unwrap();
        // The snapshot is taken at the first poll: earlier commits are part of it and are not
        // repeated.
        let mut changes = db.changes(ChangesFrom::Snapshot);
        let fill = table.clone();
        db.run_blocking(async move |tx| {
            for key in 0..3000 {
                tx.put(&fill, &key, &[1; 1000]).await?;
            }
            Ok(())
        })
        .unwrap();
        let (mut records, mut pieces, mut created) = (0, 0, Vec::new());
        let token = loop {
            let piece = next(&mut changes);
            assert!(piece.snapshot);
            if pieces == 0 {
                block_on(db.put(&table, &7, &[2; 10])).unwrap();
            }
            pieces += 1;
            for change in &piece.changes {
                match change.kind {
                    ChangeKind::Insert => {
                        assert_eq!(change.key_as::<u64>().unwrap(), records);
                        assert!(change.value == [1; 1000]);
                        records += 1;
                    }
                    ChangeKind::TableCreated => created.push(change.table.to_string()),
                    _ => panic!("{change:?}"),
                }
            }
            if let Some(token) = piece.token {
                break token;
            }
        };
        assert!(pieces > 3, "{pieces} pieces");
        assert_eq!((records, created), (3000, vec!["empty".to_owned(), "t".to_owned()]));
        for mut changes in [changes, db.changes(token.into())] {
            let transaction = next(&mut changes);
            assert_eq!(told(&transaction), [("t", "update", 7)]);
        }
    });
}

#[test]
fn unusable_tokens_are_rejected() {
    with_database(|db, _| {
        let mut changes = db.changes(ChangesFrom::Now);
        assert_eq!(changes.token(), None);
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let token = next(&mut changes).token.unwrap();
        assert_eq!(changes.token(), Some(token));
        let fails = |db: &Database, token: ChangeToken| {
            block_on(db.changes(ChangesFrom::Token(token)).next()).unwrap_err()
        };
        let other = tempfile::tempdir().unwrap();
        let other = open(&other);
        assert!(matches!(
            fails(&other, token),
            Error::Changes(ChangesError::Token(TokenError::OtherDatabase))
        ));
        // A copy of the database from before the token.
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("copy");
        db.backup(&copy).unwrap();
        (0..1000).for_each(|key| put(db, &table, key, key));
        let mut last = token;
        for _ in 0..1000 {
            last = next(&mut changes).token.unwrap();
        }
        let copy = Database::open(&copy, options()).unwrap().watched();
        let error = fails(&copy, last);
        assert!(
            matches!(error, Error::Changes(ChangesError::Token(TokenError::AheadOfLog { .. }))),
            "{error}"
        );
        let table: Table<u64, [u8]> = block_on(copy.create_table("large")).unwrap();
        for key in 0.. {
            if copy.stats().lsn.tail > last.resume_lsn() + 100_000 {
                break;
            }
            block_on(copy.put(&table, &key, &[0xff; 300_000])).unwrap();
        }
        let error = fails(&copy, last);
        assert!(
            matches!(error, Error::Changes(ChangesError::Token(TokenError::OtherLog { .. }))),
            "{error}"
        );
    });
}

#[test]
fn a_database_without_a_log_has_no_feed() {
    with_database(|db, directory| {
        let memory = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let first = |db: &Database| block_on(db.changes(ChangesFrom::Now).next());
        assert!(matches!(first(&memory), Err(Error::Misuse(Misuse::NoLog))));
        assert!(matches!(
            block_on(memory.create_change_slot("s", 1)),
            Err(Error::Misuse(Misuse::NoLog))
        ));
        let reader =
            Database::open(directory.path(), Options::default().read_only(true)).unwrap().watched();
        assert!(matches!(first(&reader), Err(Error::Misuse(Misuse::ReadOnlyDatabase))));
        assert!(block_on(reader.change_slots()).unwrap().is_empty());
        db.close().unwrap();
        assert!(matches!(first(db), Err(Error::Closed)));
    });
}

#[test]
fn a_feed_of_relaxed_commits_returns_only_durable_ones() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let relaxed = options().durability(Durability::Relaxed);
        let db = Database::open(directory.path(), relaxed).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now).tables(["t"]);
        let take = |changes: &mut Changes, key| {
            let given = next(changes);
            assert_eq!(told(&given), [("t", "insert", key)]);
            assert!(db.stats().lsn.durable > given.commit_lsn);
        };
        for key in 0..100 {
            put(&db, &table, key, key);
            take(&mut changes, key);
        }
        // A writer is ahead of the durable log.
        std::thread::scope(|scope| {
            scope.spawn(|| (100..5000).for_each(|key| put(&db, &table, key, key)));
            (100..5000).for_each(|key| take(&mut changes, key));
        });
    });
}

/// A waiting feed ends when any handle closes the database, and does not keep the database open.
#[test]
fn closing_the_database_ends_a_waiting_feed() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for dropped in [false, true] {
            let db = open(&directory);
            let mut changes = db.changes(ChangesFrom::Now);
            // Once it has a token, it has followed the log to the tail, and waits there at the next
            // poll.
            while changes.token().is_none() {
                assert_eq!(poll_once(&mut changes), None);
                std::thread::yield_now();
            }
            assert_eq!(poll_once(&mut changes), None);
            let waiting = std::thread::spawn(move || block_on(changes.next()).map(drop));
            match dropped {
                true => drop(db),
                false => db.close().unwrap(),
            }
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        }
    });
}

/// Polls once, and drops the future if it is not ready.
fn poll_once(changes: &mut Changes) -> Option<ChangeTransaction> {
    let mut next = std::pin::pin!(changes.next());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match next.as_mut().poll(&mut context) {
        std::task::Poll::Ready(given) => Some(given.unwrap().expect("a feed ends with an error")),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn cancelling_a_wait_for_the_next_change_loses_nothing() {
    with_database(|db, _| {
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        (0..3).for_each(|key| put(db, &table, key, key));
        let mut changes = db.changes(ChangesFrom::Snapshot);
        let mut given = Vec::new();
        let mut written = 3;
        while given.len() < 100 {
            let Some(transaction) = poll_once(&mut changes) else {
                if written < 100 && fastrand::u32(..50) == 0 {
                    put(db, &table, written, written);
                    written += 1;
                }
                std::thread::yield_now();
                continue;
            };
            let of_records = |change: &&Change| change.kind == ChangeKind::Insert;
            let records = transaction.changes.iter().filter(of_records);
            given.extend(records.map(|change| change.key_as::<u64>().unwrap()));
        }
        assert_eq!(given, (0..100).collect::<Vec<_>>());
    });
}

/// A feed dropped after any number of polls leaves nothing that retains the log.
#[test]
fn a_dropped_feed_holds_no_log() {
    with_database(|db, _| {
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for from in [ChangesFrom::Now, ChangesFrom::Snapshot] {
            for polls in 0..6 {
                let mut changes = db.changes(from.clone());
                for _ in 0..polls {
                    poll_once(&mut changes);
                    std::thread::yield_now();
                }
                for _ in 0..40 {
                    block_on(db.put(&table, &1, &[1; 30_000])).unwrap();
                }
                drop(changes);
                // A worker's current work for the feed ends first.
                while block_on(db.compact()).unwrap().segments == 0 {}
            }
        }
    });
}

#[test]
fn a_feed_is_a_stream_for_any_executor() {
    use futures_util::{StreamExt, TryStreamExt};
    with_database(|db, _| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let db = db.clone();
        runtime.block_on(async move {
            let table: Table<u64, u64> = db.create_table("t").await.unwrap();
            let changes = db.changes(ChangesFrom::Now);
            let followed = tokio::spawn(changes.take(50).try_collect::<Vec<_>>());
            for key in 0..50 {
                db.put(&table, &key, &key).await.unwrap();
            }
            let followed = followed.await.unwrap().unwrap();
            let keys: Vec<_> =
                followed.iter().map(|t| t.changes[0].key_as::<u64>().unwrap()).collect();
            assert_eq!(keys, (0..50).collect::<Vec<_>>());
            // Also within a transaction.
            let (token, inside) = (followed[0].token.unwrap(), db.clone());
            let second = db.run(async move |_| inside.changes(token.into()).next().await).await;
            assert_eq!(second.unwrap().unwrap(), followed[1]);
        });
    });
}
