//! Read-only databases: they change nothing on disk, work while another process writes, and report
//! state that they can no longer read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Watched, once_free, with_limit};
use crate::expiring::{Clock, TTL, expiring};
use braiddb::{
    BusyWith, Database, Error, IndexOptions, Misuse, Options, Table, TableOptions, Transaction,
    Tuning,
};
use pollster::block_on;

/// A limit far above the duration of any test.
pub(crate) const LIMIT_SECONDS: u64 = 300;
const ACCOUNTS: u64 = 200;
const CENTS: u64 = 1000;

/// Opens a database read-only, on any thread.
pub(crate) fn open_to_read(directory: &Path) -> Result<Database, Error> {
    Database::open(directory, Options::default().read_only(true))
}

/// Returns the contents and all metadata of a directory's files, except access times.
pub(crate) fn tree(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, [i64; 5], u64)> {
    let mut tree = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let told = fs::metadata(&path).unwrap();
        let times = [
            told.mtime(),
            told.mtime_nsec(),
            told.ctime(),
            told.ctime_nsec(),
            told.blocks() as i64,
        ];
        tree.insert(path.clone(), (fs::read(&path).unwrap(), times, told.ino()));
    }
    let told = fs::metadata(directory).unwrap();
    let times = [told.mtime(), told.mtime_nsec(), told.ctime(), told.ctime_nsec(), 0];
    tree.insert(directory.to_owned(), (Vec::new(), times, told.ino()));
    tree
}

/// Returns true if this process has a file of the directory open for writing.
fn may_write(directory: &Path) -> bool {
    fs::read_dir("/proc/self/fd").unwrap().any(|entry| {
        let entry = entry.unwrap();
        let Ok(target) = fs::read_link(entry.path()) else { return false };
        let number = entry.file_name().into_string().unwrap();
        let Ok(told) = fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else {
            return false;
        };
        let flags = told.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        target.starts_with(directory) && i32::from_str_radix(flags, 8).unwrap() & 3 != 0
    })
}

/// Writes one text for each record, under keys that also index it.
async fn put_some(
    tx: &Transaction,
    table: &Table<u64, str>,
    keys: std::ops::Range<u64>,
) -> Result<(), Error> {
    for key in keys {
        tx.put(table, &key, &format!("text {}", key % 7)).await?;
    }
    Ok(())
}

async fn count(tx: &Transaction, table: &Table<u64, str>) -> Result<u64, Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, 0);
    while let Some((key, text)) = scan.next().await? {
        assert_eq!(text, format!("text {}", key % 7));
        found += 1;
    }
    Ok(found)
}

