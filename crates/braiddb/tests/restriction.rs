//! Restriction of writes to one handle: every kind of write through another one is refused, also
//! after the database is opened again.

#[path = "common/mod.rs"]
mod common;
#[path = "common/polls.rs"]
mod polls;

use std::time::Duration;

use braiddb::{
    Database, Durability, Error, IndexOptions, Misuse, Options, Result, Table, TableOptions,
    Transaction, block_on,
};
use common::{Watched, with_limit};
use polls::poll_at_most;

const LIMIT_SECONDS: u64 = 60;
const WRITER: &str = "replication.run";

/// Checks that a call was refused, and that the error names the table and the caller that may
/// write.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, of: &str) {
    match result {
        Err(error @ Error::Misuse(Misuse::RestrictedWrite { .. })) => {
            let Error::Misuse(Misuse::RestrictedWrite { table, writer }) = &error else { return };
            assert_eq!((&**table, &**writer), (of, WRITER));
            assert!(error.to_string().contains(WRITER), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

fn open(path: &std::path::Path, durability: Durability) -> Database {
    let options = Options::default().workers(1).socket(false).durability(durability);
    Database::open(path, options).unwrap().watched()
}

/// Tries every kind of write. The tables `a` (in memory), `p` (paged) and `e` (expiring) exist, and
/// `a` has an index.
async fn try_all(db: &Database) {
    let catalog = "braid.catalog";
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    let p: Table<u64, u64> = db.open_table("p").await.unwrap();
    let e: Table<u64, u64> = db.open_table("e").await.unwrap();
    for (table, name) in [(&a, "a"), (&p, "p"), (&e, "e")] {
        assert_refused(db.put(table, &1, &2).await, name);
        assert_refused(db.insert(table, &9, &2).await, name);
        assert_refused(db.update(table, &1, &2).await, name);
        assert_refused(db.delete(table, &1).await, name);
        assert_refused(db.fetch_update(table, &1, |_| Some(3)).await, name);
        assert_refused(db.clear(table).await, name);
        assert_refused(db.drop_table(name).await, name);
        assert_refused(db.rename_table(name, "other").await, name);
        let of = table.clone();
        let ignores = async move |tx: &Transaction| {
            assert!(tx.put(&of, &1, &2).await.is_err());
            tx.delete_range(&of, ..).await
        };
        assert_refused(db.run(ignores).await, name);
        let open = db.begin().await.unwrap();
        assert_refused(open.put(table, &1, &2).await, name);
        open.commit().await.unwrap();
        assert_eq!(db.get(table, &1).await.unwrap(), Some(1));
    }
    let of = p.clone();
    assert_refused(db.run_bulk(&p, async move |tx| tx.put(&of, &1, &2).await).await, "p");
    assert_refused(db.drop_index(&a, "by_value").await, "a");
    let by = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
    assert_refused(db.index(&a, "other", IndexOptions::default(), by).await, catalog);
    // An index that exists is attached.
    db.index(&a, "by_value", IndexOptions::default(), by).await.unwrap();
    assert_refused(db.create_table::<u64, u64>("b").await, catalog);
    assert_refused(db.stage_table::<u64, u64>("b").await, catalog);
    let writes = db.execute({
        let a = a.clone();
        async move |tx: &Transaction| tx.put(&a, &1, &7).await
    });
    let writes = writes.await.unwrap().writes;
    assert_eq!(writes.rows().count(), 1);
    assert_refused(db.run(async move |tx| tx.apply(&writes).await).await, "a");
    let reads = db.transaction().read_only(true);
    let put = reads.run(async move |tx| tx.put(&a, &1, &2).await).await;
    assert!(matches!(put, Err(Error::Misuse(Misuse::ReadOnlyTransaction))), "{put:?}");
}

async fn fill(db: &Database) {
    let hour = TableOptions::default().ttl(Duration::from_secs(3600));
    let paged = TableOptions::default().paged();
    for (name, options) in [("a", TableOptions::default()), ("p", paged), ("e", hour)] {
        let table: Table<u64, u64> = db.create_table_with(name, options).await.unwrap();
        db.put(&table, &1, &1).await.unwrap();
    }
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    let by = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
    db.index(&a, "by_value", IndexOptions::default(), by).await.unwrap();
}

#[test]
fn every_kind_of_write_is_refused_also_after_a_restart() {
    with_limit(LIMIT_SECONDS, |_| {
        // Writes on the thread of the caller need a durability other than `Group`.
        for durability in [Durability::Group, Durability::Relaxed] {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path(), durability);
            let replication = block_on(db.restrict_writes(WRITER)).unwrap();
            block_on(fill(&replication));
            block_on(try_all(&db));
            block_on(try_all(&db.downgrade().upgrade().unwrap()));
            let a: Table<u64, u64> = block_on(db.open_table("a")).unwrap();
            block_on(replication.downgrade().upgrade().unwrap().put(&a, &5, &5)).unwrap();
            db.close().unwrap();
            drop((db, replication));
            let db = open(directory.path(), durability);
            block_on(try_all(&db));
            // The same layer takes over again.
            let replication = block_on(db.restrict_writes(WRITER)).unwrap();
            let a: Table<u64, u64> = block_on(db.open_table("a")).unwrap();
            block_on(replication.delete(&a, &5)).unwrap();
            block_on(replication.rename_table("e", "f")).unwrap();
            block_on(replication.drop_table("p")).unwrap();
            block_on(db.allow_writes()).unwrap();
            block_on(db.put(&a, &1, &2)).unwrap();
            db.close().unwrap();
            drop((db, replication));
            let db = open(directory.path(), durability);
            let a: Table<u64, u64> = block_on(db.open_table("a")).unwrap();
            let by = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
            block_on(db.index(&a, "by_value", IndexOptions::default(), by)).unwrap();
            block_on(db.put(&a, &1, &3)).unwrap();
        }
    });
}

#[test]
fn the_engine_itself_writes_to_a_restricted_database() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), Durability::Group);
        let replication = block_on(db.restrict_writes(WRITER)).unwrap();
        let minute = TableOptions::default().ttl(Duration::from_millis(1));
        let e: Table<u64, u64> = block_on(replication.create_table_with("e", minute)).unwrap();
        block_on(replication.put(&e, &1, &1)).unwrap();
        while block_on(db.contains(&e, &1)).unwrap() {
            std::thread::yield_now();
        }
        block_on(db.sweep_expired()).unwrap();
        assert_eq!(db.stats().expired_swept, 1);
        block_on(db.create_change_slot("slot", 1 << 20)).unwrap();
        block_on(db.drop_change_slot("slot")).unwrap();
        block_on(db.checkpoint()).unwrap();
        block_on(db.compact()).unwrap();
    });
}

