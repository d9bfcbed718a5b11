//! Reads of pages while another process writes the database: page images that the reader's
//! checkpoint references stay unchanged.

use std::path::Path;

use crate::common::{Watched, once_free, with_limit};
use braiddb::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const RECORDS: u64 = 600;

type Records = Table<u64, [u8]>;

fn write_all(db: &Database, table: &Records, version: u8) {
    let table = table.clone();
    let written = db.run_blocking(async move |tx| {
        for key in 0..RECORDS {
            tx.put(&table, &key, &[version; 700][..]).await?;
        }
        Ok::<_, Error>(())
    });
    written.unwrap();
    once_free(|| block_on(db.checkpoint())).unwrap();
}

fn writer(path: &Path) -> (Database, Records) {
    // No automatic checkpoint.
    let options = Options::default().tuning(Tuning::default().checkpoint_bytes(1 << 40));
    let db = Database::open(path, options).unwrap().watched();
    let paged = TableOptions::default().paged();
    let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
    let table = db.run_blocking(create).unwrap();
    (db, table)
}

fn versions(db: &Database) -> Result<Vec<u8>, Error> {
    let table: Records = block_on(db.open_table("records"))?;
    db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
        while let Some((_, value)) = scan.next().await? {
            assert_eq!(value.len(), 700);
            found.push(value[0]);
        }
        Ok(found)
    })
}

/// Readers that have loaded no pages yet, while a writer changes all pages and writes checkpoints
/// repeatedly. Each reader sees the images of its checkpoint. The space that readers retain is
/// reused after they are dropped.
#[test]
fn readers_see_their_checkpoints_page_images_after_any_number_of_later_ones() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let (db, table) = writer(&path);
        let mut readers = Vec::new();
        for version in 0..8 {
            write_all(&db, &table, version);
            readers
                .push(Database::open(&path, Options::default().read_only(true)).unwrap().watched());
        }
        let kept = db.stats().pages.zone_bytes;
        for version in 8..12 {
            write_all(&db, &table, version);
        }
        for (version, reader) in (0..).zip(&readers) {
            assert!(versions(reader).unwrap() == [version; RECORDS as usize], "version {version}");
        }
        drop(readers);
        (12..15).for_each(|version| write_all(&db, &table, version));
        let left = db.stats().pages.zone_bytes;
        assert!(left < kept / 3, "{left} bytes of {kept} are left");
        assert!(versions(&db).unwrap() == [14; RECORDS as usize]);
        db.close().unwrap();
    });
}
