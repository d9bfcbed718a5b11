//! Tests every option at its limits. A refused value is reported with its name, value and limits.
//! With an accepted value the database opens, works, closes and reopens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::{
    BusyWith, Certifier, Database, DeviceKind, Durability, Error, Isolation, MemoryLimit, Misuse,
    Options, Overload, Policy, Table, TableOptions, Transaction, Tuning, Width,
};
use futures_util::future::join_all;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 900;

type Records = Table<u64, [u8]>;
type Set = Box<dyn Fn(Options) -> Options>;

struct Case {
    field: &'static str,
    value: u64,
    set: Set,
    /// The minimum and maximum if this value is refused.
    refused: Option<[u64; 2]>,
}

/// Returns the values of a field at and beyond its limits; `odd` are within the limits but refused.
fn cases(
    field: &'static str,
    [least, most]: [u64; 2],
    odd: &[u64],
    set: fn(Tuning, u64) -> Tuning,
) -> Vec<Case> {
    option_cases(field, [least, most], odd, move |options, value| {
        options.tune(|tuning| set(tuning, value))
    })
}

fn option_cases(
    field: &'static str,
    [least, most]: [u64; 2],
    odd: &[u64],
    set: impl Fn(Options, u64) -> Options + Copy + 'static,
) -> Vec<Case> {
    let mut values = vec![0, 1, least, most, u64::MAX];
    values.extend(least.checked_sub(1));
    values.extend(most.checked_add(1));
    values.extend(odd);
    values.sort_unstable();
    values.dedup();
    let case = |value| {
        let refused = !(least..=most).contains(&value) || odd.contains(&value);
        let refused = refused.then_some([least, most]);
        Case { field, value, set: Box::new(move |options| set(options, value)), refused }
    };
    values.into_iter().map(case).collect()
}

fn all_cases() -> Vec<Case> {
    const RING: [u64; 2] = [32 << 20, 2 << 30];
    const SEGMENT: [u64; 2] = [64 << 10, 1 << 30];
    let all = u64::MAX;
    const PAGE: [u64; 2] = [4096, 64 << 10];
    let odd_segments = [(64 << 10) + 1, (64 << 10) + 512];
    let lists = [
        option_cases("workers", [1, 256], &[], |o, v| o.workers(v as usize)),
        cases("hot_width", [1, 1024], &[], |t, v| t.hot_width(Width::Fixed(v as usize))),
        cases("cold_width", [1, 1 << 14], &[], |t, v| t.cold_width(v as usize)),
        cases("read_depth", [1, 1 << 12], &[], |t, v| t.read_depth(v as usize)),
        cases("page_bytes", PAGE, &[4097, 12 << 10], |t, v| t.page_bytes(v as usize)),
        cases("trace", [0, 1 << 24], &[], |t, v| t.trace(v as usize)),
        cases("max_open", [64, 1 << 14], &[], |t, v| t.max_open(v as usize)),
        cases("log_ring_bytes", RING, &[65 << 20], |t, v| t.log_ring_bytes(v as usize)),
        cases("log_segment_bytes", SEGMENT, &odd_segments, |t, v| t.log_segment_bytes(v)),
        cases("flush_unit", [0, all], &[], |t, v| t.flush_unit(v)),
        cases("checkpoint_bytes", [32 << 10, all], &[], |t, v| t.checkpoint_bytes(v)),
        cases("version_bytes", [4 << 10, all], &[], |t, v| t.version_bytes(v)),
    ];
    lists.into_iter().flatten().collect()
}

/// The options whose limits other tests check: in this file, unless noted.
const ELSEWHERE: [&str; 17] = [
    "memory_budget",
    "page_frames",
    "interactive_idle",
    "interactive_age",
    "pin",
    "policy",
    "overload",
    "durability",
    "isolation",
    "certifier",
    "device",
    // Tests of the log.
    "hole_tracker",
    // Tests of tables whose records expire.
    "wall_clock",
    // Tests of the command.
    "socket",
    // Tests of reopening and of read-only databases.
    "create",
    "read_only",
    // The fields of the tuning follow those of the options.
    "tuning",
];

/// Returns the names of the fields in the debug output of a value.
fn fields(value: &impl std::fmt::Debug) -> Vec<String> {
    let printed = format!("{value:#?}");
    let fields = printed.lines().filter_map(|line| {
        // Fields of nested values are indented deeper.
        let field =
            line.strip_prefix("    ").filter(|field| !field.starts_with([' ', '}', ')']))?;
        Some(field.split_once(':').expect("a field and its value").0.to_owned())
    });
    fields.collect()
}