/// A restriction that was not noted would end when the database is opened again.
#[test]
fn a_dropped_call_is_completed_by_the_next() {
    with_limit(LIMIT_SECONDS, |_| {
        for polls in 0..6 {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path(), Durability::Group);
            let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
            _ = block_on(poll_at_most(db.restrict_writes(WRITER), polls));
            block_on(db.restrict_writes(WRITER)).unwrap();
            assert_refused(block_on(db.put(&a, &1, &1)), "a");
            db.close().unwrap();
            drop((db, a));
            let db = open(directory.path(), Durability::Group);
            let a: Table<u64, u64> = block_on(db.open_table("a")).unwrap();
            assert_refused(block_on(db.put(&a, &1, &1)), "a");
        }
    });
}

#[test]
fn a_transaction_that_began_before_is_waited_for() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
        let open = block_on(db.begin()).unwrap();
        block_on(open.put(&a, &1, &1)).unwrap();
        let restricting = std::thread::spawn({
            let db = db.clone();
            move || block_on(db.restrict_writes(WRITER))
        });
        // The restriction holds for later transactions.
        while block_on(db.put(&a, &2, &2)).is_ok() {}
        assert!(!restricting.is_finished());
        block_on(open.commit()).unwrap();
        restricting.join().unwrap().unwrap();
        assert_eq!(block_on(db.get(&a, &1)).unwrap(), Some(1));
    });
}

