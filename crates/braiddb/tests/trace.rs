//! Traces: the activities and waits of each slot, in order, without gaps, in bounded memory.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use braiddb::trace::{Activity, Trace, TraceSlice, WaitCause};
use braiddb::{Database, Error, Options, Table, Tuning};
use common::{Watched, with_limit};
use futures_util::future::join_all;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const TRANSACTIONS: u64 = 200;

type Records = Table<u64, u64>;

/// Runs concurrent transactions, each of which writes a record.
fn write_all(db: &Database) {
    let table: Records = block_on(db.open_or_create_table("records")).unwrap();
    let writes = (0..TRANSACTIONS).map(|number| {
        let table = table.clone();
        db.run(async move |tx| {
            tx.get(&table, &number).await?;
            tx.put(&table, &number, &number).await
        })
    });
    for written in block_on(join_all(writes)) {
        written.unwrap();
    }
}

/// Returns the slices of each worker and slot, in order of their beginnings.
fn lanes(trace: &Trace) -> BTreeMap<(usize, Option<usize>), Vec<TraceSlice>> {
    let mut lanes = BTreeMap::<_, Vec<_>>::new();
    for slice in trace.slices() {
        lanes.entry((slice.worker, slice.slot)).or_default().push(*slice);
    }
    lanes
}

fn end(slice: &TraceSlice) -> Duration {
    slice.begin + slice.length
}

/// Asserts that no slice begins before the previous one has ended.
fn assert_one_after_the_other(slices: &[TraceSlice]) {
    for pair in slices.windows(2) {
        assert!(end(&pair[0]) <= pair[1].begin, "{pair:?}");
    }
}

#[test]
fn a_trace_records_the_work_and_the_waits_of_each_slot() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).tuning(Tuning::default().trace(1 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let before = db.stats();
        write_all(&db);
        db.close().unwrap();
        let trace = db.trace();
        let mut commits = 0;
        for ((_, slot), slices) in lanes(&trace) {
            assert_one_after_the_other(&slices);
            if slot.is_none() {
                let of_worker = [Activity::Housekeeping, Activity::Sleeps];
                assert!(slices.iter().all(|slice| of_worker.contains(&slice.activity)));
                continue;
            }
            for pair in slices.windows(2) {
                let [former, latter] = [pair[0], pair[1]];
                match former.activity {
                    // Its wait begins immediately and so does its resumption: the trace has no gap.
                    Activity::Runs => {
                        assert!(matches!(latter.activity, Activity::Waits(_)), "{pair:?}");
                        assert_eq!(end(&former), latter.begin);
                    }
                    Activity::Waits(cause) => {
                        assert!(matches!(latter.activity, Activity::Runs | Activity::Ends));
                        assert_eq!(end(&former), latter.begin);
                        commits += u64::from(cause == WaitCause::Commit);
                    }
                    Activity::Ends => {
                        assert!(matches!(latter.activity, Activity::Runs | Activity::Ends));
                    }
                    other => panic!("a slot {other:?}"),
                }
            }
            assert_eq!(slices.last().unwrap().activity, Activity::Ends);
        }
        // Each worker does one thing at a time.
        for worker in 0..2 {
            let runs = |slice: &&TraceSlice| {
                slice.worker == worker && !matches!(slice.activity, Activity::Waits(_))
            };
            let slices: Vec<_> = trace.slices().iter().filter(runs).copied().collect();
            assert!(!slices.is_empty());
            assert_one_after_the_other(&slices);
        }
        assert!(commits >= TRANSACTIONS, "{commits} waits for a commit");
        let polls = |ends: bool| {
            let is = |slice: &&TraceSlice| match slice.activity {
                Activity::Ends => ends,
                Activity::Runs => !ends,
                _ => false,
            };
            trace.slices().iter().filter(is).count() as u64
        };
        let after = db.stats();
        assert!(polls(true) >= after.committed - before.committed);
        assert!(polls(false) >= after.suspensions.commit - before.suspensions.commit);
    });
}

#[test]
fn a_trace_shows_waits_in_progress() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(
            Options::default().workers(1).tuning(Tuning::default().trace(1000)),
        )
        .unwrap()
        .watched();
        let table: Records = block_on(db.open_or_create_table("records")).unwrap();
        let waits = db.run(async |_| {
            std::future::pending::<()>().await;
            Ok(())
        });
        let waits_outside =
            |slice: &TraceSlice| slice.activity == Activity::Waits(WaitCause::Foreign);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(matches!(block_on(waits), Err(Error::Closed))));
            while !db.trace().slices().iter().any(waits_outside) {
                // The next operation makes the worker take a turn.
                block_on(db.put(&table, &1, &1)).unwrap();
            }
            db.close().unwrap();
        });
    });
}

