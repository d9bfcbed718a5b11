//! A database of many segments in a process with a low limit of open files. It works with any
//! limit, and raises the limit if permitted.
//!
//! The limit belongs to the process, so each test runs itself again as a child process with its own
//! limit.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use braiddb::{Database, DeviceKind, Error, Options, Table, Tuning};
use common::{Watched, once_free, with_limit};
use pollster::block_on;

/// The environment variable with the directory, in a child.
const DIRECTORY: &str = "BRAID_TEST_DIRECTORY";
/// The environment variable with the device, in a child.
const DEVICE: &str = "BRAID_TEST_DEVICE";
/// The maximum life of a child.
const PATIENCE: Duration = Duration::from_secs(240);
const SEGMENT_BYTES: u64 = 64 << 10;
/// Bytes of a value: about eight records fill a segment.
const VALUE_BYTES: usize = 8000;

/// Runs the test with this name as a child, with a temporary directory.
fn in_child(test: &str, device: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory.path())
        .env(DEVICE, device)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{test} took longer than {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{test}: {status}");
}

fn set_limit(soft: u64, hard: u64) {
    let limits = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: reads the struct, which lives through the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn soft_limit() -> u64 {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to the struct, which lives through the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    assert_eq!(asked, 0);
    limits.rlim_cur
}

fn options() -> Options {
    let device = match std::env::var(DEVICE).as_deref() {
        Ok("blocking") => DeviceKind::Blocking,
        _ => DeviceKind::Auto,
    };
    let tuning = Tuning::default()
        .device(device)
        .log_segment_bytes(SEGMENT_BYTES)
        .checkpoint_bytes(1 << 40)
        .log_ring_bytes(64 << 20);
    // Hardly more than the log ring takes: every record is read from its segment.
    Options::default().workers(2).memory_budget((64 << 20) + 1).tuning(tuning)
}

fn value(key: u64, round: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 8 ^ round);
    let mut value = vec![0; VALUE_BYTES];
    random.fill(&mut value);
    value
}