#[test]
fn every_option_has_its_test() {
    with_limit(LIMIT_SECONDS, |_| {
        let mut tested: Vec<&str> = all_cases().iter().map(|case| case.field).collect();
        tested.dedup();
        tested.extend(ELSEWHERE);
        tested.extend(cfg!(braid_simulation).then_some("log_room_bytes"));
        tested.sort_unstable();
        let options = Options::default();
        let mut all = [fields(&options), fields(&options.tuning)].concat();
        all.sort_unstable();
        assert_eq!(all, tested, "each once");
    });
}

/// Opens, writes, reads, checkpoints and closes; then reopens and reads.
fn works(options: &Options) {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2_u64 {
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let table: Records = block_on(db.open_or_create_table("records")).unwrap();
        // The serial safety net does not support paged tables.
        let pages: Option<Records> =
            (options.tuning.certifier == Certifier::ReadValidation).then(|| {
                let paged = TableOptions::default().paged();
                block_on(db.open_or_create_table_with("pages", paged)).unwrap()
            });
        let put = |number: u64| {
            let (table, pages) = (table.clone(), pages.clone());
            db.run(async move |tx: &Transaction| {
                if let Some(pages) = &pages {
                    tx.put(pages, &number, &[8; 300]).await?;
                }
                tx.put(&table, &number, &[7; 3000]).await
            })
        };
        // Some one by one, and the others in groups, which need few flushes.
        let numbers = round * 40..round * 40 + 40;
        numbers.clone().take(4).for_each(|number| block_on(put(number)).unwrap());
        for group in numbers.skip(4).collect::<Vec<_>>().chunks(9) {
            let written = block_on(join_all(group.iter().copied().map(put)));
            written.into_iter().for_each(Result::unwrap);
        }
        match block_on(db.checkpoint()) {
            // An automatic checkpoint is equally good.
            Ok(_) | Err(Error::Busy(BusyWith::Checkpoint)) => {}
            Err(error) => panic!("{error}"),
        }
        let found = db.run_blocking(async move |tx: &Transaction| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?.limit(u64::MAX), 0);
            while let Some((_, value)) = scan.next().await? {
                assert_eq!(value, [7; 3000]);
                found += 1;
            }
            Ok::<u64, Error>(found)
        });
        assert_eq!(found.unwrap(), round * 40 + 40);
        if let Some(pages) = &pages {
            for number in 0..round * 40 + 40 {
                let found = block_on(db.get(pages, &number)).unwrap();
                assert_eq!(found, Some(vec![8; 300]), "record {number}");
            }
        }
        db.close().unwrap();
    }
}

#[test]
fn every_option_works_at_its_extremes() {
    with_limit(LIMIT_SECONDS, |limit| {
        let (mut refused, mut worked) = (0, 0);
        let now = Arc::new(Mutex::new(("", 0)));
        let shown = now.clone();
        limit.on_timeout("the option at work", move || format!("{:?}", shown.lock().unwrap()));
        for case in all_cases() {
            let Case { field, value, .. } = case;
            *now.lock().unwrap() = (field, value);
            let base = Options::default().workers(2).tuning(Tuning::default().max_open(64));
            let options = (case.set)(base);
            let Some(limits) = case.refused else {
                works(&options);
                worked += 1;
                continue;
            };
            let directory = tempfile::tempdir().unwrap();
            for opened in
                [Database::open(directory.path(), options.clone()), Database::in_memory(options)]
            {
                let Err(Error::Options(told)) = opened else {
                    panic!("{field} = {value}: {opened:?}");
                };
                let mut parts = vec![field.to_owned(), value.to_string(), limits[0].to_string()];
                // Ranges without an upper limit name none.
                parts.extend((limits[1] < u64::MAX).then(|| limits[1].to_string()));
                for part in parts {
                    assert!(
                        told.contains(&part),
                        "{field} = {value}: {told:?} does not say {part}"
                    );
                }
            }
            refused += 1;
        }
        assert!(refused > 20 && worked > 15, "{refused} refused, {worked} worked");
    });
}

