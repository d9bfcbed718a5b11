//! Recovery of paged tables from the newest checkpoint and the log after it, and the format version
//! that indicates paged tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::{create_table, value_of_any_size};
use braiddb::maintenance::{CheckReport, Checkpoint, Compaction};
use braiddb::{
    BusyWith, Certifier, Database, Error, LogError, Misuse, Options, Table, TableOptions, Tuning,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 240;

type Records = Table<u64, [u8]>;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(1 << 20).checkpoint_bytes(64 << 10))
}

fn open(directory: &Path) -> Database {
    Database::open(directory, options()).unwrap().watched()
}

fn open_table(db: &Database, name: &'static str) -> Records {
    block_on(db.open_table(name)).unwrap()
}

fn contents(db: &Database, table: &Records) -> BTreeMap<u64, Vec<u8>> {
    let inner = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&inner, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.to_vec());
        }
        Ok::<_, Error>(found)
    });
    let found = found.unwrap();
    assert_eq!(block_on(db.len(table)).unwrap(), found.len() as u64);
    found
}

/// Runs rounds of writes and deletions in one transaction each. Some are rolled back, partly or
/// completely.
fn churn(
    db: &Database,
    table: &Records,
    model: &mut BTreeMap<u64, Vec<u8>>,
    seed: u64,
    rounds: u64,
) {
    for round in 0..rounds {
        let (table, before) = (table.clone(), model.clone());
        let result = db.run_blocking(async move |tx| {
            let mut random = fastrand::Rng::with_seed(seed << 32 | round);
            let mut model = before.clone();
            for _ in 0..random.usize(1..60) {
                let (savepoint, kept) = (tx.savepoint(), model.clone());
                for _ in 0..random.usize(1..4) {
                    let key = random.u64(..2000);
                    if random.u8(..4) == 0 {
                        let deleted = tx.delete(&table, &key).await?;
                        assert_eq!(deleted, model.remove(&key).is_some());
                    } else {
                        let value = value_of_any_size(&mut random);
                        tx.put(&table, &key, &value[..]).await?;
                        model.insert(key, value);
                    }
                }
                if random.u8(..6) == 0 {
                    tx.rollback_to(&savepoint).await?;
                    model = kept;
                }
            }
            if round % 7 == 3 { Err(Error::Closed) } else { Ok(model) }
        });
        match result {
            Ok(left) => *model = left,
            Err(Error::Closed) => assert_eq!(round % 7, 3),
            Err(error) => panic!("{error}"),
        }
    }
}

fn version(directory: &Path) -> u32 {
    let meta = std::fs::read(directory.join("braid.meta")).unwrap();
    u32::from_le_bytes(meta[8..12].try_into().unwrap())
}

fn checkpoints(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".ckpt")).count()
}

/// Committed records of both kinds of tables exist after each reopening, and later writes continue
/// from them.
#[test]
fn tables_of_both_kinds_are_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for generation in 0..4 {
            let db = open(directory.path());
            let tables = match generation {
                0 => [create_table(&db, "hot", false), create_table(&db, "paged", true)],
                _ => [open_table(&db, "hot"), open_table(&db, "paged")],
            };
            for (table, model) in tables.iter().zip(&mut models) {
                assert!(contents(&db, table) == *model, "generation {generation}");
                churn(&db, table, model, generation, 25);
                assert!(contents(&db, table) == *model, "generation {generation}");
            }
            let report = check(&db);
            assert_eq!(report.problems, Vec::<String>::new());
            let records = models.iter().map(BTreeMap::len).sum::<usize>();
            assert_eq!(report.records, records as u64 + 2, "those of the catalog are two");
            db.close().unwrap();
        }
        assert!(models.iter().all(|model| model.len() > 200));
    });
}