fn open(directory: &Path) -> (Database, Table<u64, [u8]>) {
    let db = Database::open(directory, options()).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

fn write(db: &Database, table: &Table<u64, [u8]>, keys: impl Iterator<Item = u64>, round: u64) {
    let keys: Vec<u64> = keys.collect();
    let batches: Vec<Vec<u64>> = keys.chunks(4).map(<[u64]>::to_vec).collect();
    let table = table.clone();
    let source = db.run_source(0, batches, async move |tx, keys| {
        for key in keys {
            tx.put(&table, key, &value(*key, round)).await?;
        }
        Ok(())
    });
    source.unwrap().wait().unwrap();
}

/// Reads keys all over the log, many at a time.
fn read(db: &Database, table: &Table<u64, [u8]>, keys: u64, round: impl Fn(u64) -> u64) {
    let mut order: Vec<u64> = (0..keys).collect();
    fastrand::Rng::with_seed(keys).shuffle(&mut order);
    let expected: Vec<(u64, u64)> = order.into_iter().map(|key| (key, round(key))).collect();
    let table = table.clone();
    let source = db.run_source(0, expected, async move |tx, (key, round)| {
        let found = tx.get(&table, key).await?;
        assert!(found.is_some_and(|found| found == value(*key, *round)), "key {key}");
        Ok(())
    });
    source.unwrap().wait().unwrap();
}

/// Uses all features of a database, with far more segments than descriptors.
fn everything(directory: &Path, keys: u64) {
    let (home, copy) = (directory.join("home"), directory.join("copy"));
    let (db, table) = open(&home);
    write(&db, &table, 0..keys, 1);
    let segments = db.stats().log.segments_created;
    assert!(segments > keys / 10, "{segments} segments");
    read(&db, &table, keys, |_| 1);
    once_free(|| block_on(db.checkpoint())).unwrap();
    // Most records of each segment become garbage.
    for round in [2, 3] {
        write(&db, &table, (0..keys).filter(|key| key % 5 != 0), round);
    }
    let round = |key: u64| if key.is_multiple_of(5) { 1 } else { 3 };
    let compacted = once_free(|| block_on(db.compact())).unwrap();
    assert!(compacted.segments > keys / 20, "{compacted:?}");
    read(&db, &table, keys, round);
    let checked = once_free(|| db.check()).unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    // A value that takes some 250 segments, written in one flush.
    let (large, bytes) = (table.clone(), vec![9u8; 16 << 20]);
    let put = db.run_blocking(async move |tx| tx.put(&large, &u64::MAX, &bytes).await);
    put.unwrap();
    once_free(|| db.backup(&copy)).unwrap();
    db.close().unwrap();
    drop((db, table));
    for directory in [&home, &copy] {
        let (db, table) = open(directory);
        read(&db, &table, keys, round);
        let checked = once_free(|| db.check()).unwrap();
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
        let gone = table.clone();
        let deleted = db.run_blocking(async move |tx| tx.delete(&gone, &u64::MAX).await).unwrap();
        assert!(deleted);
        db.close().unwrap();
    }
}

/// Returns the time limit. A child has a shorter one than its parent's patience, so that it prints
/// its state when it hangs.
fn limit_seconds() -> u64 {
    if child().is_some() { 200 } else { 600 }
}

fn child() -> Option<String> {
    std::env::var(DIRECTORY).ok()
}

#[test]
fn a_limit_far_below_the_number_of_segments_suffices() {
    with_limit(limit_seconds(), |_| {
        let Some(directory) = child() else {
            in_child("a_limit_far_below_the_number_of_segments_suffices", "auto");
            return in_child("a_limit_far_below_the_number_of_segments_suffices", "blocking");
        };
        set_limit(64, 64);
        // With the blocking device each segment costs several waits for the disk.
        let blocking = options().tuning.device == DeviceKind::Blocking;
        everything(directory.as_ref(), if blocking { 300 } else { 500 });
        let (db, _) = open(&Path::new(&directory).join("home"));
        let stats = db.stats().log;
        assert!(stats.files_reopened > 100, "{stats:?}");
        assert!(stats.files_open <= 32, "half is left to the program: {stats:?}");
        assert_eq!(soft_limit(), 64);
    });
}

#[test]
fn the_soft_limit_is_raised_when_needed() {
    with_limit(limit_seconds(), |_| {
        let Some(directory) = child() else {
            return in_child("the_soft_limit_is_raised_when_needed", "auto");
        };
        set_limit(64, 2000);
        let (db, table) = open(directory.as_ref());
        assert_eq!(soft_limit(), 64, "nothing is changed before it is needed");
        write(&db, &table, 0..1000, 1);
        read(&db, &table, 1000, |_| 1);
        assert_eq!(soft_limit(), 2000);
        let stats = db.stats().log;
        assert!(stats.files_open > 100 && stats.files_reopened == 0, "{stats:?}");
        db.close().unwrap();
    });
}

#[test]
fn a_database_continues_when_no_descriptor_is_left() {
    with_limit(limit_seconds(), |_| {
        let Some(directory) = child() else {
            return in_child("a_database_continues_when_no_descriptor_is_left", "auto");
        };
        set_limit(128, 128);
        let (db, table) = open(directory.as_ref());
        write(&db, &table, 0..500, 1);
        // The program opens all remaining descriptors.
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        assert!(taken.len() > 30, "{}", taken.len());
        // The database continues with the descriptors it has.
        read(&db, &table, 500, |_| 1);
        write(&db, &table, 0..500, 2);
        read(&db, &table, 500, |_| 2);
        // Operations that need more descriptors fail with an error, and work when some are free
        // again.
        let error = Database::open(Path::new(&directory).join("other"), options()).unwrap_err();
        assert!(error.to_string().contains("limit of open files"), "{error}");
        assert!(matches!(error, Error::Io(_)), "{error}");
        drop(taken);
        let (other, records) = open(&Path::new(&directory).join("other"));
        write(&other, &records, 0..10, 1);
        other.close().unwrap();
        db.close().unwrap();
    });
}