#[test]
fn a_trace_keeps_the_newest_slices() {
    with_limit(LIMIT_SECONDS, |_| {
        let db =
            Database::in_memory(Options::default().workers(1).tuning(Tuning::default().trace(100)))
                .unwrap()
                .watched();
        write_all(&db);
        db.close().unwrap();
        let trace = db.trace();
        let noted = |slice: &&TraceSlice| !matches!(slice.activity, Activity::Waits(_));
        assert_eq!(trace.slices().iter().filter(noted).count(), 100);

        let untraced = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        write_all(&untraced);
        untraced.close().unwrap();
        assert_eq!(untraced.trace(), Trace::default());
    });
}

#[test]
fn a_trace_is_written_in_the_format_of_viewers() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).tuning(Tuning::default().trace(1 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        write_all(&db);
        db.close().unwrap();
        let (trace, mut file) = (db.trace(), Vec::new());
        trace.write_chrome(&mut file).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let is = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
        assert_eq!(is("X").count(), trace.slices().len());
        for (event, slice) in is("X").zip(trace.slices()) {
            assert_eq!(event["pid"], slice.worker);
            assert_eq!(event["tid"], slice.slot.map_or(0, |slot| slot + 1));
            assert_eq!(event["name"], slice.activity.name());
            let nanos = |field: &str| (event[field].as_f64().unwrap() * 1000.0).round() as u128;
            assert_eq!(nanos("ts"), slice.begin.as_nanos());
            assert_eq!(nanos("dur"), slice.length.as_nanos());
        }
        let names = is("M").filter(|event| event["name"] == "thread_name").count();
        assert_eq!(names, lanes(&trace).len());
        assert_eq!(is("M").count(), names + 2);
    });
}

/// A wait ends when its caller drops it. For transactions that the closing database drops, the
/// trace records the drop, and their slot is idle from then on.
#[test]
fn waits_end_when_their_transaction_is_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(
            Options::default().workers(1).tuning(Tuning::default().trace(1 << 16)),
        )
        .unwrap()
        .watched();
        let table: Records = block_on(db.open_or_create_table("records")).unwrap();
        let never = || db.run(async |_| -> Result<(), Error> { std::future::pending().await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // When a later request has ended, the earlier one has begun and waits.
        let put = || block_on(db.put(&table, &1, &1)).unwrap();
        let mut given_up = Box::pin(never());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        put();
        drop(given_up);
        let mut closed = Box::pin(never());
        assert!(closed.as_mut().poll(&mut context).is_pending());
        put();
        let waits = |slice: &&TraceSlice| slice.activity == Activity::Waits(WaitCause::Foreign);
        let mut before = db.trace();
        // The worker ends the first wait after some time.
        while !before.slices().iter().any(|slice| waits(&slice)) {
            put();
            before = db.trace();
        }
        db.close().unwrap();
        assert!(matches!(block_on(closed), Err(Error::Closed)));
        let trace = db.trace();
        let dropped = |slice: &&TraceSlice| slice.activity == Activity::Dropped;
        let dropped: Vec<_> = trace.slices().iter().filter(dropped).collect();
        let [dropped] = dropped[..] else { panic!("one was dropped: {dropped:?}") };
        for (lane, slices) in lanes(&trace) {
            assert_one_after_the_other(&slices);
            let Some(slot) = lane.1 else { continue };
            let last = slices.last().unwrap();
            let ends = [Activity::Ends, Activity::Dropped];
            assert!(ends.contains(&last.activity), "slot {slot} ends with {last:?}");
            for pair in slices.windows(2) {
                if pair[1].activity == Activity::Dropped {
                    assert_eq!(pair[0].activity, Activity::Waits(WaitCause::Foreign));
                    assert_eq!(end(&pair[0]), dropped.begin);
                }
            }
        }
    });
}

/// Several threads take traces while transactions run and the database is closed.
#[test]
fn traces_are_bounded_and_in_order_while_the_database_is_closed() {
    const MOST: usize = 500;
    with_limit(LIMIT_SECONDS, |_| {
        for round in 0..5 {
            let options = Options::default().workers(2).tuning(Tuning::default().trace(MOST));
            let db = Database::in_memory(options).unwrap().watched();
            let over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !over.load(std::sync::atomic::Ordering::SeqCst) {
                            assert_bounded(&db.trace(), MOST);
                        }
                    });
                }
                let client = scope.spawn(|| {
                    let table: Records = block_on(db.open_or_create_table("records")).unwrap();
                    let mut written = 0_u64;
                    while block_on(db.put(&table, &(written % 7), &written)).is_ok() {
                        written += 1;
                    }
                    written
                });
                while db.stats().committed < 200 * round + 1 {
                    std::thread::yield_now();
                }
                db.close().unwrap();
                client.join().unwrap();
                over.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            let trace = db.trace();
            assert!(!trace.slices().is_empty());
            assert_bounded(&trace, MOST);
            assert_eq!(trace, db.trace(), "nothing comes after the end");
        }
    });
}

fn assert_bounded(trace: &Trace, most: usize) {
    for worker in 0..2 {
        let noted = |slice: &&TraceSlice| {
            slice.worker == worker && !matches!(slice.activity, Activity::Waits(_))
        };
        assert!(trace.slices().iter().filter(noted).count() <= most);
    }
    lanes(trace).values().for_each(|slices| assert_one_after_the_other(slices));
}