/// A transaction of many blocks is recovered as a whole. A transaction larger than a block that is
/// rolled back leaves nothing.
#[test]
fn large_transactions_are_recovered_whole_or_not_at_all() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        let (hot, paged): (Records, Records) =
            (create_table(&db, "hot", false), create_table(&db, "paged", true));
        let write = |byte: u8, commit: bool| {
            let (hot, paged) = (hot.clone(), paged.clone());
            let written = db.run_blocking(async move |tx| {
                for key in 0..2000 {
                    tx.put(&hot, &key, &[byte; 500]).await?;
                    tx.put(&paged, &key, &[byte; 700]).await?;
                }
                if commit { Ok(()) } else { Err(Error::Closed) }
            });
            assert_eq!(written.is_ok(), commit);
        };
        write(1, true);
        write(2, false);
        write(3, true);
        write(4, false);
        db.close().unwrap();
        let db = open(directory.path());
        for (name, bytes) in [("hot", 500), ("paged", 700)] {
            let found = contents(&db, &open_table(&db, name));
            assert_eq!(found.len(), 2000);
            assert!(found.values().all(|value| *value == vec![3; bytes]), "{name}");
        }
    });
}

fn checkpoint(db: &Database) -> Checkpoint {
    once_free(|| block_on(db.checkpoint())).unwrap()
}

fn compact(db: &Database) -> Compaction {
    once_free(|| block_on(db.compact())).unwrap()
}

fn check(db: &Database) -> CheckReport {
    once_free(|| db.check()).unwrap()
}

fn newest_checkpoint(directory: &Path) -> PathBuf {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "ckpt")).max().unwrap()
}

/// A checkpoint contains the records of paged tables: it frees the log before it, and opening
/// replays only the log after it. The same holds for a backup.
#[test]
fn a_checkpoint_has_paged_tables_and_frees_the_log() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = || options().tune(|tuning| tuning.checkpoint_bytes(1 << 30));
        let open = |place: &Path| Database::open(place, options()).unwrap().watched();
        let db = open(directory.path());
        let (hot, paged): (Records, Records) =
            (create_table(&db, "hot", false), create_table(&db, "paged", true));
        let empty: Records = create_table(&db, "empty", true);
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        churn(&db, &hot, &mut models[0], 1, 30);
        churn(&db, &paged, &mut models[1], 2, 70);
        // The checkpoint excludes transactions that are open while it is written.
        let undecided = block_on(db.begin()).unwrap();
        for key in 0..300 {
            match key % 2 {
                0 => drop(block_on(undecided.delete(&paged, &key)).unwrap()),
                _ => block_on(undecided.put(&paged, &key, &[9; 999][..])).unwrap(),
            }
        }
        let before = tempfile::tempdir().unwrap();
        once_free(|| db.backup(before.path())).unwrap();
        block_on(undecided.abort()).unwrap();
        let freed = db.stats().log.segments_freed;
        let written = checkpoint(&db);
        assert_eq!(written.records, models.iter().map(BTreeMap::len).sum::<usize>() as u64 + 3);
        compact(&db);
        assert!(db.stats().log.segments_freed > freed);
        let freed = db.stats().lsn.checkpoint;
        let as_of_backup = models[1].clone();
        // Writes after the checkpoint.
        churn(&db, &paged, &mut models[1], 3, 10);
        block_on(db.put(&empty, &7, &[7][..])).unwrap();
        let copy = tempfile::tempdir().unwrap();
        once_free(|| db.backup(copy.path())).unwrap();
        db.close().unwrap();
        let db = open(before.path());
        assert!(contents(&db, &open_table(&db, "paged")) == as_of_backup);
        db.close().unwrap();
        for place in [directory.path(), copy.path(), directory.path()] {
            let header = std::fs::read(newest_checkpoint(place)).unwrap();
            assert_eq!((header[8], version(place), checkpoints(place)), (5, 4, 1));
            let db = open(place);
            let recovery = db.stats().recovery;
            assert!(recovery.checkpoint.unwrap().lsn >= freed && recovery.log_bytes < 1 << 20);
            assert!(contents(&db, &open_table(&db, "hot")) == models[0]);
            assert!(contents(&db, &open_table(&db, "paged")) == models[1]);
            assert_eq!(contents(&db, &open_table(&db, "empty")), [(7, vec![7])].into());
            assert_eq!(check(&db).problems, Vec::<String>::new());
            checkpoint(&db);
            db.close().unwrap();
        }
    });
}

