//! A log that cannot go on tells everybody who waits for it; and what reads the log keeps away from
//! what frees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Options, Table, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 600;
const SEGMENT: u64 = 64 << 10;

type Records = Table<u64, [u8]>;

/// A segment cannot be created, as something else has its name: found in a worker's turn and not with
/// a completion, while transactions of other workers wait for the log to grow and their workers sleep.
#[test]
fn a_segment_that_cannot_be_created_is_refused_to_all_that_wait_for_it() {
    const CLIENTS: u64 = 6;
    const ROUNDS: u64 = 300;
    with_limit(LIMIT_SECONDS, |limit| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(3).tuning(Tuning::default().log_segment_bytes(SEGMENT));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let (committed, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let shown = (committed.clone(), refused.clone());
        limit.on_timeout("committed, refused", move || format!("{shown:?}"));
        let table: Records = block_on(db.create_table("records")).unwrap();
        // The names that segments' files have while they are made.
        let blocked: Vec<_> = (24..64)
            .map(|number| directory.path().join(format!("wal-{:016x}.seg.new", number * SEGMENT)))
            .collect();
        blocked.iter().for_each(|name| std::fs::create_dir(name).unwrap());
        // New records: what is replaced would be compacted, and its files become new segments.
        let insert = |key: u64| {
            let table = table.clone();
            db.run_blocking(async move |tx| tx.insert(&table, &key, &[1; 20_000]).await)
        };
        let meeting = Barrier::new(CLIENTS as usize);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (meeting, insert) = (&meeting, &insert);
                let (committed, refused) = (&committed, &refused);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        meeting.wait();
                        match insert(round * CLIENTS + client) {
                            Ok(()) => committed.fetch_add(1, Ordering::Relaxed),
                            Err(Error::Log(error)) => {
                                let told = error.to_string();
                                assert!(told.contains("cannot grow"), "{told}");
                                assert!(told.contains("what has the name is moved away"), "{told}");
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
        });
        let (committed, refused) =
            (committed.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
        assert_eq!(committed + refused, ROUNDS * CLIENTS);
        assert!(
            committed > CLIENTS && refused > ROUNDS,
            "{committed} committed, {refused} refused"
        );
        assert!(db.stats().log.extensions_refused > 0);
        // Once the cause is gone, the log grows.
        blocked.iter().for_each(|name| std::fs::remove_dir(name).unwrap());
        for key in ROUNDS * CLIENTS..(ROUNDS + 1) * CLIENTS {
            insert(key).unwrap();
        }
        db.close().unwrap();
    });
}

#[test]
fn the_log_is_not_read_while_segments_may_be_freed() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(SEGMENT));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for key in 0..40 {
            let table = table.clone();
            db.run_blocking(async move |tx| tx.put(&table, &(key % 2), &[1; 30_000]).await)
                .unwrap();
        }
        // A transaction that is open keeps a compaction from its end.
        let open = block_on(db.begin()).unwrap();
        std::thread::scope(|scope| {
            let compaction = scope.spawn(|| {
                loop {
                    match block_on(db.compact()) {
                        // The log was being read just then.
                        Err(Error::CheckpointUnderWay) => std::thread::yield_now(),
                        compacted => break compacted,
                    }
                }
            });
            // Refused sooner or later, as the compaction does not end; else the time runs out.
            while !matches!(db.log_blocks(0, 10), Err(Error::CheckpointUnderWay)) {
                std::thread::yield_now();
            }
            block_on(open.abort()).unwrap();
            let compacted = compaction.join().unwrap().unwrap();
            assert!(compacted.segments > 0, "segments were freed: {compacted:?}");
        });
        let last = table.clone();
        db.run_blocking(async move |tx| tx.put(&last, &0, &[1; 30_000]).await).unwrap();
        let (blocks, _) = db.log_blocks(0, 10).unwrap();
        assert!(!blocks.is_empty(), "what is left is read from its first block on");
        db.close().unwrap();
    });
}