/// Reports budgets that leave no memory after the ring. Accepts the minimum and the maximum.
#[test]
fn memory_budgets_work_at_their_extremes() {
    with_limit(LIMIT_SECONDS, |_| {
        for ring in [32 << 20, 64 << 20] {
            let options = Options::default()
                .workers(2)
                .tuning(Tuning::default().max_open(64).log_ring_bytes(ring));
            let ring = ring as u64;
            for bytes in [0, 1, ring] {
                let directory = tempfile::tempdir().unwrap();
                let opened = Database::open(directory.path(), options.clone().memory_budget(bytes));
                let Err(Error::Options(told)) = opened else { panic!("{bytes}: {opened:?}") };
                for part in [
                    format!("memory_budget is {bytes} bytes"),
                    format!("takes {ring} (log_ring_bytes)"),
                ] {
                    assert!(told.contains(&part), "{told:?} does not say {part:?}");
                }
            }
            for bytes in [ring + 1, u64::MAX] {
                works(&options.clone().memory_budget(bytes));
            }
            works(&options.memory_budget(None));
        }
    });
}

/// A transaction on paged tables fails with an error when it exceeds its version bytes. One with
/// few versions succeeds.
#[test]
fn the_minimum_version_bytes_suffice_for_some_records() {
    with_limit(LIMIT_SECONDS, |_| {
        let options =
            Options::default().workers(1).tuning(Tuning::default().version_bytes(4 << 10));
        let db = Database::in_memory(options).unwrap().watched();
        let paged = TableOptions::default().paged();
        let table: Records = block_on(db.create_table_with("pages", paged)).unwrap();
        let put = |keys: std::ops::Range<u64>| {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in keys.clone() {
                    tx.put(&table, &key, &[1; 100]).await?;
                }
                Ok(())
            })
        };
        put(0..10).unwrap();
        let refused = put(10..1000);
        let Err(Error::MemoryFull(full)) = refused else { panic!("{refused:?}") };
        let MemoryLimit::Versions { limit, .. } = *full else { panic!("{full:?}") };
        assert_eq!(limit, 4 << 10);
        assert_eq!(block_on(db.count(&table, ..)).unwrap(), 10);
        // The longest value is one version.
        let longest = vec![2; braiddb::MAX_VALUE_BYTES];
        block_on(db.put(&table, &10, &longest)).unwrap();
        assert_eq!(block_on(db.get(&table, &10)).unwrap(), Some(longest));
        db.close().unwrap();
    });
}

#[test]
fn limits_of_interactive_transactions_work_at_their_extremes() {
    with_limit(LIMIT_SECONDS, |_| {
        let base = Options::default().workers(2).tuning(Tuning::default().max_open(64));
        let idle = |limit| base.clone().interactive_idle(limit);
        let age = |limit| base.clone().interactive_age(limit);
        for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(999_999)] {
            for (field, options) in
                [("interactive_idle", idle(Some(limit))), ("interactive_age", age(Some(limit)))]
            {
                let opened = Database::in_memory(options);
                let Err(Error::Options(told)) = opened else { panic!("{limit:?}: {opened:?}") };
                let begin = format!("{field} is {limit:?}, but must be 1 ms or more");
                assert!(told.starts_with(&begin), "{told}");
            }
        }
        for limit in [Some(Duration::from_millis(1)), Some(Duration::MAX), None] {
            works(&idle(limit));
            works(&age(limit));
        }
    });
}

#[test]
fn all_options_work_together_at_their_minimum() {
    with_limit(LIMIT_SECONDS, |_| {
        for durability in [Durability::Group, Durability::Relaxed] {
            let tuning = Tuning::default()
                .hot_width(Width::Fixed(1))
                .cold_width(1)
                .read_depth(1)
                .max_open(64)
                .flush_unit(0)
                .log_segment_bytes(64 << 10)
                .checkpoint_bytes(32 << 10)
                .version_bytes(4 << 10)
                .log_ring_bytes(32 << 20);
            let least = Options::default()
                .workers(1)
                .memory_budget((32 << 20) + 1)
                .durability(durability)
                .tuning(tuning);
            works(&least);
        }
    });
}

#[test]
fn request_limits_work_at_their_extremes() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(2)).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for attempts in [0, 1, u32::MAX] {
            let table = table.clone();
            let outcome = block_on(db.transaction().max_attempts(attempts).run(
                async move |tx: &Transaction| tx.put(&table, &u64::from(attempts), &[1]).await,
            ));
            assert_eq!(outcome.unwrap().attempts, 1);
        }
        for worker in [2, usize::MAX] {
            let refused = db.run_source(worker, 0..1, async |_, _| Ok(())).unwrap_err();
            let Error::Misuse(told) = refused else { panic!("{refused}") };
            assert_eq!(told, Misuse::NoSuchWorker { worker, last: 1 });
        }
        db.run_source(1, 0..1, async |_, _| Ok(())).unwrap().wait().unwrap();
        let interactive = block_on(db.begin()).unwrap();
        for (limit, there) in [(0, 0), (1, 1), (3, 3), (u64::MAX, 3)] {
            for reverse in [false, true] {
                let found = block_on(interactive.scan(&table, .., reverse, limit)).unwrap();
                assert_eq!(found.len(), there, "limit {limit}");
            }
        }
        block_on(interactive.abort()).unwrap();
        let (all, end) = db.log_blocks(0, usize::MAX).unwrap();
        assert!(!all.is_empty());
        assert_eq!(db.log_blocks(0, 0).unwrap().0, []);
        assert_eq!(db.log_blocks(end, usize::MAX).unwrap().0, []);
        assert_eq!(db.log_blocks(u64::MAX, usize::MAX).unwrap().0, []);
        db.close().unwrap();
    });
}

