//! Decisions when opening a directory: one test for each row of the table in `ARCHITECTURE.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Watched, once_free, with_limit};
use braiddb::maintenance::Recovery;
use braiddb::{Database, Error, LogError, Options, Table, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

const SEGMENT_BYTES: u64 = 128 << 10;
const KEYS: u64 = 500;

fn options() -> Options {
    Options::default()
        .workers(1)
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(u64::MAX))
}

/// A database whose keys all hold the number of the last round that wrote them.
struct Bench {
    directory: tempfile::TempDir,
    rounds: u64,
}

impl Bench {
    /// Runs this number of rounds, with a checkpoint after each of `checkpoints`.
    fn new(rounds: u64, checkpoints: &[u64]) -> Self {
        let bench = Self { directory: tempfile::tempdir().unwrap(), rounds };
        let db = Database::open(bench.path(), options()).unwrap().watched();
        for round in 1..=rounds {
            write(&db, round);
            if checkpoints.contains(&round) {
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
        }
        db.close().unwrap();
        bench
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the files with this name ending, in order.
    fn files(&self, end: &str) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.path()).unwrap().map(|file| file.unwrap().path());
        let mut names: Vec<_> =
            names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(end))).collect();
        names.sort();
        names
    }

    /// Opens the database, checks that it is complete, and returns the recovery statistics.
    fn recovered(&self) -> Recovery {
        let db = Database::open(self.path(), options()).unwrap().watched();
        assert_eq!(read(&db), (0..KEYS).map(|key| (key, self.rounds)).collect());
        assert_eq!(once_free(|| db.check()).unwrap().problems, Vec::<String>::new());
        let recovery = db.stats().recovery;
        db.close().unwrap();
        recovery
    }

    /// Opens the database, which must fail because of damage. Returns the file that the error
    /// names.
    fn damaged(&self) -> (PathBuf, String) {
        match Database::open(self.path(), options()) {
            Err(Error::Corrupt(error)) => match &*error {
                LogError::Corrupt { path, reason, .. } => (path.clone(), reason.clone()),
                other => panic!("{other}"),
            },
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}

fn table(db: &Database) -> Table<u64, [u8]> {
    block_on(db.open_or_create_table("t")).unwrap()
}

fn write(db: &Database, round: u64) {
    let table = table(db);
    let body = async move |tx: &braiddb::Transaction, key: &u64| {
        let mut value = [0; 300];
        value[..8].copy_from_slice(&round.to_le_bytes());
        tx.put(&table, key, &value).await
    };
    db.run_source(0, 0..KEYS, body).unwrap().wait().unwrap();
}

fn read(db: &Database) -> BTreeMap<u64, u64> {
    let table = table(db);
    let records = block_on(db.len(&table)).unwrap();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, u64::from_le_bytes(value[..8].try_into().unwrap()));
        }
        Ok(found)
    });
    let found = found.unwrap();
    assert_eq!(records, found.len() as u64);
    found
}

#[test]
fn a_log_without_a_checkpoint_is_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let recovery = Bench::new(3, &[]).recovered();
        assert_eq!(recovery.checkpoint, None);
        assert!(recovery.transactions >= 3 * KEYS, "{recovery:?}");
    });
}

#[test]
fn a_log_with_a_checkpoint_is_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let recovery = Bench::new(4, &[3]).recovered();
        let checkpoint = recovery.checkpoint.expect("one was written");
        assert!(checkpoint.records >= KEYS, "{recovery:?}");
        assert!((KEYS..2 * KEYS).contains(&recovery.transactions), "{recovery:?}");
    });
}

#[test]
fn a_log_with_several_checkpoints_is_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(2, &[2]);
        let older = bench.files(".ckpt").remove(0);
        let kept = std::fs::read(&older).unwrap();
        let db = Database::open(bench.path(), options()).unwrap().watched();
        write(&db, 3);
        once_free(|| block_on(db.checkpoint())).unwrap();
        db.close().unwrap();
        drop(db);
        let newest = bench.files(".ckpt");
        assert_eq!(newest.len(), 1);
        std::fs::write(&older, kept).unwrap();
        let bench = Bench { rounds: 3, ..bench };
        let recovery = bench.recovered();
        assert!(recovery.transactions < KEYS, "from the newer one: {recovery:?}");
        let db = Database::open(bench.path(), options()).unwrap().watched();
        once_free(|| block_on(db.checkpoint())).unwrap();
        db.close().unwrap();
        assert_eq!(bench.files(".ckpt").len(), 1, "the next one takes their place");
    });
}

#[test]
fn unfinished_files_are_ignored() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(3, &[2]);
        let whole = std::fs::read(&bench.files(".ckpt")[0]).unwrap();
        std::fs::write(bench.path().join("checkpoint.new"), &whole[..5000]).unwrap();
        let segment = std::fs::read(&bench.files(".seg")[0]).unwrap();
        std::fs::write(bench.path().join("wal-0000000000100000.seg.new"), &segment).unwrap();
        std::fs::write(bench.path().join("spare-0000000000000000.seg.new"), &segment).unwrap();
        assert!(bench.recovered().checkpoint.is_some());
        assert_eq!(bench.files(".new"), Vec::<PathBuf>::new());
    });
}

#[test]
fn segments_are_identified_by_their_headers() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(6, &[2]);
        let segments = bench.files(".seg");
        let called = bench.path().join("wal-00000000fff00000.seg");
        std::fs::rename(&segments[segments.len() - 2], &called).unwrap();
        assert!(bench.recovered().checkpoint.is_some());
        assert!(called.exists(), "its header is what counts");
        std::fs::copy(&called, &segments[segments.len() - 2]).unwrap();
        let (path, reason) = bench.damaged();
        assert_eq!(path, called);
        assert!(reason.contains("the same segment"), "{reason}");
    });
}

