//! Compaction: the log stays a small multiple of the live data, and no record is lost.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::maintenance::Compaction;
use braiddb::{BusyWith, Database, Error, Options, Snapshot, Table, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

const SEGMENT_BYTES: u64 = 256 << 10;
/// The size of the log's ring; a budget of hardly more lets everything be evicted.
const RING_BYTES: u64 = 64 << 20;
const KEYS: u64 = 2000;
const VALUE_BYTES: usize = 300;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 20))
}

fn value(key: u64, round: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 32 ^ round);
    (0..VALUE_BYTES).map(|_| random.u8(..)).collect()
}

/// Writes every key of a stride, in transactions of ten.
fn overwrite(db: &Database, table: &Table<u64, [u8]>, round: u64, stride: u64) {
    let keys: Vec<u64> = (0..KEYS).filter(|key| key % stride == 0).collect();
    let batches: Vec<Vec<u64>> = keys.chunks(10).map(<[u64]>::to_vec).collect();
    let table = table.clone();
    let source = db.run_source(0, batches, async move |tx, keys| {
        for key in keys {
            tx.put(&table, key, &value(*key, round)).await?;
        }
        Ok(())
    });
    source.unwrap().wait().unwrap();
}

fn check(db: &Database, rounds: impl Fn(u64) -> u64) {
    let table: Table<u64, [u8]> = block_on(db.open_table("t")).unwrap();
    let found: Vec<(u64, Vec<u8>)> = db
        .run_blocking(async move |tx| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
            while let Some((key, value)) = scan.next().await? {
                found.push((key, value.to_vec()));
            }
            Ok(found)
        })
        .unwrap();
    assert_eq!(found.len() as u64, KEYS);
    for (key, bytes) in found {
        assert!(bytes == value(key, rounds(key)), "key {key}");
    }
}

fn compact(db: &Database) -> Compaction {
    once_free(|| block_on(db.compact())).unwrap()
}

fn problems(db: &Database) -> Vec<String> {
    once_free(|| db.check()).unwrap().problems
}

/// Returns the bytes of segments that hold parts of the log, without prepared ones.
fn log_bytes(directory: &Path, db: &Database) -> u64 {
    let start = |name: &str| {
        let digits = name.strip_prefix("wal-")?.strip_suffix(".seg")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    let tail = db.stats().lsn.tail;
    names.filter(|name| start(name).is_some_and(|start| start < tail)).count() as u64
        * SEGMENT_BYTES
}

/// A requested checkpoint frees the log before it, as far as no record is live there and no snapshot
/// sees one.
#[test]
fn a_requested_checkpoint_frees_log_that_nobody_sees() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // All checkpoints are requested.
        let options = options().tune(|tuning| tuning.checkpoint_bytes(1 << 30));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table = create_table(&db, "t", true);
        let write = |round| (0..4).for_each(|_| overwrite(&db, &table, round, 1));
        // A worker that does not run for a while delays what is freed.
        let checkpoint = || {
            let before = db.stats().log.segments_freed;
            let freed = (0..100).any(|_| {
                once_free(|| block_on(db.checkpoint())).unwrap();
                db.stats().log.segments_freed > before + 3
            });
            assert!(freed, "{:?}", db.stats().log);
        };
        write(1);
        checkpoint();
        let snapshot = block_on(db.snapshot()).unwrap();
        write(2);
        checkpoint();
        for key in 0..KEYS {
            let found = block_on(snapshot.get(&table, &key)).unwrap();
            assert!(found.unwrap() == value(key, 1), "key {key}");
        }
        drop(snapshot);
        write(3);
        checkpoint();
        check(&db, |_| 3);
        db.close().unwrap();
    });
}

#[test]
fn compaction_frees_the_space_of_overwritten_data() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for round in 1..=20 {
            // Every third key keeps its version of the first round.
            overwrite(&db, &table, round, if round == 1 { 1 } else { 3 });
            overwrite(&db, &table, round, 2);
        }
        let rounds = |key: u64| if key.is_multiple_of(2) || key.is_multiple_of(3) { 20 } else { 1 };
        check(&db, rounds);
        let compacted = compact(&db);
        let live = KEYS * (VALUE_BYTES as u64 + 32);
        let after = log_bytes(directory.path(), &db);
        assert!(after <= 3 * live + 10 * SEGMENT_BYTES, "{after} bytes for {live}, {compacted:?}");
        check(&db, rounds);
        assert_eq!(problems(&db), Vec::<String>::new());
        db.close().unwrap();
        drop((db, table));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        check(&db, rounds);
        assert_eq!(problems(&db), Vec::<String>::new());
        assert_eq!(compact(&db).moved, 0);
    });
}