/// Automatic checkpoints during transactions keep the log of a paged table small. A checkpoint of
/// a large table waits until as much log was written.
#[test]
#[ignore = "slow: the gate runs it"]
fn checkpoints_of_paged_tables_are_automatic() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut model = BTreeMap::new();
        for generation in 0..3 {
            let db = open(directory.path());
            let paged = match generation {
                0 => create_table(&db, "paged", true),
                _ => open_table(&db, "paged"),
            };
            assert!(contents(&db, &paged) == model);
            churn(&db, &paged, &mut model, generation, 300);
            compact(&db);
            let stats = db.stats();
            assert!(stats.log.segments_freed > 1, "{stats:?}");
            assert!(stats.lsn.tail - stats.lsn.checkpoint < 4 << 20, "{stats:?}");
            db.close().unwrap();
        }
    });
}

/// Opening reports a damaged checkpoint with paged tables, and one in a database whose version
/// excludes paged tables.
#[test]
fn damage_to_a_checkpoint_of_paged_tables_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        let (paged, mut model) = (create_table(&db, "paged", true), BTreeMap::new());
        churn(&db, &paged, &mut model, 1, 40);
        checkpoint(&db);
        db.close().unwrap();
        let path = newest_checkpoint(directory.path());
        let whole = std::fs::read(&path).unwrap();
        // The second section, after the catalog's, belongs to the paged table.
        let (start, number) =
            (4096, |at: usize| u32::from_le_bytes(*whole[at..].first_chunk().unwrap()) as usize);
        let (used, section) = (number(start + 4), start + 16 + 12 + number(start + 20));
        let told = |bytes: Vec<u8>, expected: &str| {
            std::fs::write(&path, bytes).unwrap();
            let Err(Error::Corrupt(error)) = Database::open(directory.path(), options()) else {
                panic!("{expected:?} is not told");
            };
            let LogError::Corrupt { path: named, reason, .. } = &*error else { panic!("{error}") };
            assert!(*named == path && reason.contains(expected), "{error}");
        };
        // The checksum is recomputed, so that only the contents can reveal the damage.
        let with = |offset: usize, value: &[u8]| {
            let mut bytes = whole.clone();
            bytes[section + offset..][..value.len()].copy_from_slice(value);
            bytes[start..start + 4].fill(0);
            let sum = crc32c::crc32c(&bytes[start..start + used.next_multiple_of(4096)]);
            bytes[start..start + 4].copy_from_slice(&sum.to_le_bytes());
            bytes
        };
        let mut flipped = whole.clone();
        flipped[section + 50] ^= 1;
        told(flipped, "the checksum is wrong");
        told(whole[..start].to_vec(), "it is cut short");
        told(with(10, &[7]), "it is of no known kind");
        told(with(10, &[0]), "");
        told(with(4, &[0xff; 4]), "a section makes no sense");
        told(with(12, &[0; 8]), "the place of a leaf makes no sense");
        told(
            with(12, &whole[section + 36..][..8]),
            "the place of a leaf is in no file, or another's",
        );
        told(with(20, &[0; 8]), "the page of a leaf is another's");
        told(with(20, &[0xff; 8]), "the page of a leaf is another's");
        told(with(20, &whole[section + 44..][..8]), "the page of a leaf is another's");
        told(with(32, &[1, 0]), "a leaf makes no sense");
        told(with(34, &[1, 0]), "leaves are not in order");
        // A header without the fields about pages.
        let mut without = whole.clone();
        without[80..96].fill(0);
        without[12..16].fill(0);
        let sum = crc32c::crc32c(&without[..4096]);
        without[12..16].copy_from_slice(&sum.to_le_bytes());
        told(without, "nothing is said of pages");
        std::fs::write(&path, &whole).unwrap();
        let db = open(directory.path());
        assert!(contents(&db, &open_table(&db, "paged")) == model);
        db.close().unwrap();
    });
}

/// The contents of a checkpoint of paged tables exist nowhere else on disk. A check reports damage
/// while the database is open, and a new checkpoint from memory repairs it.
#[test]
fn a_check_reads_the_checkpoint_and_the_next_checkpoint_repairs_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = || options().tune(|tuning| tuning.checkpoint_bytes(1 << 40));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let (paged, mut model) = (create_table(&db, "paged", true), BTreeMap::new());
        churn(&db, &paged, &mut model, 1, 40);
        checkpoint(&db);
        assert_eq!(check(&db).problems, [""; 0]);
        let path = newest_checkpoint(directory.path());
        let whole = std::fs::read(&path).unwrap();
        let problem = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let problems = check(&db).problems;
            assert!(
                problems.len() == 1 && problems[0].contains("write a checkpoint"),
                "{problems:?}"
            );
            problems[0].clone()
        };
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20 {
            let mut flipped = whole.clone();
            flipped[4096 + random.usize(..whole.len() - 4096)] ^= 1 << random.u8(..8);
            assert!(problem(&flipped).contains("the checksum is wrong"));
        }
        assert!(problem(&whole[..whole.len() - 1]).contains("it is cut short"));
        checkpoint(&db);
        assert_eq!(check(&db).problems, [""; 0]);
        db.close().unwrap();
        let db = open(directory.path());
        assert!(contents(&db, &open_table(&db, "paged")) == model);
        db.close().unwrap();
    });
}