/// Writes values of one or several pages.
fn fill(table: &Records, db: &Database, keys: std::ops::Range<u64>) -> Result<(), Error> {
    for key in keys {
        let (table, bytes) = (table.clone(), if key % 10 == 0 { 20_000 } else { 900 });
        let value = vec![key as u8; bytes];
        db.run_blocking(async move |tx| tx.put(&table, &key, &value[..]).await)?;
    }
    Ok(())
}

/// With any number of frames, a paged table works or reports that it needs more. It neither panics
/// nor hangs.
#[test]
fn any_number_of_page_frames_works() {
    with_limit(LIMIT_SECONDS, |limit| {
        let now = Arc::new(Mutex::new(0));
        let shown = now.clone();
        limit.on_timeout("frames", move || format!("{:?}", shown.lock().unwrap()));
        let mut worked = 0;
        for frames in [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 1 << 20, u32::MAX - 1, u32::MAX] {
            *now.lock().unwrap() = frames;
            let directory = tempfile::tempdir().unwrap();
            let tuning = Tuning::default().page_frames(Some(frames));
            let options =
                Options::default().workers(2).durability(Durability::Relaxed).tuning(tuning);
            let told = |error: Error| {
                assert!(!matches!(error, Error::Panicked(_) | Error::Failed { .. }), "{error:?}");
                assert!(!(48..=1 << 20).contains(&frames), "{frames} frames: {error}");
            };
            let db = match Database::open(directory.path(), options.clone()) {
                Ok(db) => db,
                Err(error) => {
                    told(error);
                    continue;
                }
            };
            let paged = TableOptions::default().paged();
            let table: Result<Records, Error> = block_on(db.create_table_with("records", paged));
            let filled = table.and_then(|table| fill(&table, &db, 0..200));
            if let Err(error) = filled {
                told(error);
                db.close().unwrap();
                continue;
            }
            db.close().unwrap();
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Records = block_on(db.open_table("records")).unwrap();
            assert_eq!(block_on(db.count(&table, ..)).unwrap(), 200);
            db.close().unwrap();
            worked += 1;
        }
        assert!(worked > 3, "{worked} worked");
    });
}

/// Tests each policy on each device, with the other choices in turn.
#[test]
fn all_combinations_of_choices_work() {
    with_limit(LIMIT_SECONDS, |limit| {
        let now = Arc::new(Mutex::new(String::new()));
        let shown = now.clone();
        limit.on_timeout("the choices", move || shown.lock().unwrap().clone());
        let mut turn = 0;
        for policy in [Policy::Sequential, Policy::Batch, Policy::Pipeline, Policy::DualQueue] {
            for device in [DeviceKind::Auto, DeviceKind::Uring, DeviceKind::Blocking] {
                for overload in [Overload::Wait, Overload::Shed] {
                    turn += 1;
                    let one = |bit: u32| turn >> bit & 1 == 1;
                    let certifier = match one(1) {
                        true => Certifier::SerialSafetyNet,
                        false => Certifier::ReadValidation,
                    };
                    let tuning = Tuning::default()
                        .policy(policy)
                        .device(device)
                        .overload(overload)
                        .certifier(certifier)
                        .pin(one(2));
                    let options = Options::default()
                        .workers(1 + turn % 3)
                        .isolation(if one(0) {
                            Isolation::Snapshot
                        } else {
                            Isolation::Serializable
                        })
                        .durability(if one(2) { Durability::Relaxed } else { Durability::Group })
                        .memory_budget(if one(3) { 64 << 20 } else { 256 << 20 })
                        .interactive_idle(one(0).then_some(Duration::MAX))
                        .interactive_age(one(1).then_some(Duration::MAX))
                        .tuning(tuning);
                    *now.lock().unwrap() = format!("{options:?}");
                    works(&options);
                }
            }
        }
    });
}