#[test]
fn a_call_waits_although_another_one_was_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
        let open = block_on(db.begin()).unwrap();
        _ = block_on(poll_at_most(db.restrict_writes(WRITER), 1));
        while block_on(db.put(&a, &2, &2)).is_ok() {}
        let again = std::thread::spawn({
            let db = db.clone();
            move || block_on(db.restrict_writes(WRITER))
        });
        for _ in 0..1000 {
            assert_refused(block_on(db.put(&a, &2, &2)), "a");
        }
        assert!(!again.is_finished());
        block_on(open.put(&a, &1, &1)).unwrap();
        block_on(open.commit()).unwrap();
        again.join().unwrap().unwrap();
    });
}

#[test]
fn nothing_is_written_after_the_call_has_returned() {
    with_limit(LIMIT_SECONDS, |_| {
        let options = Options::default().workers(1).durability(Durability::Volatile);
        let db = Database::in_memory(options).unwrap().watched();
        let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
        for _ in 0..100 {
            let writers: Vec<_> = (0..2)
                .map(|key| {
                    let (db, a) = (db.clone(), a.clone());
                    std::thread::spawn(move || {
                        (1..).find(|value| block_on(db.put(&a, &key, value)).is_err())
                    })
                })
                .collect();
            while block_on(db.len(&a)).unwrap() < 2 {}
            block_on(db.restrict_writes(WRITER)).unwrap();
            let read = || [0, 1].map(|key| block_on(db.get(&a, &key)).unwrap());
            let then = read();
            writers.into_iter().for_each(|writer| _ = writer.join().unwrap());
            assert_eq!(read(), then);
            block_on(db.allow_writes()).unwrap();
            block_on(db.clear(&a)).unwrap();
        }
    });
}

#[test]
fn calls_at_the_same_time_leave_what_the_last_one_noted() {
    with_limit(LIMIT_SECONDS, |_| {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path(), Durability::Relaxed);
            let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
            let calls: Vec<_> = (0..4)
                .map(|number| {
                    let db = db.clone();
                    std::thread::spawn(move || match number % 2 {
                        0 => block_on(db.restrict_writes(WRITER)).map(drop),
                        _ => block_on(db.allow_writes()),
                    })
                })
                .collect();
            calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
            let is_refused =
                |db: &Database, a: &Table<u64, u64>| block_on(db.put(a, &1, &1)).is_err();
            let before = is_refused(&db, &a);
            db.close().unwrap();
            drop((db, a));
            let db = open(directory.path(), Durability::Relaxed);
            let a: Table<u64, u64> = block_on(db.open_table("a")).unwrap();
            assert_eq!(is_refused(&db, &a), before);
        }
    });
}

#[test]
fn a_call_within_a_transaction_is_refused() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let of = db.clone();
        let within = block_on(db.run(async move |_| of.restrict_writes(WRITER).await.map(drop)));
        assert!(matches!(within, Err(Error::Misuse(Misuse::WouldBlock))), "{within:?}");
        let a: Table<u64, u64> = block_on(db.create_table("a")).unwrap();
        block_on(db.put(&a, &1, &1)).unwrap();
    });
}

/// A transaction that is open does not delay writes to the table of a dropped index: the layer
/// above validates transactions that read the index.
#[test]
fn writes_need_a_dropped_index_no_more() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let writing = block_on(db.restrict_writes(WRITER)).unwrap();
        let a: Table<u64, u64> = block_on(writing.create_table("a")).unwrap();
        let fails = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| {
            assert_ne!(value, 2, "a value without keys");
            keys.push(&value);
        };
        block_on(writing.index(&a, "by_value", IndexOptions::default(), fails)).unwrap();
        let reader = block_on(db.begin()).unwrap();
        std::thread::scope(|scope| {
            let put = || block_on(writing.put(&a, &1, &2));
            assert!(matches!(put(), Err(Error::Panicked(_))));
            let dropping = scope.spawn(|| block_on(writing.drop_index(&a, "by_value")));
            while let Err(error) = put() {
                assert!(matches!(error, Error::Panicked(_)), "{error}");
                std::thread::yield_now();
            }
            assert!(!dropping.is_finished());
            drop(reader);
            dropping.join().unwrap().unwrap();
        });
    });
}
