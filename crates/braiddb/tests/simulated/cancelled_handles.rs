//! The creation of snapshots, the creation, publication and discarding of staged tables, and
//! transactions that are executed, applied or returned early, are dropped after each number of polls.
//! No versions are kept for an abandoned snapshot. A staged table is published completely or not at
//! all, and leaves nothing after a reopening. So does a transaction.

use crate::common::{Watched, with_limit};
use crate::polls::poll_at_most;
use crate::settled::poll_settled;
use braiddb::simulation::{SimulatedDisk, block_on};
use braiddb::{Database, Error, Misuse, Options, StagedTable, Table, Transaction, Tuning};

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

/// Creates an empty table in a new database on a disk.
fn empty(disk: &SimulatedDisk) -> (Database, Numbers) {
    let db = open(disk, 1);
    let table = block_on(db.create_table("numbers")).unwrap();
    (db, table)
}

/// Puts all records in one transaction.
fn puts_all(table: &Numbers) -> impl AsyncFn(&Transaction) -> Result<(), Error> + Send + 'static {
    let table = table.clone();
    async move |tx: &Transaction| {
        for key in 0..RECORDS {
            tx.put(&table, &key, &7).await?;
        }
        Ok(())
    }
}

/// A commit that is returned before it is durable, and the wait until it is durable.
#[test]
fn a_cancelled_visible_transaction_is_whole_or_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        let (mut waits, mut nothing) = (0, 0);
        at_every_poll(|disk, polls| {
            let (db, table) = empty(disk);
            let run = db.transaction().run_visible(puts_all(&table));
            let Some(ran) = poll_settled(disk, run, polls) else {
                let there = block_on(db.len(&table)).unwrap();
                assert!(there == 0 || there == RECORDS, "{there}");
                nothing += u64::from(there == 0);
                // No version in flight is left.
                put_all(&db, &table, 8);
                drop(table);
                assert!(whole_or_nothing(disk, db));
                return true;
            };
            let (_, ticket) = ran.unwrap();
            let mut polls = 0;
            while poll_settled(disk, ticket.durable(), polls).transpose().unwrap().is_none() {
                (polls, waits) = (polls + 1, waits + 1);
            }
            assert!(ticket.is_durable());
            drop((table, ticket));
            assert!(whole_or_nothing(disk, db));
            false
        });
        assert!(waits > 0 && nothing > 0, "{waits}, {nothing}");
    });
}

/// An execution leaves nothing, however it ends, and neither does the application of its writes if the
/// application is dropped.
#[test]
fn cancelled_executions_and_applications_leave_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        at_every_poll(|disk, polls| {
            let (db, table) = empty(disk);
            let executed = poll_settled(disk, db.execute(puts_all(&table)), polls);
            assert_eq!(block_on(db.len(&table)).unwrap(), 0);
            let given_up = executed.is_none();
            if let Some(proposal) = executed {
                let writes = proposal.unwrap().writes;
                let mut dropped = 0;
                for polls in 1.. {
                    let writes = writes.clone();
                    let applied = db.run_blocking(async move |tx| {
                        let done = poll_at_most(tx.apply(&writes), polls).await;
                        done.transpose().map(drop)
                    });
                    match applied {
                        Ok(()) => break,
                        Err(Error::Misuse(Misuse::IncompleteApply)) => dropped += 1,
                        Err(error) => panic!("{error}"),
                    }
                    assert_eq!(block_on(db.len(&table)).unwrap(), 0);
                }
                assert!(dropped > 0, "an application has several polls");
            }
            put_all(&db, &table, 8);
            drop(table);
            assert!(whole_or_nothing(disk, db));
            given_up
        });
    });
}