/// Creates a closed database with tables of all kinds: records in its checkpoint and after it, and
/// leftovers of a crash.
fn fill(path: &Path, options: &Options, clock: &Clock) {
    let db = Database::open(path, options.clone()).unwrap().watched();
    let kinds = [
        ("hot", TableOptions::default()),
        ("paged", TableOptions::default().paged()),
        ("expiring", expiring(false)),
        ("dropped", TableOptions::default()),
    ];
    for (name, kind) in kinds {
        let create =
            async move |tx: &Transaction| tx.create_table_with::<u64, str>(name, kind).await;
        let table = db.run_blocking(create).unwrap();
        if name == "hot" || name == "paged" {
            let extract = |text: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(text);
            block_on(db.index(&table, "by_text", IndexOptions::default(), extract)).unwrap();
        }
        for (from, to) in [(0, 50), (50, 100)] {
            let table = table.clone();
            db.run_blocking(async move |tx| put_some(tx, &table, from..to).await).unwrap();
            if name != "dropped" {
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
        }
        let table = table.clone();
        db.run_blocking(async move |tx| put_some(tx, &table, 100..120).await).unwrap();
    }
    block_on(db.drop_table("dropped")).unwrap();
    db.close().unwrap();
    clock.pass(1);
    for left in ["checkpoint.new", "pages-00000f.zone"] {
        fs::write(path.join(left), "left behind").unwrap();
    }
}

#[test]
#[ignore = "slow: the gate runs it"]
fn a_read_only_paged_table_larger_than_the_budget_stays_within_it() {
    // More than the log's ring takes, although a read-only database has no ring.
    const BUDGET: u64 = 33 << 20;
    const RECORDS: u64 = 60_000;
    let value = |key: u64| [&key.to_le_bytes()[..], &[key as u8; 992]].concat();
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let options = Options::default().workers(2).memory_budget(BUDGET);
        let db = Database::open(&path, options.clone()).unwrap().watched();
        let paged = TableOptions::default().paged();
        let table: Table<u64, [u8]> = block_on(db.create_table_with("paged", paged)).unwrap();
        for from in (0..RECORDS).step_by(1000) {
            // Half of the records are in the checkpoint, half in the log after it.
            if from == RECORDS / 2 {
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
            let table = table.clone();
            let put = async move |tx: &Transaction| {
                for key in from..from + 1000 {
                    tx.put(&table, &key, &value(key)).await?;
                }
                Ok(())
            };
            db.run_blocking(put).unwrap();
        }
        db.close().unwrap();
        let before = tree(&path);
        let db = Database::open(&path, options.read_only(true)).unwrap().watched();
        let within = |db: &Database| {
            let memory = db.stats().memory;
            assert!(memory.pages + memory.versions + memory.reads <= BUDGET, "{memory:#?}");
        };
        within(&db);
        assert!(db.stats().pages.evicted > 0, "{:#?}", db.stats().pages);
        let table: Table<u64, [u8]> = block_on(db.open_table("paged")).unwrap();
        let scanned = table.clone();
        let scan = async move |tx: &Transaction| {
            let (mut scan, mut next) = (tx.scan(&scanned, ..)?, 0);
            while let Some((key, found)) = scan.next().await? {
                assert!(key == next && found == value(key), "{key} after {next}");
                next += 1;
            }
            Ok(next)
        };
        assert_eq!(db.run_blocking(scan).unwrap(), RECORDS);
        within(&db);
        for key in (0..RECORDS).rev().step_by(61) {
            assert_eq!(block_on(db.get(&table, &key)).unwrap(), Some(value(key)), "{key}");
        }
        within(&db);
        assert!(!may_write(&path));
        db.close().unwrap();
        assert_eq!(tree(&path), before);
    });
}

/// Sets the permissions of a directory and of its files.
fn permit(path: &Path, directory_mode: u32, file_mode: u32) {
    for entry in fs::read_dir(path).unwrap() {
        let file = entry.unwrap().path();
        fs::set_permissions(file, fs::Permissions::from_mode(file_mode)).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(directory_mode)).unwrap();
}

#[test]
fn a_backup_is_readable_in_place() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
        let clock = Clock::new();
        let options = clock.options().tune(|tuning| tuning.log_segment_bytes(64 << 10));
        fill(&path, &options, &clock);
        let db = Database::open(&path, options.clone()).unwrap().watched();
        once_free(|| db.backup(&copy)).unwrap();
        db.close().unwrap();
        permit(&copy, 0o555, 0o444);
        let before = tree(&copy);
        let db = Database::open(&copy, options.read_only(true)).unwrap().watched();
        for name in ["hot", "paged", "expiring"] {
            let table: Table<u64, str> = block_on(db.open_table(name)).unwrap();
            assert_eq!(db.run_blocking(async move |tx| count(tx, &table).await).unwrap(), 120);
        }
        assert!(once_free(|| db.check()).unwrap().problems.is_empty());
        assert!(!may_write(&copy), "files are open to be read only");
        db.close().unwrap();
        assert!(before == tree(&copy), "nothing was changed");
        permit(&copy, 0o755, 0o644);
    });
}

