//! Compaction returns free space between pages to the disk.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::maintenance::Compaction;
use braiddb::{Database, Error, Options, Table, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 240;
const RECORDS: u64 = 40_000;

type Records = Table<u64, [u8]>;

fn open(directory: &Path) -> Database {
    let options =
        Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20));
    Database::open(directory, options).unwrap().watched()
}

fn compact(db: &Database) -> Compaction {
    once_free(|| block_on(db.compact())).unwrap()
}

fn value(key: u64, round: u64) -> Vec<u8> {
    vec![(key + round) as u8; 900]
}

fn put_all(db: &Database, table: &Records, round: u64) {
    put_some(db, table, 0..RECORDS, round);
}

fn put_some(db: &Database, table: &Records, keys: Range<u64>, round: u64) {
    for from in keys.step_by(500) {
        let table = table.clone();
        let puts = db.run_blocking(async move |tx| {
            for key in from..from + 500 {
                tx.put(&table, &key, &value(key, round)).await?;
            }
            Ok::<_, Error>(())
        });
        puts.unwrap();
    }
}

/// Checks that the table has exactly these keys, with the values of a round.
fn check(db: &Database, table: &Records, round: u64, is_there: fn(u64) -> bool) {
    let inner = table.clone();
    let same = db.run_blocking(async move |tx| {
        let mut wanted = (0..RECORDS).filter(|key| is_there(*key));
        let mut scan = tx.scan(&inner, ..)?;
        while let Some((key, found)) = scan.next().await? {
            assert_eq!(Some(key), wanted.next());
            assert!(*found == value(key, round), "key {key}");
        }
        Ok::<_, Error>(wanted.next().is_none())
    });
    assert!(same.unwrap());
    let report = once_free(|| db.check()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Returns the allocated bytes of the page files.
fn page_file_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let zones = files.filter(|file| file.path().extension().is_some_and(|end| end == "zone"));
    zones.map(|file| file.metadata().unwrap().blocks() * 512).sum()
}

/// After a table has become much smaller, compaction returns its free space to the disk. The
/// database knows the free space after reopening and fills it again.
#[test]
#[ignore = "slow: the gate runs it"]
fn compaction_frees_space_between_pages() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // Of each hundred records seven consecutive ones stay.
        const GONE: Range<u64> = 7..100;
        let stays = |key: u64| !GONE.contains(&(key % 100));
        let db = open(directory.path());
        let table: Records = create_table(&db, "records", true);
        put_all(&db, &table, 0);
        compact(&db);
        let full = page_file_bytes(directory.path());
        for hundred in (0..RECORDS).step_by(100) {
            let range = hundred + GONE.start..hundred + GONE.end;
            assert_eq!(block_on(db.delete_range(&table, range)).unwrap(), 93);
        }
        // Slots of deleted records are removed from the pages later.
        let mut freed = 0;
        while page_file_bytes(directory.path()) > full / 3 {
            freed += compact(&db).page_bytes_freed;
        }
        assert!(freed > full / 3, "{freed} of {full}");
        check(&db, &table, 0, stays);
        drop(table);
        db.close().unwrap();
        drop(db);

        let db = open(directory.path());
        let table = block_on(db.open_table("records")).unwrap();
        check(&db, &table, 0, stays);
        let freed = compact(&db).page_bytes_freed;
        assert!(freed < 1 << 16, "{freed}, though it is known where there is room");
        put_all(&db, &table, 1);
        compact(&db);
        check(&db, &table, 1, |_| true);
    });
}

/// Tables several times as large as memory grow, shrink and are read, while compaction punches
/// holes where pages are written. All records are present, also after reopening.
#[test]
#[ignore = "slow: the gate runs it"]
fn compaction_frees_space_between_pages_under_concurrent_writes() {
    const OF_EACH: u64 = 4_000;
    const ROUNDS: u64 = 6;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let options =
                Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20));
            // The log's ring takes 32 MiB of this.
            let options = options.memory_budget(36 << 20);
            Database::open(directory.path(), options).unwrap().watched()
        };
        // The last round also leaves a tenth.
        let stays = |key: u64| key % 20 < 2;
        let read = |db: &Database, table: &Records, keys: Range<u64>, round: u64| {
            for key in keys {
                let found = block_on(db.get(table, &key)).unwrap();
                let wanted = stays(key).then(|| value(key, round));
                assert!(found.as_deref() == wanted.as_deref(), "key {key}, round {round}");
            }
        };
        let db = open();
        let table: Records = create_table(&db, "records", true);
        let write = |writer: u64| {
            let keys = writer * OF_EACH..(writer + 1) * OF_EACH;
            for round in 0..ROUNDS {
                put_some(&db, &table, keys.clone(), round);
                for twenty in keys.clone().step_by(20) {
                    let gone = block_on(db.delete_range(&table, twenty + 2..twenty + 20));
                    assert_eq!(gone.unwrap(), 18);
                }
                read(&db, &table, keys.clone(), round);
            }
        };
        let mut freed = 0;
        std::thread::scope(|scope| {
            let write = &write;
            let writers = [0, 1, 2].map(|writer| scope.spawn(move || write(writer)));
            while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                freed += compact(&db).page_bytes_freed;
            }
        });
        assert!(freed > 0);
        drop(table);
        db.close().unwrap();
        drop(db);

        let db = open();
        let table = block_on(db.open_table("records")).unwrap();
        read(&db, &table, 0..3 * OF_EACH, ROUNDS - 1);
        let report = once_free(|| db.check()).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    });
}
