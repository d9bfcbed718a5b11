//! Statistics about disk space: the bytes of each kind of file, and what keeps the log.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{Watched, once_free, with_limit};
use braiddb::changes::ChangesFrom;
use braiddb::{Database, Options, Table, TableOptions};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;

/// Returns the disk space of the files whose names end with `ending`, and their number.
fn space(directory: &Path, ending: &str) -> (u64, u64) {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|entry| entry.file_name().to_str().unwrap().ends_with(ending));
    files.fold((0, 0), |(bytes, count), entry| {
        (bytes + entry.metadata().unwrap().blocks() * 512, count + 1)
    })
}

#[test]
fn statistics_show_the_space_of_each_kind_of_file() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        let paged = TableOptions::default().paged();
        let table: Table<u64, [u8]> = block_on(db.create_table_with("pages", paged)).unwrap();
        for round in 0..3 {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in 0..1000 {
                    tx.put(&table, &key, &[round; 900]).await?;
                }
                Ok(())
            })
            .unwrap();
            once_free(|| block_on(db.checkpoint())).unwrap();
        }
        let stats = db.stats();
        // A file system may need a few blocks more to find the others.
        let is_near = |figure: u64, (space, files): (u64, u64)| {
            assert!(files > 0 && figure > 0, "{figure} bytes of {files} files");
            space.abs_diff(figure) <= files * 16_384
        };
        let of = |ending| space(directory.path(), ending);
        assert!(is_near(stats.pages.file_bytes, of(".zone")), "{stats:?}, {:?}", of(".zone"));
        assert!(is_near(stats.checkpoint_bytes, of(".ckpt")), "{stats:?}, {:?}", of(".ckpt"));
        assert!(is_near(stats.log.reserve_bytes, of(".reserve")), "{stats:?}");
        assert!(stats.pages.zone_bytes <= stats.pages.file_bytes, "{stats:?}");
        db.close().unwrap();
    });
}

#[test]
fn statistics_show_what_keeps_the_log() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let kept = || db.stats().lsn.tail - db.stats().lsn.kept;
        assert_eq!((kept(), db.stats().snapshots_open), (0, 0));
        block_on(db.create_change_slot("slow reader", 1 << 30)).unwrap();
        let snapshot = block_on(db.snapshot()).unwrap();
        let before = kept();
        (0..100).for_each(|key| block_on(db.put(&table, &key, &key)).unwrap());
        assert!(kept() - before >= 100 * 16, "{:?}", db.stats().lsn);
        assert_eq!(db.stats().snapshots_open, 1);
        let stats = db.stats();
        let [slot] = &stats.log_holders[..] else { panic!("{stats:?}") };
        assert_eq!((slot.slot.as_deref(), slot.from), (Some("slow reader"), stats.lsn.kept));
        assert_eq!(slot.bytes, stats.lsn.tail - stats.lsn.kept);
        // The snapshot began before the records, and is the oldest that is open.
        assert!(stats.lsn.tail - stats.lsn.oldest_begin >= 100 * 16, "{stats:?}");
        let feed = db.changes(ChangesFrom::Now);
        let stats = db.stats();
        let [first, second] = &stats.log_holders[..] else { panic!("{stats:?}") };
        assert_eq!((first.slot.as_deref(), second.slot.as_deref()), (Some("slow reader"), None));
        assert!(first.bytes > second.bytes, "{stats:?}");
        drop(feed);
        drop(snapshot);
        block_on(db.drop_change_slot("slow reader")).unwrap();
        assert_eq!(kept(), 0);
        assert!(db.stats().log_holders.is_empty(), "{:?}", db.stats());
        while db.stats().snapshots_open > 0 {
            std::thread::yield_now();
        }
        db.close().unwrap();
    });
}