/// A table number is never reused, even if only the log before the newest checkpoint mentions the
/// table. Recovery may replay that log if the checkpoint is lost.
#[test]
fn the_id_of_a_dropped_paged_table_is_never_reused() {
    with_limit(LIMIT_SECONDS, |_| {
        for first_paged in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let options = || {
                options()
                    .tune(|tuning| tuning.checkpoint_bytes(1 << 30).log_segment_bytes(64 << 20))
            };
            let open = || Database::open(directory.path(), options()).unwrap().watched();
            let id = |db: &Database| block_on(db.tables()).unwrap()[0].id;
            let db = open();
            let table = create_table(&db, "first", first_paged);
            churn(&db, &table, &mut BTreeMap::new(), 1, 20);
            let first = id(&db);
            drop(table);
            block_on(db.drop_table("first")).unwrap();
            while matches!(block_on(db.checkpoint()), Err(Error::Busy(BusyWith::Checkpoint))) {}
            db.close().unwrap();
            let db = open();
            let (table, mut model) = (create_table(&db, "second", !first_paged), BTreeMap::new());
            churn(&db, &table, &mut model, 2, 20);
            assert!(id(&db) > first, "the number was given before");
            db.close().unwrap();
            for _ in 0..2 {
                let db = open();
                assert!(contents(&db, &open_table(&db, "second")) == model);
                assert_eq!(check(&db).problems, Vec::<String>::new());
                db.close().unwrap();
                // Simulates a damaged checkpoint: the log is complete from its start.
                for entry in std::fs::read_dir(directory.path()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.extension().is_some_and(|extension| extension == "ckpt") {
                        std::fs::remove_file(path).unwrap();
                    }
                }
            }
        }
    });
}

/// The page size is fixed when the first paged table is created, and later options do not change
/// it. Recovery finds it in the log alone, in a checkpoint, in a backup, and in a read-only open.
#[test]
fn the_page_size_is_fixed_at_creation() {
    with_limit(LIMIT_SECONDS, |_| {
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            let directory = tempfile::tempdir().unwrap();
            let backup = directory.path().join("backup");
            let path = directory.path().join("database");
            let open = |page_bytes| {
                let options = options()
                    .tune(|tuning| tuning.checkpoint_bytes(1 << 30).page_bytes(page_bytes));
                Database::open(&path, options).unwrap().watched()
            };
            // Tables in memory do not record it.
            let db = open(32 << 10);
            let hot: Records = create_table(&db, "hot", false);
            churn(&db, &hot, &mut BTreeMap::new(), 1, 3);
            db.close().unwrap();
            let (mut model, db) = (BTreeMap::new(), open(page_bytes));
            let table = create_table(&db, "paged", true);
            churn(&db, &table, &mut model, 2, 10);
            db.close().unwrap();
            let image_bytes = |db: &Database| db.stats().pages.page_bytes;
            for other in [4 << 10, 8 << 10, 64 << 10] {
                let db = open(other);
                assert_eq!(image_bytes(&db), page_bytes as u64);
                let table = open_table(&db, "paged");
                assert!(contents(&db, &table) == model);
                churn(&db, &table, &mut model, other as u64, 5);
                checkpoint(&db);
                churn(&db, &table, &mut model, other as u64 + 1, 5);
                assert_eq!(check(&db).problems, Vec::<String>::new());
                db.close().unwrap();
            }
            let db = open(8 << 10);
            once_free(|| db.backup(&backup)).unwrap();
            db.close().unwrap();
            for path in [&path, &backup] {
                let db = Database::open(path, options().read_only(true)).unwrap().watched();
                assert_eq!(image_bytes(&db), page_bytes as u64);
                assert!(contents(&db, &open_table(&db, "paged")) == model);
                db.close().unwrap();
            }
            let db = Database::open(&backup, options()).unwrap().watched();
            assert!(contents(&db, &open_table(&db, "paged")) == model);
            assert_eq!(image_bytes(&db), page_bytes as u64);
            db.close().unwrap();
        }
    });
}