#[test]
fn versions_stay_until_their_reader_ends() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // Everything is evicted, so the reader's versions are read from the segments.
        let options = options()
            .memory_budget(RING_BYTES + 1)
            .tune(|tuning| tuning.log_ring_bytes(64 << 20).checkpoint_bytes(1 << 40));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        overwrite(&db, &table, 1, 1);
        let reader = block_on(db.begin()).unwrap();
        for round in 2..=12 {
            overwrite(&db, &table, round, 1);
        }
        let other = db.clone();
        let compaction = std::thread::spawn(move || compact(&other));
        let under_way =
            || matches!(block_on(db.checkpoint()), Err(Error::Busy(BusyWith::Checkpoint)));
        while !under_way() {
            std::thread::yield_now();
        }
        for key in 0..KEYS {
            let bytes = block_on(reader.get(&table, &key)).unwrap().unwrap();
            assert!(bytes[..] == value(key, 1)[..], "key {key}");
        }
        assert!(under_way() && !compaction.is_finished(), "it waits for the reader to be over");
        block_on(reader.commit()).unwrap();
        let compacted = compaction.join().unwrap();
        assert!(compacted.segments > 0, "{compacted:?}");
        check(&db, |_| 12);
    });
}

/// While snapshots are open, the log keeps only what they see, not what was logged and superseded
/// since.
#[test]
fn snapshots_keep_only_segments_that_they_see() {
    /// The versions of three rounds, spare segments, and some intervals between checkpoints. All
    /// rounds take about twice as much.
    const BOUND: u64 = 10 << 20;
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            // Everything is evicted, so the snapshots' versions are read from the segments.
            let options = options().memory_budget(RING_BYTES + (1 << 20));
            let options = options.tune(|tuning| tuning.log_ring_bytes(RING_BYTES as usize));
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, [u8]> = create_table(&db, "t", paged);
            overwrite(&db, &table, 1, 1);
            let old = block_on(db.snapshot()).unwrap();
            let reads = |snapshot: &Snapshot, round: u64| {
                for key in (0..KEYS).step_by(7) {
                    let found = block_on(snapshot.get(&table, &key)).unwrap().unwrap();
                    assert!(found[..] == value(key, round)[..], "key {key} of round {round}");
                }
            };
            for round in 2..=24 {
                let young = block_on(db.snapshot()).unwrap();
                overwrite(&db, &table, round, 1);
                while log_bytes(directory.path(), &db) > BOUND {
                    // Checkpoints and the compactions after them become due by logging.
                    overwrite(&db, &table, round, 10);
                }
                reads(&young, round - 1);
                reads(&old, 1);
            }
            check(&db, |_| 24);
            drop(old);
            assert_eq!(problems(&db), Vec::<String>::new());
            db.close().unwrap();
        }
    });
}

/// Tests an automatic compaction, and a requested one, whose caller gets an error.
#[test]
fn closing_ends_a_waiting_compaction() {
    for asked in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let due = if asked { 1 << 40 } else { 1 << 20 };
            let options = options().tune(|tuning| tuning.checkpoint_bytes(due));
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
            let reader = block_on(db.begin()).unwrap();
            for round in 1..=10 {
                overwrite(&db, &table, round, 1);
            }
            let other = db.clone();
            let compaction = asked.then(|| std::thread::spawn(move || block_on(other.compact())));
            // No other operation waits for the end of the reader.
            while db.stats().suspensions.grace_period == 0 {
                std::thread::yield_now();
            }
            let freed = db.stats().log.segments_freed;
            db.close().unwrap();
            if let Some(compaction) = compaction {
                let compacted = compaction.join().unwrap().unwrap();
                assert_eq!((compacted.segments, compacted.moved), (0, 0), "it was waiting");
            }
            assert_eq!(db.stats().log.segments_freed, freed, "the reader may see what is in them");
            drop((reader, db, table));
            let db = Database::open(directory.path(), options).unwrap().watched();
            check(&db, |_| 10);
        });
    }
}