#[test]
fn a_read_only_open_changes_no_file() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let clock = Clock::new();
        let options = clock.options().tune(|tuning| tuning.log_segment_bytes(64 << 10));
        fill(&path, &options, &clock);
        permit(&path, 0o555, 0o444);
        let before = tree(&path);
        let db = Database::open(&path, options.clone().read_only(true)).unwrap().watched();
        for name in ["hot", "paged", "expiring"] {
            let table: Table<u64, str> = block_on(db.open_table(name)).unwrap();
            let counted = table.clone();
            assert_eq!(db.run_blocking(async move |tx| count(tx, &counted).await).unwrap(), 120);
            if name == "expiring" {
                clock.pass(TTL);
                let gone = db.run_blocking(async move |tx| count(tx, &table).await).unwrap();
                assert_eq!(gone, 0, "expired");
                continue;
            }
            let extract = |text: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(text);
            let by_text =
                block_on(db.index(&table, "by_text", IndexOptions::default(), extract)).unwrap();
            let found = db.run_blocking(async move |tx| {
                let (mut scan, mut found) =
                    (tx.scan_by(&by_text, "text 3".to_owned()..="text 3".to_owned())?, 0);
                while scan.next().await?.is_some() {
                    found += 1;
                }
                Ok(found)
            });
            assert_eq!(found.unwrap(), (0..120).filter(|key| key % 7 == 3).count());
        }
        let dropped = block_on(db.open_table::<u64, str>("dropped")).map(drop);
        assert!(matches!(dropped, Err(Error::TableNotFound(_))));
        assert!(once_free(|| db.check()).unwrap().problems.is_empty());
        assert!(db.log_blocks(0, 1000).unwrap().0.len() > 3);
        refuses_to_write(&db, directory.path());
        assert!(!may_write(&path), "files are open to be read only");
        let again = Database::open(&path, options.clone().read_only(true)).unwrap().watched();
        again.close().unwrap();
        db.close().unwrap();
        assert!(before == tree(&path), "nothing was changed");
        permit(&path, 0o755, 0o644);
        // A writer opens the database and cleans up as usual.
        let db = Database::open(&path, options).unwrap().watched();
        assert!(may_write(&path), "as is seen if they are not");
        assert!(!path.join("checkpoint.new").exists());
        assert!(matches!(Database::open(&path, Options::default()), Err(Error::Directory(_))));
        db.close().unwrap();
    });
}

/// Checks that every call that would change the database fails with a clear error.
fn refuses_to_write(db: &Database, beside: &Path) {
    let hot: Table<u64, str> = block_on(db.open_table("hot")).unwrap();
    let paged: Table<u64, str> = block_on(db.open_table("paged")).unwrap();
    let mut refused: Vec<(&str, Result<(), Error>)> = Vec::new();
    for table in [&hot, &paged] {
        refused.push(("put", block_on(db.put(table, &1, "new")).map(drop)));
        refused.push(("delete", block_on(db.delete(table, &1)).map(drop)));
        refused.push(("clear", block_on(db.clear(table)).map(drop)));
        refused.push(("drop index", block_on(db.drop_index(table, "by_text"))));
        let of = table.clone();
        let range = async move |tx: &Transaction| tx.delete_range(&of, 0..10).await.map(drop);
        refused.push(("delete_range", db.run_blocking(range)));
        let step = block_on(async {
            let (transaction, of) = (db.begin().await?, table.clone());
            transaction.step(async move |tx| tx.insert(&of, &999, "new").await).await
        });
        refused.push(("interactive", step));
        let extract = |text: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(text);
        let made = block_on(db.index(table, "another", IndexOptions::default(), extract));
        refused.push(("index", made.map(drop)));
    }
    refused.push(("create", block_on(db.create_table::<u64, str>("new")).map(drop)));
    let paged = async |tx: &Transaction| {
        tx.create_table_with::<u64, str>("new", TableOptions::default().paged()).await.map(drop)
    };
    refused.push(("create paged", db.run_blocking(paged)));
    refused.push(("stage", block_on(db.stage_table::<u64, str>("new")).map(drop)));
    refused.push(("drop", block_on(db.drop_table("hot"))));
    refused.push(("rename", block_on(db.rename_table("hot", "cold"))));
    refused.push(("checkpoint", block_on(db.checkpoint()).map(drop)));
    refused.push(("compact", block_on(db.compact()).map(drop)));
    refused.push(("backup", db.backup(beside.join("copy")).map(drop)));
    for (what, result) in refused {
        assert!(
            matches!(result, Err(Error::Misuse(Misuse::ReadOnlyDatabase))),
            "{what}: {result:?}"
        );
    }
    assert!(!beside.join("copy").exists());
    let message = Error::Misuse(Misuse::ReadOnlyDatabase).to_string();
    assert!(message.contains("Options::read_only"), "{message}");
    // Opening an existing table needs no creation.
    block_on(db.open_or_create_table::<u64, str>("hot")).unwrap();
}

