//! Counts of a table's records by location: in memory, or only on disk.

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, Misuse, Options, Table, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

fn open(directory: &std::path::Path) -> Database {
    Database::open(
        directory,
        Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20)),
    )
    .unwrap()
    .watched()
}

#[test]
fn records_are_counted_in_memory_and_on_disk() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path());
            let table: Table<u64, [u8]> = create_table(&db, "records", paged);
            let records = table.clone();
            db.run_blocking(async move |tx| {
                for key in 0..5000 {
                    tx.put(&records, &key, &[7; 100]).await?;
                }
                for key in 0..1000 {
                    tx.delete(&records, &key).await?;
                }
                Ok(())
            })
            .unwrap();
            let contents = block_on(db.table_contents(&table)).unwrap();
            assert_eq!((contents.hot_records, contents.hot_bytes), (4000, 400_000));
            assert_eq!((contents.cold_records, contents.hot_share()), (0, 1.0));
            db.close().unwrap();
            let db = open(directory.path());
            let table: Table<u64, [u8]> = block_on(db.open_table("records")).unwrap();
            if paged {
                let contents = block_on(db.table_contents(&table)).unwrap();
                assert_eq!((contents.hot_records, contents.hot_bytes), (4000, 400_000));
                db.close().unwrap();
                continue;
            }
            // Neither recovery nor counting loads records into memory.
            for _ in 0..2 {
                let contents = block_on(db.table_contents(&table)).unwrap();
                assert_eq!((contents.records(), contents.hot_records), (4000, 0));
                // Each value of 100 bytes counts as 104.
                assert_eq!(contents.cold_bytes, 416_000, "{contents:?}");
            }
            for key in 1000..1010 {
                assert!(block_on(db.get(&table, &key)).unwrap().is_some());
            }
            let contents = block_on(db.table_contents(&table)).unwrap();
            assert_eq!((contents.hot_records, contents.hot_bytes), (10, 1000));
            assert_eq!(contents.cold_records, 3990);
            let other = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            let foreign = block_on(other.table_contents(&table));
            assert!(matches!(foreign, Err(Error::Misuse(Misuse::ForeignTable(_)))), "{foreign:?}");
            db.close().unwrap();
        }
    });
}
