//! Log retention for change feeds: slots, their limits, and compaction, whose moved records appear
//! in no feed.

use crate::common::{Watched, once_free, with_limit};
use braiddb::changes::{ChangeKind, ChangeTransaction, Changes, ChangesFrom};
use braiddb::maintenance::Compaction;
use braiddb::{ChangesError, Database, Error, Misuse, Options, Table, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;
const SEGMENT_BYTES: u64 = 64 << 10;
/// More than any test logs.
const PLENTY: u64 = 1 << 40;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(PLENTY))
}

fn open(directory: &std::path::Path) -> (Database, Table<u64, [u8]>) {
    let db = Database::open(directory, options()).unwrap().watched();
    let table = block_on(async { db.run(async |tx| tx.open_or_create_table("t").await).await });
    (db.clone(), table.unwrap())
}

fn next(changes: &mut Changes) -> ChangeTransaction {
    block_on(changes.next()).unwrap().expect("a feed ends with an error")
}

fn slot(name: &str) -> ChangesFrom {
    ChangesFrom::Slot(name.to_owned())
}

/// Returns the keys of the next transactions, each of which must be one update or insertion.
fn keys(changes: &mut Changes, count: usize) -> Vec<u64> {
    let key = |transaction: ChangeTransaction| {
        assert_eq!(transaction.changes.len(), 1);
        assert!(matches!(transaction.changes[0].kind, ChangeKind::Insert | ChangeKind::Update));
        transaction.changes[0].key_as::<u64>().unwrap()
    };
    (0..count).map(|_| key(next(changes))).collect()
}

fn write(db: &Database, table: &Table<u64, [u8]>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        block_on(db.put(table, &key, &[key as u8; 3000])).unwrap();
    }
}

fn compact(db: &Database) -> Compaction {
    once_free(|| block_on(db.compact())).unwrap()
}

fn with_database(
    test: impl FnOnce(&Database, &Table<u64, [u8]>, &tempfile::TempDir) + Send + 'static,
) {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        test(&db, &table, &directory);
    });
}

#[test]
fn records_moved_by_compaction_are_not_returned_as_changes() {
    with_database(|db, table, directory| {
        // One or two records of each segment stay live.
        let mixed =
            |round: u64| (0..400).map(move |n| if n % 16 == 0 { 1000 * round + n } else { n % 16 });
        // The log from before the first feed.
        write(db, table, mixed(1));
        assert!(compact(db).moved > 0);

        let mut changes = db.changes(ChangesFrom::Now);
        for round in 2..6 {
            write(db, table, mixed(round));
            assert_eq!(keys(&mut changes, 400), mixed(round).collect::<Vec<_>>());
            assert!(compact(db).moved > 0, "round {round}");
        }
        write(db, table, [7]);
        assert_eq!(keys(&mut changes, 1), [7]);
        let token = changes.token().unwrap();
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
        db.close().unwrap();
        let (db, table) = open(directory.path());
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
        assert_eq!(block_on(db.get(&table, &7)).unwrap().unwrap(), [7; 3000]);
        let mut changes = db.changes(token.into());
        write(&db, &table, [8]);
        assert_eq!(keys(&mut changes, 1), [8]);
    });
}

#[test]
fn a_slot_holds_the_log_until_it_is_advanced() {
    with_database(|db, table, directory| {
        let first = block_on(db.create_change_slot("s", PLENTY)).unwrap();
        let exists = block_on(db.create_change_slot("s", 1));
        assert!(matches!(exists, Err(Error::Changes(ChangesError::SlotExists(_)))));
        for _ in 0..3 {
            write(db, table, 0..100);
            assert_eq!(compact(db).segments, 0);
        }
        // Also in a copy, and after reopening.
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("copy");
        once_free(|| db.backup(&copy)).unwrap();
        db.close().unwrap();
        for path in [&copy, directory.path()] {
            let (db, table) = open(path);
            assert_eq!(compact(&db).segments, 0);
            let mut changes = db.changes(slot("s"));
            let expected: Vec<u64> = (0..3).flat_map(|_| 0..100).collect();
            assert_eq!(keys(&mut changes, 299), expected[..299]);
            let last = next(&mut changes).token.unwrap();
            block_on(db.advance_change_slot("s", &last)).unwrap();
            let slots = block_on(db.change_slots()).unwrap();
            assert_eq!((&*slots[0].name, slots[0].token, slots[0].lost), ("s", last, false));
            assert!(compact(&db).segments > 5);
            write(&db, &table, [1]);
            db.close().unwrap();
            let (db, _) = open(path);
            assert_eq!(keys(&mut db.changes(slot("s")), 1), [1]);
            // A slot does not move backward.
            block_on(db.advance_change_slot("s", &first)).unwrap();
            assert_eq!(block_on(db.change_slots()).unwrap()[0].token, last);
            assert_eq!(keys(&mut db.changes(slot("s")), 1), [1]);
            block_on(db.drop_change_slot("s")).unwrap();
            let missing = block_on(db.changes(slot("s")).next());
            assert!(matches!(missing, Err(Error::Changes(ChangesError::SlotNotFound(_)))));
            let missing = block_on(db.drop_change_slot("s"));
            assert!(matches!(missing, Err(Error::Changes(ChangesError::SlotNotFound(_)))));
            assert!(block_on(db.change_slots()).unwrap().is_empty());
        }
    });
}

