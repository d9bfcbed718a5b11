//! Edge cases of change feeds: reused table numbers, diverged copies, workers without free slots,
//! and closing databases.

use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};

use crate::common::{Watched, once_free, with_limit};
use braiddb::changes::{
    Change, ChangeKind, ChangeToken, ChangeTransaction, Changes, ChangesFrom, TokenError,
};
use braiddb::{ChangesError, Database, Error, Options, Overload, Table, Tuning};
use futures_util::future::join_all;
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(256 << 10).checkpoint_bytes(1 << 40))
}

fn next(changes: &mut Changes) -> ChangeTransaction {
    block_on(changes.next()).unwrap().expect("a feed ends with an error")
}

fn poll_once(changes: &mut Changes) -> Poll<Result<Option<ChangeTransaction>, Error>> {
    let mut context = Context::from_waker(Waker::noop());
    std::pin::pin!(changes.next()).as_mut().poll(&mut context)
}

fn kinds(transaction: &ChangeTransaction) -> Vec<(&str, &str)> {
    fn kind(change: &Change) -> (&str, &str) {
        (&change.table, change.kind.name())
    }
    transaction.changes.iter().map(kind).collect()
}

/// A feed from a handle returns only that table's changes, regardless of tables dropped before its
/// creation. This holds if the log still contains them all, and if only a checkpoint remains.
#[test]
fn table_ids_are_never_reused() {
    with_limit(LIMIT_SECONDS, |_| {
        for (checkpoint, records) in [(false, 0), (false, 3), (true, 0), (true, 3)] {
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options()).unwrap().watched();
            block_on(db.create_change_slot("slot", 1 << 40)).unwrap();
            let dropped: Table<u64, u64> = block_on(db.create_table("dropped")).unwrap();
            for key in 0..records {
                block_on(db.put(&dropped, &key, &key)).unwrap();
            }
            block_on(db.drop_table("dropped")).unwrap();
            if checkpoint {
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
            db.close().unwrap();

            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
            block_on(db.put(&table, &1, &1)).unwrap();
            let slot = || ChangesFrom::Slot("slot".to_owned());
            let mut changes = db.changes(slot()).tables([&table]);
            assert_eq!(kinds(&next(&mut changes)), [("t", "table_created")], "{checkpoint}");
            assert_eq!(kinds(&next(&mut changes)), [("t", "insert")]);
            let mut all = db.changes(slot());
            let first = next(&mut all);
            assert_eq!(kinds(&first), [("dropped", "table_created")]);
            let tables = block_on(db.tables()).unwrap();
            assert_ne!(first.changes[0].table_id, tables[0].id);
        }
    });
}

/// Commits until the log has this number of bytes.
fn grow(db: &Database, table: &Table<u64, [u8]>, until: u64, value: u8) {
    while db.stats().lsn.durable < until {
        block_on(db.put(table, &1, &[value; 100])).unwrap();
    }
}

fn is_other_log(error: &Error) -> bool {
    matches!(error, Error::Changes(ChangesError::Token(TokenError::OtherLog { .. })))
}

/// A copy that diverged from the original uses the same LSNs, and has blocks at many of them
/// because all commits have the same size. It must detect a token of the original from after the
/// copy by its contents.
#[test]
fn a_copied_database_rejects_tokens_of_later_commits_of_the_original() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now);
        // Tokens of different commits, before and after the copy.
        let mut tokens = Vec::new();
        let commit = |tokens: &mut Vec<ChangeToken>, changes: &mut Changes| {
            block_on(db.put(&table, &1, &[1; 100])).unwrap();
            tokens.push(next(changes).token.unwrap());
        };
        commit(&mut tokens, &mut changes);
        let copy = tempfile::tempdir().unwrap();
        let copy = copy.path().join("copy");
        once_free(|| db.backup(&copy)).unwrap();
        let (old, mut new) = (tokens, Vec::new());
        (0..20).for_each(|_| commit(&mut new, &mut changes));
        let end = db.stats().lsn.durable;

        let copy = Database::open(&copy, options()).unwrap().watched();
        let of_copy: Table<u64, [u8]> = block_on(copy.open_table("t")).unwrap();
        block_on(copy.create_change_slot("slot", 1 << 40)).unwrap();
        grow(&copy, &of_copy, end + 10_000, 2);
        for token in new {
            let error = block_on(copy.changes(token.into()).next()).unwrap_err();
            let not_there =
                matches!(error, Error::Changes(ChangesError::Token(TokenError::NotInLog { .. })));
            assert!(not_there || is_other_log(&error), "{token:?}: {error}");
            let error = block_on(copy.advance_change_slot("slot", &token)).unwrap_err();
            assert!(is_other_log(&error), "{token:?}: {error}");
        }
        for token in old {
            let transaction = next(&mut copy.changes(token.into()));
            assert!(transaction.changes[0].value == [2; 100]);
            block_on(copy.advance_change_slot("slot", &token)).unwrap();
        }
        for token in block_on(copy.change_slots()).unwrap().iter().map(|slot| slot.token) {
            next(&mut copy.changes(token.into()));
        }
    });
}