/// The first creation of a paged table with a free name raises the version, even if the creation
/// aborts. Nothing else raises it. A database with a future version is refused.
#[test]
fn the_format_version_states_whether_paged_tables_may_exist() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // Only explicit checkpoints are written.
        let options = || options().tune(|tuning| tuning.checkpoint_bytes(1 << 30));
        let open = |directory: &Path| Database::open(directory, options()).unwrap().watched();
        let db = open(directory.path());
        let hot: Records = create_table(&db, "hot", false);
        churn(&db, &hot, &mut BTreeMap::new(), 1, 10);
        db.close().unwrap();
        assert_eq!(version(directory.path()), 1);
        let db = open(directory.path());
        let taken = db.run_blocking(async move |tx| {
            let paged = TableOptions::default().paged();
            tx.create_table_with::<u64, [u8]>("hot", paged).await.map(drop)
        });
        assert!(matches!(taken, Err(Error::TableExists(_))), "{taken:?}");
        assert_eq!(version(directory.path()), 1, "its name is taken");
        let paged: Records = create_table(&db, "paged", true);
        assert_eq!(version(directory.path()), 2);
        block_on(db.put(&paged, &1, &[1][..])).unwrap();
        assert_eq!(version(directory.path()), 2);
        db.close().unwrap();
        // Records of paged tables in a version 1 database are damage.
        let path = directory.path().join("braid.meta");
        let meta = std::fs::read(&path).unwrap();
        let with_version = |version: u32| {
            let mut other = meta.clone();
            other[8..12].copy_from_slice(&version.to_le_bytes());
            other[12..16].fill(0);
            let sum = crc32c::crc32c(&other);
            other[12..16].copy_from_slice(&sum.to_le_bytes());
            std::fs::write(&path, other).unwrap();
            Database::open(directory.path(), options())
        };
        for version in [0, 5] {
            let Err(Error::Directory(error)) = with_version(version) else {
                panic!("it is refused")
            };
            let LogError::WrongVersion { found, expected, .. } = &*error else { panic!("{error}") };
            assert_eq!((*found, *expected), (version, 4));
        }
        let Err(Error::Corrupt(error)) = with_version(1) else { panic!("it is refused") };
        assert!(matches!(&*error, LogError::Corrupt { .. }), "{error}");
        let db = with_version(2).unwrap();
        assert_eq!(contents(&db, &open_table(&db, "paged")).len(), 1);
        checkpoint(&db);
        assert_eq!(version(directory.path()), 4, "a checkpoint lists places of leaves");
        db.close().unwrap();
        let net = options().tune(|tuning| tuning.certifier(Certifier::SerialSafetyNet));
        assert!(matches!(
            Database::open(directory.path(), net),
            Err(Error::Misuse(Misuse::NeedsReadValidation { .. }))
        ));
    });
}

/// A volatile database reads the contents of its directory into memory, including paged tables.
#[test]
fn a_volatile_database_opens_the_paged_tables_of_its_directory() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        let (table, mut model) = (create_table(&db, "paged", true), BTreeMap::new());
        churn(&db, &table, &mut model, 1, 30);
        db.close().unwrap();
        let volatile = options().durability(braiddb::Durability::Volatile);
        let db = Database::open(directory.path(), volatile).unwrap().watched();
        let (table, before) = (open_table(&db, "paged"), model.clone());
        assert!(contents(&db, &table) == model);
        churn(&db, &table, &mut model, 2, 30);
        let new: Records = create_table(&db, "new", true);
        churn(&db, &new, &mut BTreeMap::new(), 3, 5);
        assert!(contents(&db, &table) == model);
        db.close().unwrap();
        let db = open(directory.path());
        assert!(contents(&db, &open_table(&db, "paged")) == before);
        assert!(matches!(
            block_on(db.open_table::<u64, [u8]>("new")),
            Err(Error::TableNotFound(_))
        ));
    });
}
