//! Many concurrent transactions on both workers, checked against invariants that any lost update,
//! torn snapshot or partial commit would break. Runs under ThreadSanitizer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Options, Policy, Table, Tuning, Width};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

const POLICIES: [Policy; 4] =
    [Policy::Sequential, Policy::Batch, Policy::Pipeline, Policy::DualQueue];

fn open(policy: Policy) -> Database {
    let options = Options::default()
        .workers(2)
        .tuning(Tuning::default().policy(policy).hot_width(Width::Fixed(8)));
    Database::in_memory(options).unwrap().watched()
}

/// Transfers between accounts, while readers sum all accounts.
#[test]
fn transfers_keep_the_sum() {
    with_limit(LIMIT_SECONDS, |_| {
        const ACCOUNTS: u64 = 50;
        const TRANSFERS: u64 = 400;
        for policy in POLICIES {
            let db = open(policy);
            let accounts: Table<u64, u64> = block_on(db.open_or_create_table("accounts")).unwrap();
            let table = accounts.clone();
            db.run_blocking(async move |tx| {
                for account in 0..ACCOUNTS {
                    tx.insert(&table, &account, &1000).await?;
                }
                Ok(())
            })
            .unwrap();
            // Repeats until some of them conflicted, with fewer accounts each time.
            let mut among = ACCOUNTS;
            while among == ACCOUNTS || db.stats().aborted.conflict == 0 {
                std::thread::scope(|scope| {
                    for thread in 0..4 {
                        let (db, accounts) = (&db, &accounts);
                        scope.spawn(move || {
                            let shape = (ACCOUNTS, among);
                            transfer_and_read(db, accounts, thread, shape, TRANSFERS);
                        });
                    }
                });
                among = (among / 2).max(2);
            }
            assert_eq!(sum(&db, &accounts), ACCOUNTS * 1000, "{policy:?}");
            db.close().unwrap();
        }
    });
}

fn transfer_and_read(
    db: &Database,
    accounts: &Table<u64, u64>,
    seed: u64,
    (count, among): (u64, u64),
    transfers: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..transfers {
        let (from, to) = (random.u64(0..among), random.u64(0..among));
        let amount = random.u64(1..5);
        let table = accounts.clone();
        db.run_blocking(async move |tx| {
            let rich = tx.get(&table, &from).await?.unwrap();
            if rich >= amount && from != to {
                let poor = tx.get(&table, &to).await?.unwrap();
                tx.update(&table, &from, &(rich - amount)).await?;
                tx.update(&table, &to, &(poor + amount)).await?;
            }
            Ok(())
        })
        .unwrap();
        if round % 16 == 0 {
            assert_eq!(sum(db, accounts), count * 1000);
        }
    }
}

fn sum(db: &Database, accounts: &Table<u64, u64>) -> u64 {
    let table = accounts.clone();
    db.run_blocking(async move |tx| {
        let (mut scan, mut sum) = (tx.scan(&table, ..)?, 0);
        while let Some((_, balance)) = scan.next().await? {
            sum += balance;
        }
        Ok(sum)
    })
    .unwrap()
}

/// Waits inside transactions until `all` of them have arrived.
async fn meet(come: &AtomicU64, all: u64) {
    come.fetch_add(1, Ordering::SeqCst);
    std::future::poll_fn(|cx| {
        if come.load(Ordering::SeqCst) >= all {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Runs a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// All threads increment the same counters: no increment is lost.
#[test]
fn increments_are_not_lost() {
    with_limit(LIMIT_SECONDS, |_| {
        const THREADS: u64 = 4;
        const INCREMENTS: u64 = 300;
        let db = open(Policy::DualQueue);
        let counters: Table<str, u64> = block_on(db.open_or_create_table("counters")).unwrap();
        let attempts = Arc::new(AtomicU64::new(0));
        // The first transaction of each thread writes when all have read: all except one conflict.
        let have_read = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (db, counters, attempts) = (db.clone(), counters.clone(), attempts.clone());
                let have_read = have_read.clone();
                scope.spawn(move || {
                    for number in 0..INCREMENTS {
                        let (table, have_read) = (counters.clone(), have_read.clone());
                        let run = db.transaction().run(async move |tx| {
                            let count = tx.get(&table, "the one").await?.unwrap_or(0);
                            if number == 0 && tx.attempt() == 1 {
                                meet(&have_read, THREADS).await;
                            }
                            tx.put(&table, "the one", &(count + 1)).await
                        });
                        let outcome =
                            block_on(run).unwrap_or_else(|error: Error| panic!("{error}"));
                        attempts.fetch_add(u64::from(outcome.attempts), Ordering::Relaxed);
                    }
                });
            }
        });
        let count =
            db.run_blocking(async move |tx| Ok(tx.get(&counters, "the one").await?)).unwrap();
        assert_eq!(count, Some(THREADS * INCREMENTS));
        let attempts = attempts.load(Ordering::Relaxed);
        assert!(attempts >= THREADS * INCREMENTS + THREADS - 1, "{attempts} attempts: no conflict");
        let stats = db.stats();
        assert_eq!(
            stats.retries,
            attempts - THREADS * INCREMENTS,
            "each attempt but the last is retried"
        );
        assert_eq!(stats.aborted.conflict, stats.retries);
    });
}

/// Records are inserted and deleted repeatedly during scans: each scan sees only whole groups. Both
/// continue until other transactions committed during a scan.
#[test]
fn inserts_and_deletes_are_atomic() {
    with_limit(LIMIT_SECONDS, |_| {
        const GROUP: u64 = 4;
        let db = open(Policy::DualQueue);
        let table: Table<(u64, u64), u64> = block_on(db.open_or_create_table("groups")).unwrap();
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (db, table) = (db.clone(), table.clone());
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for round in 0u64.. {
                        if round >= 300 && over.load(Ordering::Relaxed) {
                            break;
                        }
                        let group = random.u64(0..20);
                        let table = table.clone();
                        let result = db.run_blocking(async move |tx| {
                            let there = tx.contains(&table, &(group, 0)).await?;
                            for member in 0..GROUP {
                                if there {
                                    assert!(tx.delete(&table, &(group, member)).await?);
                                } else {
                                    tx.insert(&table, &(group, member), &round).await?;
                                }
                            }
                            Ok(())
                        });
                        result.unwrap();
                    }
                });
            }
            let (db, table) = (db.clone(), table.clone());
            scope.spawn(move || {
                // A panic also ends it, so that the writers end.
                let _end = OnDrop(|| over.store(true, Ordering::Relaxed));
                let (mut scans, mut beside_commits) = (0, 0);
                while scans < 200 || beside_commits == 0 {
                    let table = table.clone();
                    let groups = db.run_blocking(async move |tx| {
                        let (mut scan, mut seen) = (tx.scan(&table, ..)?, Vec::new());
                        while let Some(((group, member), round)) = scan.next().await? {
                            seen.push((group, member, round));
                        }
                        Ok((tx.snapshot_lsn(), seen))
                    });
                    let (snapshot, groups) = groups.unwrap();
                    scans += 1;
                    beside_commits += u64::from(db.stats().lsn.tail > snapshot);
                    for whole in groups.chunks(GROUP as usize) {
                        assert_eq!(whole.len() as u64, GROUP);
                        for (member, seen) in whole.iter().enumerate() {
                            assert_eq!(*seen, (whole[0].0, member as u64, whole[0].2));
                        }
                    }
                }
            });
        });
        db.close().unwrap();
    });
}