/// Tokens of all kinds can be resumed, also after restarts.
#[test]
fn tokens_of_all_kinds_can_be_resumed_after_restarts() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut tokens = Vec::new();
        for round in 0..4 {
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.open_or_create_table("t")).unwrap();
            tokens.push(block_on(db.create_change_slot(&format!("{round}"), 1 << 40)).unwrap());
            let mut changes = db.changes(ChangesFrom::Snapshot);
            tokens.push(next(&mut changes).token.expect("there is one piece"));
            let mut now = db.changes(ChangesFrom::Now);
            while now.token().is_none() {
                assert!(matches!(poll_once(&mut now), Poll::Pending));
            }
            tokens.push(now.token().unwrap());
            for bytes in [10, 5000, 200_000] {
                block_on(db.put(&table, &1, &vec![round; bytes])).unwrap();
                tokens.push(next(&mut now).token.unwrap());
            }
            tokens.extend(block_on(db.change_slots()).unwrap().iter().map(|slot| slot.token));
            for token in &tokens {
                let mut changes = db.changes((*token).into());
                while changes.token().is_none() {
                    if let Poll::Ready(given) = poll_once(&mut changes) {
                        given.unwrap();
                    }
                }
                block_on(db.advance_change_slot("0", token)).unwrap();
            }
        }
    });
}

/// A worker without a free slot ends no feed.
#[test]
fn a_feed_waits_for_a_slot_to_load_earlier_table_names() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(
            directory.path(),
            options().workers(1).tune(|tuning| tuning.max_open(64)),
        )
        .unwrap()
        .watched();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now);
        block_on(db.put(&table, &1, &1)).unwrap();
        // Each waits for an external event, until no more can begin.
        let (mut releases, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (release, released) = futures_channel::oneshot::channel::<()>();
            let (begun, begins) = channel();
            let (db, released) = (db.clone(), std::sync::Mutex::new(Some(released)));
            let wait = async move |_: &_| {
                begun.send(()).unwrap();
                let released = released.lock().unwrap().take().unwrap();
                _ = released.await;
                Ok(())
            };
            let one = std::thread::spawn(move || db.run_blocking(wait));
            if begins.recv().is_err() {
                assert!(matches!(one.join().unwrap(), Err(Error::Overloaded)));
                break;
            }
            releases.push(release);
            waiting.push(one);
        }
        for _ in 0..20 {
            assert!(matches!(poll_once(&mut changes), Poll::Pending));
            // After the worker's work for the feed.
            assert!(matches!(db.run_blocking(async |_| Ok(())), Err(Error::Overloaded)));
        }
        drop(releases);
        assert_eq!(kinds(&next(&mut changes)), [("t", "insert")]);
        waiting.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
}

/// A snapshot that cannot begin for lack of a slot does not end its feed.
#[test]
fn a_feed_waits_for_a_slot_before_its_snapshot() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(
            directory.path(),
            options().workers(1).tune(|tuning| tuning.max_open(64)),
        )
        .unwrap()
        .watched();
        let _table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let mut changes = db.changes(ChangesFrom::Snapshot);
        let mut open = Vec::new();
        while let Ok(transaction) = block_on(db.begin()) {
            open.push(transaction);
        }
        for _ in 0..3 {
            assert!(matches!(block_on(changes.next()), Err(Error::Overloaded)));
        }
        for transaction in open {
            block_on(transaction.abort()).unwrap();
        }
        let piece = next(&mut changes);
        assert_eq!(kinds(&piece), [("t", "table_created")]);
        assert!(piece.snapshot && piece.token.is_some());
    });
}

