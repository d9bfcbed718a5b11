//! Tables that are filled before they are published.

mod common;

use braiddb::{
    Database, Error, IndexKeys, IndexOptions, Options, StagedTable, Table, TableOptions,
};
use common::with_limit;
use pollster::block_on;

type Numbers = Table<u64, u64>;

/// Far more than a test takes, on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 3000;
const AT_ONCE: u64 = 500;

fn open(directory: &std::path::Path) -> Database {
    Database::open(directory, Options::default().workers(2)).unwrap()
}

fn stage(db: &Database, paged: bool) -> StagedTable<u64, u64> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    let staged = block_on(db.stage_table_with::<u64, u64>("numbers", options)).unwrap();
    for from in (0..RECORDS).step_by(AT_ONCE as usize) {
        let table = staged.table().clone();
        db.run_blocking(async move |tx| {
            for key in from..from + AT_ONCE {
                tx.insert(&table, &key, &(key * 2)).await?;
            }
            Ok(())
        })
        .unwrap();
    }
    staged
}

fn count(db: &Database, table: &Numbers) -> Result<u64, Error> {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.count(&table, ..).await)
}

fn names(db: &Database) -> Vec<String> {
    block_on(db.tables()).unwrap().into_iter().map(|table| table.name).collect()
}

#[test]
fn a_staged_table_is_found_once_it_is_published() {
    for paged in [false, true] {
        of_kind_a_staged_table_is_found_once_it_is_published(paged);
    }
}

fn of_kind_a_staged_table_is_found_once_it_is_published(paged: bool) {
    with_limit(LIMIT_SECONDS, move |limit| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        limit.watch(&db, Database::stats);
        let staged = stage(&db, paged);
        assert_eq!(count(&db, staged.table()).unwrap(), RECORDS);
        assert_eq!(names(&db), [""; 0]);
        let opened = block_on(db.open_table::<u64, u64>("numbers"));
        assert!(matches!(opened, Err(Error::TableNotFound(_))), "{opened:?}");
        let before = block_on(db.begin()).unwrap();
        let seen = block_on(before.step(async |tx| tx.tables().await)).unwrap();
        assert_eq!(seen, []);

        let table = block_on(staged.publish()).unwrap();
        let again = block_on(staged.publish());
        assert!(matches!(again, Err(Error::TableExists(_))), "{again:?}");
        block_on(staged.discard()).unwrap();
        assert_eq!(names(&db), ["numbers"]);
        assert_eq!(count(&db, &table).unwrap(), RECORDS);
        let same: Numbers = block_on(db.open_table("numbers")).unwrap();
        assert_eq!(block_on(db.get(&same, &7)).unwrap(), Some(14));
        let encoded = same.encoded();
        let bytes = block_on(db.get(&encoded, &7_u64.to_be_bytes()[..])).unwrap();
        assert_eq!(bytes, Some(14_u64.to_le_bytes().to_vec()));
        // Not in a snapshot from before.
        assert_eq!(block_on(before.step(async |tx| tx.tables().await)).unwrap(), []);
        drop(before);
        db.close().unwrap();

        let db = open(dir.path());
        let table: Numbers = block_on(db.open_table("numbers")).unwrap();
        assert_eq!(count(&db, &table).unwrap(), RECORDS);
        assert_eq!(db.check().unwrap().problems, [""; 0]);
    });
}

#[test]
fn a_discarded_table_leaves_nothing() {
    for paged in [false, true] {
        of_kind_a_discarded_table_leaves_nothing(paged);
    }
}

fn of_kind_a_discarded_table_leaves_nothing(paged: bool) {
    with_limit(LIMIT_SECONDS, move |limit| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        limit.watch(&db, Database::stats);
        let staged = stage(&db, paged);
        let table = staged.table().clone();
        let value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let index = block_on(db.index(&table, "by_value", IndexOptions::default(), value));
        assert!(matches!(index, Err(Error::Options(_))), "{index:?}");
        block_on(staged.discard()).unwrap();
        block_on(staged.discard()).unwrap();
        let published = block_on(staged.publish());
        assert!(matches!(published, Err(Error::TableNotFound(_))), "{published:?}");
        assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
        assert_eq!(db.check().unwrap().records, 0);
        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(count(&db, &again).unwrap(), 0);
    });
}

#[test]
fn a_name_that_is_taken_is_refused_and_what_was_staged_goes() {
    for paged in [false, true] {
        of_kind_a_name_that_is_taken_is_refused_and_what_was_staged_goes(paged);
    }
}

fn of_kind_a_name_that_is_taken_is_refused_and_what_was_staged_goes(paged: bool) {
    with_limit(LIMIT_SECONDS, move |limit| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        limit.watch(&db, Database::stats);
        let reserved = block_on(db.stage_table::<u64, u64>("braid.numbers"));
        assert!(matches!(reserved, Err(Error::TableName(_))), "{reserved:?}");
        let staged = stage(&db, paged);
        let other: Numbers = block_on(db.create_table("numbers")).unwrap();
        block_on(db.put(&other, &1, &1)).unwrap();
        let taken = block_on(db.stage_table::<u64, u64>("numbers"));
        assert!(matches!(taken, Err(Error::TableExists(_))), "{taken:?}");
        let published = block_on(staged.publish());
        assert!(matches!(published, Err(Error::TableExists(_))), "{published:?}");
        assert_eq!(count(&db, &other).unwrap(), 1);
        // The table's row and its record.
        assert_eq!(db.check().unwrap().records, 2);
    });
}

#[test]
fn what_was_not_published_goes_when_the_database_is_opened_again() {
    with_limit(LIMIT_SECONDS, |limit| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let id = {
            let others: Numbers = block_on(db.create_table("others")).unwrap();
            block_on(db.put(&others, &1, &1)).unwrap();
            drop(stage(&db, false));
            block_on(db.checkpoint()).unwrap();
            drop(stage(&db, true));
            block_on(db.tables()).unwrap()[0].id
        };
        db.close().unwrap();

        let db = open(dir.path());
        limit.watch(&db, Database::stats);
        // By then all of them are deleted; the table's row and its record are left.
        while db.check().unwrap().records > 2 {
            std::thread::yield_now();
        }
        assert_eq!(names(&db), ["others"]);
        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(count(&db, &again).unwrap(), 0);
        let tables = block_on(db.tables()).unwrap();
        // Their ids are not given again while anything may be left of them.
        assert!(
            tables.iter().all(|table| table.name == "others" || table.id > id + 2),
            "{tables:?}"
        );
    });
}
