//! Checkpoints: their contents, the replay after them, and damaged ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Watched, once_free, with_limit};
use braiddb::maintenance::Checkpoint;
use braiddb::{Database, Error, LogError, Misuse, Options, Table, Transaction, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

const MIB: u64 = 1 << 20;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(4 * MIB).checkpoint_bytes(u64::MAX))
}

fn checkpoints(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ckpt"))
        .collect();
    found.sort();
    found
}

fn name(n: u64) -> String {
    format!("{}{n:05}", "a long common beginning ".repeat((n % 7) as usize))
}

fn contents(db: &Database, table: &Table<str, u64>) -> BTreeMap<String, u64> {
    let table = table.clone();
    let read = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            assert!(found.insert(key, value).is_none());
        }
        Ok(found)
    });
    read.unwrap()
}

/// Inserts, updates and deletes at random among `keys`, on one worker.
fn churn(db: &Database, table: &Table<str, u64>, worker: usize, seed: u64, count: u64) {
    let table = table.clone();
    let body = async move |tx: &Transaction, n: &u64| {
        let random = (n ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let key = name(random % 5000);
        match random % 3 {
            0 => drop(tx.delete(&table, &key).await?),
            _ => tx.put(&table, &key, n).await?,
        }
        Ok(())
    };
    db.run_source(worker, 0..count, body).unwrap().wait().unwrap();
}

/// Writes checkpoints until transactions committed during one. Returns that one.
fn checkpoint_beside_commits(db: &Database, directory: &Path) -> Checkpoint {
    let unfinished = directory.join("checkpoint.new");
    let mut beside_commits = false;
    loop {
        let checkpoint = std::thread::scope(|scope| {
            let taken = scope.spawn(|| block_on(db.checkpoint()).unwrap());
            while !taken.is_finished() {
                if !unfinished.exists() {
                    std::thread::yield_now();
                    continue;
                }
                let before = db.stats().committed;
                while !beside_commits && unfinished.exists() {
                    let committed = db.stats().committed > before;
                    beside_commits = committed && unfinished.exists();
                }
            }
            taken.join().unwrap()
        });
        if beside_commits {
            return checkpoint;
        }
    }
}

#[test]
fn checkpoints_taken_under_load_are_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut db = Database::open(directory.path(), options()).unwrap().watched();
        let mut table: Table<str, u64> = block_on(db.create_table("names")).unwrap();
        for round in 0..4 {
            let taken = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for worker in 0..2 {
                    let (db, table, taken) = (&db, &table, &taken);
                    scope.spawn(move || {
                        let seeds = (round * 2 + worker as u64) << 16..;
                        // Some of them after the last checkpoint.
                        for (number, seed) in seeds.enumerate() {
                            let last = taken.load(Ordering::SeqCst);
                            churn(db, table, worker, seed, 2_000);
                            if last && number >= 5 {
                                break;
                            }
                        }
                    });
                }
                let checkpoint = checkpoint_beside_commits(&db, directory.path());
                taken.store(true, Ordering::SeqCst);
                assert!(checkpoint.bytes >= 4096 && checkpoint.lsn >= 4096);
            });
            assert_eq!(checkpoints(directory.path()).len(), 1, "only the newest is kept");
            if round % 2 == 0 {
                churn(&db, &table, 0, 1000 + round, 500);
            }
            let expected = contents(&db, &table);
            drop(table);
            db.close().unwrap();
            drop(db);
            db = Database::open(directory.path(), options()).unwrap().watched();
            table = block_on(db.open_table("names")).unwrap();
            assert!(contents(&db, &table) == expected, "round {round}");
            assert!(db.stats().lsn.checkpoint > 0);
        }
    });
}

#[test]
fn checkpoints_are_written_as_the_log_grows() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = options().tune(|tuning| tuning.checkpoint_bytes(MIB));
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let table: Table<str, u64> = block_on(db.create_table("names")).unwrap();
        for seed in 0..8 {
            churn(&db, &table, 0, seed, 10_000);
        }
        let expected = contents(&db, &table);
        assert!(db.stats().lsn.checkpoint > MIB, "{:?}", db.stats().lsn);
        // Internal transactions of checkpoints are not counted.
        assert_eq!(db.stats().aborted.dropped, 0);
        db.close().unwrap();
        drop((db, table));
        assert_eq!(checkpoints(directory.path()).len(), 1);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table = block_on(db.open_table("names")).unwrap();
        assert!(contents(&db, &table) == expected);
    });
}

