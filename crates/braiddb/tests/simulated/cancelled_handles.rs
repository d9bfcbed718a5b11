//! The creation of snapshots, and the creation, publication and discarding of staged tables, are
//! dropped after each number of polls. No versions are kept for an abandoned snapshot. A staged
//! table is published completely or not at all, and leaves nothing after a reopening.

use crate::common::{Watched, with_limit};
use crate::settled::poll_settled;
use braiddb::simulation::{SimulatedDisk, block_on};
use braiddb::{Database, Error, Options, StagedTable, Table, Tuning};

type Numbers = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 600;
/// More polls than any of them needs, if all pending operations end before each poll.
const MAX_POLLS: usize = 100;

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(24 << 10));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

fn put_all(db: &Database, table: &Numbers, value: u64) {
    let table = table.clone();
    db.run_blocking(async move |tx| {
        for key in 0..RECORDS {
            tx.put(&table, &key, &value).await?;
        }
        Ok(())
    })
    .unwrap();
}

/// Creates a staged table with records in a new database on a disk.
fn staged(disk: &SimulatedDisk) -> (Database, StagedTable<u64, u64>) {
    let db = open(disk, 1);
    let staged = block_on(db.stage_table::<u64, u64>("numbers")).unwrap();
    put_all(&db, staged.table(), 7);
    (db, staged)
}

/// Reopens the database and checks that the table exists completely or not at all. Returns true if
/// it exists.
fn whole_or_nothing(disk: &SimulatedDisk, db: Database) -> bool {
    db.close().unwrap();
    drop(db);
    let db = open(disk, 2);
    disk.settle();
    let there = match block_on(db.open_table::<u64, u64>("numbers")) {
        Ok(table) => {
            assert_eq!(block_on(db.len(&table)).unwrap(), RECORDS);
            true
        }
        Err(Error::TableNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let report = db.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    // The table's row and its records.
    assert_eq!(report.records, if there { RECORDS + 1 } else { 0 });
    db.close().unwrap();
    there
}

/// The rounds of [`at_every_poll`]: work that a worker received may end before its first poll.
const ROUNDS: u64 = 3;

/// Runs `attack` with more and more polls, on a new disk each, until it returns that nothing was
/// dropped. Repeats this a few times, because the number of polls depends on the order of threads.
fn at_every_poll(mut attack: impl FnMut(&SimulatedDisk, usize) -> bool) {
    for round in 0..ROUNDS {
        let over = (0..MAX_POLLS).find(|&polls| {
            let disk = SimulatedDisk::new(round << 32 | polls as u64);
            !attack(&disk, polls)
        });
        let over = over.unwrap_or_else(|| panic!("it is not over after {MAX_POLLS} polls"));
        assert!(over > 0, "it was over before it was polled");
    }
}

#[test]
fn cancelled_staging_leaves_no_table() {
    with_limit(LIMIT_SECONDS, |_| {
        at_every_poll(|disk, polls| {
            let db = open(disk, 1);
            let first = poll_settled(disk, db.stage_table::<u64, u64>("numbers"), polls);
            let given_up = first.is_none();
            // The name is free in any case.
            let second = block_on(db.stage_table::<u64, u64>("numbers")).unwrap();
            put_all(&db, second.table(), 7);
            if let Some(first) = first {
                put_all(&db, first.unwrap().table(), 8);
            }
            block_on(second.publish()).unwrap();
            assert!(whole_or_nothing(disk, db));
            given_up
        });
    });
}

#[test]
fn a_cancelled_publication_is_atomic() {
    with_limit(LIMIT_SECONDS, |_| {
        for again in [false, true] {
            let (mut whole, mut nothing) = (0, 0);
            at_every_poll(|disk, polls| {
                let (db, staged) = staged(disk);
                let published = poll_settled(disk, staged.publish(), polls);
                if let Some(published) = &published {
                    published.as_ref().unwrap();
                } else if again {
                    match block_on(staged.publish()) {
                        Ok(_) => {}
                        // The first one continues; its name may be taken without harm.
                        Err(Error::TableExists(name)) => assert_eq!(name, "numbers"),
                        Err(error) => panic!("{error}"),
                    }
                }
                drop(staged);
                let there = whole_or_nothing(disk, db);
                assert!(there || published.is_none() && !again, "it was told, or called again");
                if there {
                    whole += 1
                } else {
                    nothing += 1
                }
                published.is_none()
            });
            assert!(whole > 0);
            assert_eq!(again, nothing == 0);
        }
    });
}

#[test]
fn a_cancelled_discard_continues() {
    with_limit(LIMIT_SECONDS, |_| {
        at_every_poll(|disk, polls| {
            let (db, staged) = staged(disk);
            let discarded = poll_settled(disk, staged.discard(), polls);
            disk.settle();
            if polls > 0 {
                let published = block_on(staged.publish());
                assert!(matches!(published, Err(Error::TableNotFound(_))), "{published:?}");
                assert_eq!(db.check().unwrap().records, 0, "it went on by itself");
            }
            assert!(!whole_or_nothing(disk, db));
            discarded.is_none()
        });
    });
}

/// A dropped snapshot holds nothing: versions are freed, and compaction, which respects snapshots,
/// frees segments.
#[test]
fn a_cancelled_snapshot_holds_no_versions() {
    with_limit(LIMIT_SECONDS, |_| {
        at_every_poll(|disk, polls| {
            let db = open(disk, 1);
            let table: Numbers = block_on(db.create_table("numbers")).unwrap();
            put_all(&db, &table, 0);
            let snapshot = poll_settled(disk, db.snapshot(), polls);
            let given_up = snapshot.is_none();
            drop(snapshot);
            for value in 1..30 {
                put_all(&db, &table, value);
            }
            disk.settle();
            block_on(db.checkpoint()).unwrap();
            block_on(db.compact()).unwrap();
            assert!(db.stats().log.segments_freed > 0);
            // Each commit frees the garbage of earlier ones.
            let mut value = 30;
            while db.stats().versions_waiting > 4 * RECORDS {
                put_all(&db, &table, value);
                value += 1;
            }
            db.close().unwrap();
            given_up
        });
    });
}

/// After a dropped read of a snapshot, later reads see the same contents.
#[test]
fn cancelled_snapshot_reads_affect_no_other_task() {
    with_limit(LIMIT_SECONDS, |_| {
        at_every_poll(|disk, polls| {
            let db = open(disk, 1);
            let table: Numbers = block_on(db.create_table("numbers")).unwrap();
            put_all(&db, &table, 1);
            let snapshot = block_on(db.snapshot()).unwrap();
            put_all(&db, &table, 2);
            let sum = |table: Numbers| {
                snapshot.run(async move |tx| {
                    let (mut scan, mut sum) = (tx.scan(&table, ..)?, 0);
                    while let Some((_, value)) = scan.next().await? {
                        sum += value;
                    }
                    Ok(sum)
                })
            };
            let first = poll_settled(disk, sum(table.clone()), polls);
            assert_eq!(block_on(snapshot.get(&table, &7)).unwrap(), Some(1));
            assert_eq!(block_on(sum(table.clone())).unwrap(), RECORDS);
            drop(snapshot);
            db.close().unwrap();
            first.is_none()
        });
    });
}