/// The phase of a compaction when the database is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Anywhere,
    /// It writes its checkpoint.
    Checkpoint,
    /// The checkpoint is complete.
    Named,
    /// It has freed a segment.
    Freed,
    Done,
}

/// The progress of a compaction, as seen from outside.
#[derive(PartialEq, Eq)]
struct Seen {
    files: Vec<PathBuf>,
    freed: u64,
}

impl Seen {
    fn of(directory: &Path, db: &Database) -> Self {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint"));
        files.sort();
        Self { files, freed: db.stats().log.segments_freed }
    }
}

impl Place {
    fn is_reached(self, before: &Seen, now: &Seen) -> bool {
        let unfinished = |path: &PathBuf| path.ends_with("checkpoint.new");
        match self {
            Self::Anywhere => true,
            Self::Checkpoint => now.files.iter().any(unfinished),
            Self::Named => now.files != before.files && !now.files.iter().any(unfinished),
            Self::Freed => now.freed > before.freed,
            Self::Done => false,
        }
    }
}

#[test]
fn closing_during_a_compaction_frees_no_live_data() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // Only explicit compactions, which pass over the records on disk.
        let options = options()
            .memory_budget(RING_BYTES + 1)
            .tune(|tuning| tuning.log_ring_bytes(64 << 20).checkpoint_bytes(1 << 40));
        let (mut round, mut cut_short) = (0, 0);
        let places = [Place::Anywhere, Place::Checkpoint, Place::Named, Place::Freed, Place::Done];
        // Repeats until closing has interrupted a compaction in progress.
        for place in places.into_iter().cycle() {
            if cut_short > 0 && place == Place::Anywhere {
                break;
            }
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.open_or_create_table("t")).unwrap();
            for _ in 0..6 {
                round += 1;
                // Every third key keeps its version of the first round.
                overwrite(&db, &table, round, if round == 1 { 1 } else { 3 });
                overwrite(&db, &table, round, 2);
            }
            let before = Seen::of(directory.path(), &db);
            let other = db.clone();
            let compaction = std::thread::spawn(move || block_on(other.compact()));
            let mut now = Seen::of(directory.path(), &db);
            while !place.is_reached(&before, &now) && !compaction.is_finished() {
                now = Seen::of(directory.path(), &db);
            }
            db.close().unwrap();
            match compaction.join().unwrap() {
                // A compaction that completes frees segments.
                Ok(done) => cut_short += u64::from(now != before && done.segments == 0),
                Err(Error::Closed) => assert!(now == before, "what has begun has a result"),
                Err(error) => panic!("{error}"),
            }
            drop((db, table));
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            check(
                &db,
                |key| if key.is_multiple_of(2) || key.is_multiple_of(3) { round } else { 1 },
            );
            assert_eq!(problems(&db), Vec::<String>::new());
            db.close().unwrap();
        }
    });
}

/// Returns the file of the segment that starts at `start`, by its header, because its name may
/// differ.
fn segment_file(directory: &Path, start: u64) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut segments = files.filter(|path| path.extension().is_some_and(|end| end == "seg"));
    let found = segments.find(|path| {
        let mut header = [0; 48];
        File::open(path).unwrap().read_exact(&mut header).unwrap();
        header[40..] == start.to_le_bytes()
    });
    found.expect("records are in it")
}

#[test]
fn a_missing_segment_is_found_when_the_database_is_opened() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for round in 1..=8 {
            overwrite(&db, &table, round, 1);
        }
        compact(&db);
        let tail = db.stats().lsn.tail;
        db.close().unwrap();
        drop((db, table));
        // A segment with records, before the checkpoint or after it.
        let segment = segment_file(directory.path(), (tail / SEGMENT_BYTES - 1) * SEGMENT_BYTES);
        std::fs::remove_file(segment).unwrap();
        let told = Database::open(directory.path(), options()).unwrap_err().to_string();
        assert!(told.contains("missing"), "{told}");
        // The log cannot be replayed without the checkpoint either.
        let files = std::fs::read_dir(directory.path()).unwrap();
        let names = files.map(|file| file.unwrap().path());
        for checkpoint in names.filter(|name| name.extension().is_some_and(|end| end == "ckpt")) {
            std::fs::remove_file(checkpoint).unwrap();
        }
        let told = Database::open(directory.path(), options()).unwrap_err().to_string();
        assert!(told.contains("missing"), "{told}");
    });
}