#[test]
fn transactions_in_several_blocks_are_atomic_across_checkpoints() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 40;
        const ROUNDS: u64 = 12;
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("large")).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..2u64 {
                let (db, table) = (&db, table.clone());
                scope.spawn(move || {
                    let body = async move |tx: &Transaction, round: &u64| {
                        // Three MiB: more than one block holds.
                        for key in 0..RECORDS {
                            tx.put(&table, &(worker * RECORDS + key), &[*round as u8; 80_000])
                                .await?;
                        }
                        Ok(())
                    };
                    db.run_source(worker as usize, 0..ROUNDS, body).unwrap().wait().unwrap();
                });
            }
            for _ in 0..10 {
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
        });
        db.close().unwrap();
        drop((db, table));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_table("large")).unwrap();
        for key in 0..2 * RECORDS {
            let table = table.clone();
            let value = db
                .run_blocking(async move |tx| Ok(tx.get(&table, &key).await?.map(<[u8]>::to_vec)));
            // The rounds of one worker may commit in any order.
            let value = value.unwrap().expect("it was written");
            let first = value[0];
            assert!(value.len() == 80_000 && value.iter().all(|byte| *byte == first));
            let table = block_on(db.open_table::<u64, [u8]>("large")).unwrap();
            let beside = key / RECORDS * RECORDS;
            let other = db.run_blocking(async move |tx| {
                Ok(tx.get(&table, &beside).await?.map(|value| value[0]))
            });
            assert_eq!(
                other.unwrap(),
                Some(first),
                "all of a transaction or nothing: record {key}"
            );
        }
    });
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_log_suffices_without_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<str, u64> = block_on(db.create_table("names")).unwrap();
        churn(&db, &table, 0, 1, 20_000);
        once_free(|| block_on(db.checkpoint())).unwrap();
        churn(&db, &table, 0, 2, 1000);
        let expected = contents(&db, &table);
        db.close().unwrap();
        drop((db, table));
        let path = checkpoints(directory.path()).remove(0);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(directory.path().join("checkpoint.new"), &whole[..5000]).unwrap();
        for place in [0, 9, 30, 50, 4096, 4100, 4108, 5000, 200_000] {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x20;
            std::fs::write(&path, &damaged).unwrap();
            let error = Database::open(directory.path(), options()).unwrap_err();
            let named = match error.log_error() {
                Some(LogError::Corrupt { path, .. } | LogError::WrongVersion { path, .. }) => path,
                _ => panic!("byte {place}: {error}"),
            };
            assert_eq!(named, &path, "byte {place}");
        }
        std::fs::write(&path, &whole[..whole.len() - 4096]).unwrap();
        assert!(Database::open(directory.path(), options()).is_err(), "cut short");
        std::fs::remove_file(&path).unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        assert!(!directory.path().join("checkpoint.new").exists());
        let table = block_on(db.open_table("names")).unwrap();
        assert!(contents(&db, &table) == expected);
    });
}

#[test]
fn a_database_in_memory_cannot_write_a_checkpoint() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        assert!(matches!(block_on(db.checkpoint()), Err(Error::Misuse(Misuse::NoLog))));
    });
}

#[test]
fn a_check_finds_damage_older_than_the_checkpoint() {
    with_limit(LIMIT_SECONDS, |_| {
        use std::os::unix::fs::FileExt;
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<str, u64> = block_on(db.create_table("names")).unwrap();
        churn(&db, &table, 0, 7, 10_000);
        let report = once_free(|| db.check()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert!(report.blocks > 5000 && report.records > 1000, "{report:?}");
        once_free(|| block_on(db.checkpoint())).unwrap();
        db.close().unwrap();
        drop((db, table));
        // Damage before the checkpoint, where opening does not read.
        let path = directory.path().join("wal-0000000000000000.seg");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut sector = [0; 4096];
        file.read_exact_at(&mut sector, 40 * 4096).unwrap();
        // The sector's first record is here; later bytes may be padding.
        sector[50] ^= 8;
        file.write_all_at(&sector, 40 * 4096).unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let report = once_free(|| db.check()).unwrap();
        assert!(!report.problems.is_empty());
        assert!(report.problems[0].contains("wal-0000000000000000.seg"), "{:?}", report.problems);
    });
}
