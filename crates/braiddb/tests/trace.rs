//! Traces: what each slot ran and waited for, in order, with nothing missing between, and bounded.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use braiddb::{Activity, Database, Error, Options, Table, Trace, TraceSlice, WaitCause};
use common::{Watched, with_limit};
use futures_util::future::join_all;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const TRANSACTIONS: u64 = 200;

type Records = Table<u64, u64>;

/// As many transactions, side by side, each of which writes a record.
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

/// The slices of each worker and slot, in the order in which they began.
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

/// Asserts that none begins before the one ahead of it has ended.
fn assert_one_after_the_other(slices: &[TraceSlice]) {
    for pair in slices.windows(2) {
        assert!(end(&pair[0]) <= pair[1].begin, "{pair:?}");
    }
}

#[test]
fn a_trace_says_what_each_slot_ran_and_waited_for() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).trace(1 << 20);
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
                    // It waits at once, and goes on at once: no moment of it is missing.
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
fn a_trace_shows_what_is_being_waited_for() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1).trace(1000)).unwrap().watched();
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
                // What comes next makes the worker take a turn.
                block_on(db.put(&table, &1, &1)).unwrap();
            }
            db.close().unwrap();
        });
    });
}

#[test]
fn the_latest_of_a_trace_are_kept() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1).trace(100)).unwrap().watched();
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
fn a_trace_is_written_for_viewers() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).trace(1 << 20);
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
