//! A failed log returns an error to all waiters; and readers of the log exclude operations that
//! free it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::{Watched, with_limit};
use braiddb::{BusyWith, Database, Error, Options, Table, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 600;
const SEGMENT: u64 = 64 << 10;

type Records = Table<u64, [u8]>;

/// A segment cannot be created because its name is taken. A worker finds this in its turn and not
/// with a completion, while transactions of other workers wait for the log to grow and their
/// workers sleep.
#[test]
fn a_failed_segment_creation_fails_all_waiting_commits() {
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
        // The names of segment files during their creation.
        let blocked: Vec<_> = (24..64)
            .map(|number| directory.path().join(format!("wal-{:016x}.seg.new", number * SEGMENT)))
            .collect();
        blocked.iter().for_each(|name| std::fs::create_dir(name).unwrap());
        // New records: replaced ones would be compacted, and their files would become new segments.
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
                            Err(Error::Io(error)) => {
                                let told = error.to_string();
                                assert!(told.contains("cannot grow"), "{told}");
                                assert!(told.contains("of this name is moved away"), "{told}");
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
        // The log grows when the cause is removed.
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
        // An open transaction keeps a compaction from completing.
        let open = block_on(db.begin()).unwrap();
        std::thread::scope(|scope| {
            let compaction = scope.spawn(|| {
                loop {
                    match block_on(db.compact()) {
                        // The log was being read at that time.
                        Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
                        compacted => break compacted,
                    }
                }
            });
            // Refused at some time, because the compaction does not end; otherwise the time limit
            // expires.
            while !matches!(db.log_blocks(0, 10), Err(Error::Busy(BusyWith::Checkpoint))) {
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
