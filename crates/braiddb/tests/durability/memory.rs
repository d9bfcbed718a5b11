//! Memory stays bounded when records are overwritten repeatedly, and is freed.

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, MemoryBudget, Options, Table, Transaction, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

fn open() -> Database {
    Database::in_memory(Options::default().workers(2)).unwrap().watched()
}

/// Waits until no superseded version is left, bounded by transactions, not by time.
fn settle(db: &Database) {
    for _ in 0..100_000 {
        db.run_blocking(async |tx| tx.tables().await).unwrap();
        if db.stats().versions_waiting == 0 {
            return;
        }
        std::thread::yield_now();
    }
    panic!("garbage is left: {:?}", db.stats());
}

#[test]
fn updates_next_to_short_readers_use_bounded_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 1000;
        const ROUNDS: u64 = 12;
        const UPDATES: u64 = 10_000;
        let db = open();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let update = |round: u64| {
            let table = table.clone();
            let keys = (0..UPDATES).map(move |n| (n * 7 + round) % RECORDS);
            let run =
                db.run_source(0, keys, async move |tx, key| tx.put(&table, key, &round).await);
            run.unwrap().wait().unwrap();
        };
        update(0);
        settle(&db);
        let settled = db.stats().memory.versions;
        for round in 1..ROUNDS {
            let reader = block_on(db.begin()).unwrap();
            let before = block_on(reader.get(&table, &1)).unwrap();
            update(round);
            assert_eq!(block_on(reader.get(&table, &1)).unwrap(), before, "its snapshot stands");
            block_on(reader.commit()).unwrap();
            // At most the versions that one reader retained, and later writes.
            let bound = settled + 3 * UPDATES * 32;
            assert!(db.stats().memory.versions < bound, "round {round}: {:?}", db.stats().memory);
        }
        settle(&db);
        assert_eq!(db.stats().memory.versions, settled);
    });
}

#[test]
fn old_snapshots_keep_only_the_versions_that_they_see() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 100;
        const ROUNDS: u64 = 8;
        const UPDATES: u64 = 12_000;
        let db = open();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let update = |round: u64| {
            let run = |worker: u64| {
                let table = table.clone();
                let keys = (0..UPDATES).map(move |n| (n * 7 + worker) % RECORDS);
                let body =
                    async move |tx: &Transaction, key: &u64| tx.put(&table, key, &round).await;
                db.run_source(worker as usize, keys, body).unwrap()
            };
            [run(0), run(1)].into_iter().for_each(|run| run.wait().unwrap());
        };
        update(0);
        settle(&db);
        let settled = db.stats().memory.versions;
        let mut readers = Vec::new();
        for round in 1..ROUNDS {
            readers.push((round - 1, block_on(db.begin()).unwrap()));
            update(round);
            if round == ROUNDS / 2 {
                readers.remove(2);
            }
            for (before, reader) in &readers {
                for key in 0..RECORDS {
                    let seen = block_on(reader.get(&table, &key)).unwrap();
                    assert_eq!(seen, Some(*before), "round {round}: its snapshot stands");
                }
            }
        }
        let stats = db.stats();
        assert!(stats.versions_pruned > UPDATES, "{stats:?}");
        // Versions that a worker has not examined yet, and those it examines again only after their
        // number has doubled.
        let bound = 2 * (2 * 8192 + 2 * ROUNDS * RECORDS) * 32;
        assert!(stats.memory.versions - settled < bound, "{:?}", stats.memory);
        drop(readers);
        settle(&db);
        assert_eq!(db.stats().memory.versions, settled);
    });
}

#[test]
fn deleted_records_free_all_their_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        const WINDOW: u64 = 500;
        const KEYS: u64 = 40_000;
        let db = open();
        let table: Table<str, u64> = block_on(db.create_table("moving window")).unwrap();
        let name = |n: u64| format!("a key of more than eight bytes {n:08}");
        let records = table.clone();
        let run = db.run_source(0, 0..KEYS, async move |tx, n| {
            tx.insert(&records, &name(*n), n).await?;
            if let Some(old) = n.checked_sub(WINDOW) {
                assert!(tx.delete(&records, &name(old)).await?);
            }
            Ok(())
        });
        run.unwrap().wait().unwrap();
        settle(&db);
        let memory = db.stats().memory;
        assert!(db.stats().records_reclaimed >= KEYS - WINDOW);
        assert!(memory.keys < 200 * 4 * WINDOW, "{memory:?}");
        assert!(memory.index_nodes < 4096 * WINDOW, "{memory:?}");
        assert!(memory.indirection < 8 * KEYS / 4, "ids are used again: {memory:?}");
        let left = db.run_blocking(async move |tx| {
            let (mut scan, mut left) = (tx.scan(&table, ..)?, 0);
            while scan.next().await?.is_some() {
                left += 1;
            }
            Ok(left)
        });
        assert_eq!(left.unwrap(), WINDOW);
    });
}