pub(crate) fn transfers() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(128 << 10))
}

/// Returns the accounts, whose records are not cached after a read.
async fn balances(tx: &Transaction, table: &Table<u64, [u8]>) -> Result<Vec<u64>, Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, Vec::new());
    while let Some((_, bytes)) = scan.next().await? {
        found.push(u64::from_le_bytes(*bytes.first_chunk().unwrap()));
    }
    Ok(found)
}

pub(crate) fn read(db: &Database) -> Result<Vec<u64>, Error> {
    let table: Table<u64, [u8]> = block_on(db.open_table("accounts"))?;
    db.run_blocking(async move |tx| balances(tx, &table).await)
}

fn account(cents: u64) -> Vec<u8> {
    let mut bytes = cents.to_le_bytes().to_vec();
    bytes.resize(300, 7);
    bytes
}

pub(crate) fn open_accounts(db: &Database, options: TableOptions) -> Table<u64, [u8]> {
    let create = async move |tx: &Transaction| tx.create_table_with("accounts", options).await;
    let table: Table<u64, [u8]> = db.run_blocking(create).unwrap();
    let of = table.clone();
    let fill = async move |tx: &Transaction| {
        for key in 0..ACCOUNTS {
            tx.insert(&of, &key, &account(CENTS)).await?;
        }
        Ok(())
    };
    db.run_blocking(fill).unwrap();
    table
}

/// Moves cents between accounts, in this number of transactions.
pub(crate) fn transfer(db: &Database, table: &Table<u64, [u8]>, seed: u64, times: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let pairs: Vec<(u64, u64)> =
        (0..times).map(|_| (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS - 1))).collect();
    let table = table.clone();
    let moved = db.run_source(0, pairs, async move |tx, (from, other)| {
        let to = (from + 1 + other) % ACCOUNTS;
        let mut cents = [0; 2];
        for (place, key) in [*from, to].iter().enumerate() {
            let bytes = tx.get(&table, key).await?.unwrap();
            cents[place] = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        }
        if cents[0] > 0 {
            tx.put(&table, from, &account(cents[0] - 1)).await?;
            tx.put(&table, &to, &account(cents[1] + 1)).await?;
        }
        Ok(())
    });
    moved.unwrap().wait().unwrap();
}

/// Reads records in the log, and pages whose images checkpoints write again and again.
#[test]
fn a_reader_of_another_process_sees_whole_transactions() {
    for options in [TableOptions::default().cache_cold(false), TableOptions::default().paged()] {
        read_beside_a_writer(options);
    }
}