/// With load shedding, reads of a feed's snapshot are not shed.
#[test]
fn a_feed_reads_its_whole_snapshot_even_if_reads_are_shed() {
    const RECORDS: u64 = 4000;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for key in 0..RECORDS / 100 {
            let table = table.clone();
            let fill = async move |tx: &braiddb::Transaction| {
                for key in key * 100..(key + 1) * 100 {
                    tx.put(&table, &key, &[1; 1000]).await?;
                }
                Ok(())
            };
            db.run_blocking(fill).unwrap();
        }
        db.close().unwrap();
        // All records are only on disk.
        let shedding =
            options().workers(1).tune(|tuning| tuning.cold_width(1).overload(Overload::Shed));
        let db = Database::open(directory.path(), shedding).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_table("t")).unwrap();
        let readers = join_all((0..8).map(|reader| {
            let (db, table) = (&db, &table);
            async move {
                let mut shed = 0;
                for number in 0..RECORDS / 4 {
                    let key = (number * 31 + reader * 500) % RECORDS;
                    match db.get(table, &key).await {
                        Err(Error::Overloaded) => shed += 1,
                        read => assert!(read.unwrap().unwrap() == [1; 1000]),
                    }
                }
                shed
            }
        }));
        let follow = async {
            let mut changes = db.changes(ChangesFrom::Snapshot);
            let mut records = 0;
            loop {
                let piece = changes.next().await.unwrap().unwrap();
                let inserted = |change: &&Change| change.kind == ChangeKind::Insert;
                records += piece.changes.iter().filter(inserted).count() as u64;
                if piece.token.is_some() {
                    break records;
                }
            }
        };
        let (shed, records) = block_on(futures_util::future::join(readers, follow));
        assert_eq!(records, RECORDS);
        assert!(shed.iter().sum::<u64>() > 0, "nothing is shed");
    });
}

/// Each piece of a snapshot has records, and the last record is in the last piece.
#[test]
fn a_snapshot_is_never_returned_in_empty_pieces() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let mut empty = db.changes(ChangesFrom::Snapshot);
        let only = next(&mut empty);
        assert!(only.changes.is_empty() && only.token.is_some(), "there is no table");
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for key in 0..3 {
            block_on(db.put(&table, &key, &vec![1; (1 << 20) + 1])).unwrap();
        }
        let mut changes = db.changes(ChangesFrom::Snapshot);
        for records in 1..=3 {
            let piece = next(&mut changes);
            let kinds = kinds(&piece);
            let expected = [("t", "table_created"), ("t", "insert")];
            assert_eq!(kinds, expected[usize::from(records > 1)..]);
            assert_eq!(piece.token.is_some(), records == 3);
        }
    });
}

/// The token of a waiting feed moves past later commits that do not concern its tables, also if it
/// found both at the same time.
#[test]
fn a_waiting_feed_advances_past_transactions_of_other_tables() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let other: Table<u64, u64> = block_on(db.create_table("other")).unwrap();
        let mut changes = db.changes(ChangesFrom::Now).tables([&table]);
        block_on(db.put(&table, &1, &1)).unwrap();
        (0..5).for_each(|key| block_on(db.put(&other, &key, &1)).unwrap());
        let token = next(&mut changes).token.unwrap();
        let last = db.stats().lsn.durable;
        assert!(token.resume_lsn() < last);
        while changes.token().unwrap().resume_lsn() < last {
            assert!(matches!(poll_once(&mut changes), Poll::Pending));
        }
    });
}

/// A feed never keeps the database open: dropping the last handle closes it.
#[test]
fn a_waiting_feed_keeps_no_database_open() {
    with_limit(LIMIT_SECONDS, |_| {
        for from in [ChangesFrom::Now, ChangesFrom::Snapshot] {
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options().workers(1)).unwrap().watched();
            let mut changes = db.changes(from);
            let (release, released) = channel::<()>();
            let released = std::sync::Mutex::new(released);
            let (begun, begins) = channel();
            let block = async move |_: &_| {
                begun.send(()).unwrap();
                _ = released.lock().unwrap().recv();
                Ok(())
            };
            let mut blocks = Box::pin(db.run(block));
            let mut context = Context::from_waker(Waker::noop());
            assert!(blocks.as_mut().poll(&mut context).is_pending());
            begins.recv().unwrap();
            drop(blocks);
            // The blocked worker cannot begin the feed's work.
            assert!(matches!(poll_once(&mut changes), Poll::Pending));
            let closing = std::thread::spawn(move || drop(db));
            release.send(()).unwrap();
            closing.join().unwrap();
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let ended = block_on(changes.next());
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
            drop(db);
        }
    });
}