#[test]
fn a_slot_that_holds_too_much_log_is_reported_as_lost() {
    with_database(|db, table, directory| {
        let token = block_on(db.create_change_slot("s", 8 * SEGMENT_BYTES)).unwrap();
        block_on(db.create_change_slot("other", PLENTY)).unwrap();
        write(db, table, 0..50);
        assert!(!block_on(db.change_slots()).unwrap()[1].lost);
        write(db, table, 0..200);
        assert_eq!(compact(db).segments, 0);
        block_on(db.drop_change_slot("other")).unwrap();
        let copy = tempfile::tempdir().unwrap();
        once_free(|| db.backup(copy.path())).unwrap();
        assert!(!block_on(db.change_slots()).unwrap()[0].lost, "a backup frees no log");
        assert!(compact(db).segments > 0);
        let check = |db: &Database| {
            let slots = block_on(db.change_slots()).unwrap();
            assert!(slots[0].lost && slots[0].behind_bytes > slots[0].max_bytes);
            for from in [slot("s"), ChangesFrom::Token(token)] {
                let gone = block_on(db.changes(from).next());
                let Err(Error::Changes(ChangesError::LogGone { oldest })) = gone else {
                    panic!("{gone:?}")
                };
                assert!(oldest > token.resume_lsn());
            }
            let gone = block_on(db.advance_change_slot("s", &token));
            assert!(matches!(gone, Err(Error::Changes(ChangesError::LogGone { .. }))));
        };
        check(db);
        db.close().unwrap();
        let (db, _) = open(directory.path());
        check(&db);
        block_on(db.drop_change_slot("s")).unwrap();
        block_on(db.create_change_slot("s", 1 << 20)).unwrap();
        assert!(!block_on(db.change_slots()).unwrap()[0].lost);
    });
}

#[test]
fn a_feed_without_a_slot_holds_its_unread_log_until_it_is_dropped() {
    with_database(|db, table, _| {
        let mut begun = db.changes(ChangesFrom::Now);
        let mut bounded = db.changes(ChangesFrom::Now).hold_at_most(4 * SEGMENT_BYTES);
        let mut token = None;
        for _ in 0..3 {
            write(db, table, 0..100);
            assert_eq!(compact(db).segments, 0, "held by the first");
        }
        for _ in 0..3 {
            for key in 0..100 {
                let given = next(&mut begun);
                assert_eq!(given.changes[0].key_as::<u64>().unwrap(), key);
                token = token.or(given.token);
            }
        }
        let token = token.unwrap();
        drop(begun);
        assert!(compact(db).segments > 0);
        let gone = block_on(db.changes(token.into()).next());
        assert!(matches!(gone, Err(Error::Changes(ChangesError::LogGone { .. }))), "{gone:?}");
        // Some of it was read ahead.
        let gone = loop {
            match block_on(bounded.next()) {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        };
        assert!(matches!(gone, Err(Error::Changes(ChangesError::LogGone { .. }))), "{gone:?}");
        assert!(matches!(block_on(bounded.next()), Ok(None)));
    });
}

#[test]
fn a_feed_above_its_limit_continues_until_its_log_is_freed() {
    with_database(|db, table, directory| {
        block_on(db.create_change_slot("all", PLENTY)).unwrap();
        block_on(db.create_change_slot("little", SEGMENT_BYTES)).unwrap();
        let mut bounded = db.changes(ChangesFrom::Now).hold_at_most(SEGMENT_BYTES);
        let written: Vec<u64> = (0..300).map(|n| n % 10).collect();
        write(db, table, written.iter().copied());
        assert_eq!(compact(db).segments, 0, "held by one of the slots");
        assert_eq!(keys(&mut bounded, 300), written);
        // The limit of the slot applies, not the default limit of a feed without a slot.
        assert_eq!(keys(&mut db.changes(slot("all")), 300), written);
        db.close().unwrap();
        let (db, _) = open(directory.path());
        let mut changes = db.changes(slot("little"));
        assert_eq!(keys(&mut changes, 300), written);
        let token = changes.token().unwrap();
        block_on(db.advance_change_slot("little", &token)).unwrap();
        drop(changes);
        block_on(db.drop_change_slot("all")).unwrap();
        assert!(compact(&db).segments > 5);
        let slots = block_on(db.change_slots()).unwrap();
        assert_eq!((&*slots[0].name, slots[0].lost), ("little", false));
    });
}

#[test]
fn the_table_of_slots_is_hidden_from_users() {
    with_database(|db, _, _| {
        block_on(db.create_change_slot("s", PLENTY)).unwrap();
        let names: Vec<_> = block_on(db.tables()).unwrap().into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["t"]);
        let opened = block_on(db.open_table::<str, [u8]>("braid.slots"));
        assert!(matches!(opened, Err(Error::TableNotFound(_))));
        assert!(matches!(block_on(db.drop_table("braid.slots")), Err(Error::TableNotFound(_))));
        for name in ["", &"x".repeat(513)] {
            assert!(matches!(
                block_on(db.create_change_slot(name, 1)),
                Err(Error::Misuse(Misuse::SlotName(_)))
            ));
        }
    });
}