fn read_beside_a_writer(options: TableOptions) {
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let writer = Database::open(&path, transfers()).unwrap().watched();
        let table = open_accounts(&writer, options);
        let over = Arc::new(AtomicBool::new(false));
        let reader = {
            let (path, over) = (path.clone(), over.clone());
            std::thread::spawn(move || {
                let first = open_to_read(&path).unwrap();
                let seen = read(&first).unwrap();
                let (mut openings, mut states) = (0, 0);
                let mut last = seen.clone();
                while !over.load(Ordering::SeqCst) || openings < 3 {
                    let db = open_to_read(&path).unwrap();
                    let now = read(&db).unwrap();
                    assert_eq!(now.len() as u64, ACCOUNTS);
                    assert_eq!(now.iter().sum::<u64>(), ACCOUNTS * CENTS);
                    states += u64::from(now != last);
                    last = now;
                    openings += 1;
                    if openings % 5 == 0 {
                        // The reader also looks at segments that were freed before.
                        match db.check() {
                            Err(Error::Outdated(_)) => {}
                            report => assert!(report.unwrap().problems.is_empty()),
                        }
                    }
                    // The first reader still shows its state, although all of it was freed long
                    // ago.
                    assert!(read(&first).unwrap() == seen);
                }
                (openings, states)
            })
        };
        for round in 0.. {
            transfer(&writer, &table, round, 500);
            if round % 4 == 3 {
                // If not, an automatic compaction is running.
                let compacted = block_on(writer.compact());
                assert!(
                    matches!(compacted, Ok(_) | Err(Error::Busy(BusyWith::Checkpoint))),
                    "{compacted:?}"
                );
            }
            let log = writer.stats().log;
            if reader.is_finished() || round >= 12 && log.segments_freed > 20 {
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
        let (openings, states) = reader.join().unwrap();
        let log = writer.stats().log;
        assert!(openings >= 3 && states >= 1, "{openings} openings, {states} states");
        assert!(log.segments_freed > 20, "{log:?}");
        let now = read(&writer).unwrap();
        writer.close().unwrap();
        assert!(read(&open_to_read(&path).unwrap()).unwrap() == now);
    });
}

/// Returns the newest segment file that has a successor.
pub(crate) fn segment(path: &Path) -> PathBuf {
    let mut names: Vec<PathBuf> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "seg"));
    names.sort();
    names.remove(0)
}

#[test]
fn a_freed_segment_with_readers_is_removed_and_not_reused() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let writer = Database::open(&path, transfers()).unwrap().watched();
        let table = open_accounts(&writer, TableOptions::default().cache_cold(false));
        let mut round = 0;
        let mut go_on = |until: &dyn Fn(&braiddb::stats::LogStats) -> bool| {
            while !until(&writer.stats().log) {
                round += 1;
                transfer(&writer, &table, round, 500);
            }
        };
        go_on(&|log| log.segments_reused > 0);
        let reader = open_to_read(&path).unwrap();
        let seen = read(&reader).unwrap();
        let before = writer.stats().log;
        go_on(&|log| log.segments_freed > before.segments_freed + 15);
        assert!(read(&reader).unwrap() == seen);
        drop(reader);
        let before = writer.stats().log;
        go_on(&|log| log.segments_reused > before.segments_reused);
    });
}

/// Tests it for opens that fail or must list the directory again.
#[test]
fn a_reader_never_holds_the_write_lock() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        Database::open(&path, transfers()).unwrap().close().unwrap();
        let db = open_to_read(&path).unwrap();
        let stats = db.stats();
        assert!(stats.lsn.durable <= stats.lsn.tail, "{:?}", stats.lsn);
        drop(db);
        let file = fs::File::options().write(true).open(segment(&path)).unwrap();
        file.write_all_at(&[0xff; 64], 0).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut opened = 0;
                while !is_over.load(Ordering::SeqCst) || opened == 0 {
                    assert!(open_to_read(&path).is_err());
                    opened += 1;
                }
            });
            for _ in 0..20_000 {
                let lock = fs::File::open(path.join("LOCK")).unwrap();
                assert!(lock.try_lock().is_ok(), "a writer could not open it now");
            }
            is_over.store(true, Ordering::SeqCst);
            reader.join().unwrap();
        });
    });
}