#[test]
fn a_damaged_checkpoint_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(3, &[2]);
        let path = bench.files(".ckpt").remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4096 + 20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(bench.damaged().0, path);
        std::fs::remove_file(path).unwrap();
        assert_eq!(bench.recovered().checkpoint, None, "the log was there from its start");
    });
}

#[test]
fn a_missing_segment_after_the_checkpoint_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(6, &[2]);
        let segments = bench.files(".seg");
        let missing = &segments[segments.len() - 3];
        std::fs::remove_file(missing).unwrap();
        let (path, reason) = bench.damaged();
        assert_eq!(&path, missing);
        assert!(reason.contains("missing"), "{reason}");
    });
}

#[test]
fn a_missing_segment_without_a_checkpoint_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(3, &[]);
        let first = bench.files(".seg").remove(0);
        std::fs::remove_file(&first).unwrap();
        let (path, reason) = bench.damaged();
        assert_eq!(path, first);
        assert!(reason.contains("missing"), "{reason}");
    });
}

#[test]
fn a_missing_segment_that_the_checkpoint_references_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(2, &[2]);
        // The last one before the checkpoint has records of the second round.
        let checkpoint = lsn_of(&bench.files(".ckpt")[0]);
        let mut segments = bench.files(".seg");
        segments.retain(|segment| lsn_of(segment) + SEGMENT_BYTES <= checkpoint);
        std::fs::remove_file(segments.last().unwrap()).unwrap();
        let (path, reason) = bench.damaged();
        assert_eq!(path, bench.files(".ckpt")[0]);
        assert!(reason.contains("missing"), "{reason}");
    });
}

#[test]
fn a_checkpoint_that_starts_past_the_end_of_the_log_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(3, &[3]);
        for segment in &bench.files(".seg")[1..] {
            std::fs::remove_file(segment).unwrap();
        }
        let (_, reason) = bench.damaged();
        assert!(reason.contains("missing") || reason.contains("durable up to"), "{reason}");
    });
}

/// Returns the LSN in the name of a segment or checkpoint.
fn lsn_of(file: &Path) -> u64 {
    let name = file.file_stem().unwrap().to_str().unwrap();
    u64::from_str_radix(name.rsplit_once('-').unwrap().1, 16).unwrap()
}

/// A segment is replaced by an older copy that ends before the newest checkpoint.
#[test]
fn a_segment_that_ends_before_the_checkpoint() {
    with_limit(LIMIT_SECONDS, |_| each_older_segment_is_reported(&Bench::new(2, &[2])));
}

/// The segments before it were freed, so the block that continues in it may be missing.
#[test]
fn a_segment_that_ends_early_after_freed_ones() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(4, &[4]);
        let db = Database::open(bench.path(), options()).unwrap().watched();
        once_free(|| block_on(db.compact())).unwrap();
        db.close().unwrap();
        // The first one has the catalog's records.
        assert!(lsn_of(&bench.files(".seg")[1]) > SEGMENT_BYTES, "nothing was freed");
        each_older_segment_is_reported(&bench);
    });
}

/// Replaces each segment by a copy that ends before the checkpoint.
fn each_older_segment_is_reported(bench: &Bench) {
    const MIN_BYTES: u64 = 16 << 10;
    let mut replaced = 0;
    let start = |header: &[u8]| u64::from_le_bytes(header[40..48].try_into().unwrap());
    let checkpoint = start(&std::fs::read(&bench.files(".ckpt")[0]).unwrap());
    for segment in bench.files(".seg") {
        let whole = std::fs::read(&segment).unwrap();
        // A copy that ends at the checkpoint is not older, and a copy with only one block does not
        // show that other blocks are missing.
        let before = checkpoint.saturating_sub(start(&whole)).min(whole.len() as u64 - 4096);
        if before < MIN_BYTES {
            continue;
        }
        replaced += 1;
        let mut older = whole.clone();
        let keep = (4096 + before as usize / 2) / 4096 * 4096;
        older[keep..].fill(0);
        std::fs::write(&segment, older).unwrap();
        let (path, reason) = bench.damaged();
        assert_eq!(path, segment);
        assert!(reason.contains("may be an older copy"), "{reason}");
        std::fs::write(&segment, whole).unwrap();
    }
    assert!(replaced > 0);
    bench.recovered();
}

/// Returns a number from the header of a file.
fn number(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + 8].try_into().unwrap())
}

#[test]
fn a_checkpoint_that_ends_past_the_end_of_the_log_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1, &[]);
        let db = Database::open(bench.path(), options()).unwrap().watched();
        let over = AtomicBool::new(false);
        // Repeats until a transaction committed during a checkpoint.
        let (start, end) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    write(&db, 1);
                }
            });
            loop {
                once_free(|| block_on(db.checkpoint())).unwrap();
                let header = std::fs::read(&bench.files(".ckpt")[0]).unwrap();
                let (start, end) = (number(&header, 40), number(&header, 64));
                if start < end {
                    over.store(true, Ordering::Relaxed);
                    return (start, end);
                }
            }
        });
        db.close().unwrap();
        drop(db);
        for segment in &bench.files(".seg") {
            let mut bytes = std::fs::read(segment).unwrap();
            // Checkpoints may have freed the first segments, whose files and names are used again.
            let first = number(&bytes, 40);
            let kept = start.saturating_sub(first).min(SEGMENT_BYTES) as usize;
            bytes[4096 + kept..].fill(0);
            std::fs::write(segment, bytes).unwrap();
        }
        let (path, reason) = bench.damaged();
        assert!(path.extension().is_some_and(|end| end == "seg"), "{}", path.display());
        assert!(reason.contains(&format!("durable up to {end}")), "{reason}");
    });
}