#[test]
fn the_default_budget_is_finite() {
    with_limit(LIMIT_SECONDS, |_| {
        const RING: u64 = 64 << 20;
        let directory = tempfile::tempdir().unwrap();
        let budget_of = |options: Options| {
            let db = Database::open(directory.path(), options.workers(1)).unwrap().watched();
            let budget = db.stats().memory.budget;
            db.close().unwrap();
            budget
        };
        assert_eq!(Options::default().memory_budget, MemoryBudget::Automatic);
        let automatic = budget_of(Options::default()).expect("a bound");
        assert!(automatic > RING, "{automatic}");
        assert_eq!(
            budget_of(
                Options::default()
                    .memory_budget(RING + 1)
                    .tuning(Tuning::default().log_ring_bytes(64 << 20))
            ),
            Some(RING + 1)
        );
        assert_eq!(budget_of(Options::default().memory_budget(None)), None);
        assert_eq!(budget_of(Options::default().memory_budget(MemoryBudget::Unlimited)), None);
        assert_eq!(open().stats().memory.budget, None);
    });
}

#[test]
fn a_budget_smaller_than_the_log_ring_is_rejected() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for (budget, ring) in [(0, 64 << 20), (64 << 20, 64 << 20), (100 << 20, 128 << 20)] {
            let options = Options::default().workers(1).memory_budget(budget as u64);
            let opened = Database::open(
                directory.path(),
                options.tune(|tuning| tuning.log_ring_bytes(ring)),
            );
            let Err(Error::Options(told)) = opened else {
                panic!("{budget} of {ring}: {opened:?}")
            };
            for part in ["memory_budget", "log_ring_bytes", &budget.to_string(), &ring.to_string()]
            {
                assert!(told.contains(part), "{part} in: {told}");
            }
            assert!(told.contains("smaller ring"), "{told}");
        }
        let told = Database::in_memory(Options::default().memory_budget(1 << 30)).unwrap_err();
        assert!(matches!(told, Error::Options(_)), "{told}");
    });
}

/// The default ring of a small budget has room for the largest block and the blocks of all workers.
#[test]
fn large_and_small_transactions_share_the_ring_of_a_small_budget() {
    const LARGE: usize = 16 << 20;
    const SMALL: u64 = 150;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open = |options: Options| {
            let db = Database::open(directory.path(), options.workers(6)).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.open_or_create_table("records")).unwrap();
            (db, table)
        };
        let (db, table) =
            open(Options::default().tuning(Tuning::default().log_ring_bytes(64 << 20)));
        block_on(db.put(&table, &u64::MAX, &vec![9; LARGE][..])).unwrap();
        db.close().unwrap();
        drop(db);
        // Written with another ring size, and then with the default.
        for round in 0..2 {
            let (db, table) = open(
                Options::default()
                    .memory_budget(40 << 20)
                    .tuning(Tuning::default().log_ring_bytes(None)),
            );
            assert_eq!(db.stats().memory.budget, Some(40 << 20));
            let last = block_on(db.get(&table, &u64::MAX)).unwrap().unwrap();
            assert!(last == vec![9; LARGE]);
            std::thread::scope(|scope| {
                for client in 0..6_u64 {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        let (count, bytes) = if client < 2 { (2, LARGE) } else { (SMALL, 300) };
                        for number in 0..count {
                            let key = client << 32 | round << 16 | number;
                            block_on(db.put(table, &key, &vec![client as u8; bytes][..])).unwrap();
                        }
                    });
                }
            });
            let counted = table.clone();
            let count = db.run_blocking(async move |tx| tx.count(&counted, ..).await).unwrap();
            assert_eq!(count, (round + 1) * (2 * 2 + 4 * SMALL) + 1);
            db.close().unwrap();
        }
    });
}
