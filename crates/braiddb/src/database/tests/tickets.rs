//! Tickets on a disk that crashes or fails: what a ticket calls durable survives, and what it does
//! not may be lost, but only the newest part.

use std::sync::Arc;

use pollster::block_on;

use super::super::{Database, Error, Options, Table, Transaction};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::io::{CrashCounts, Faults, SimulatedDisk};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

type Numbers = Table<u64, u64>;

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Numbers) {
    let db = Database::open_simulated(disk, Options::default(), seed).unwrap().watched();
    let table = block_on(db.open_or_create_table("numbers")).unwrap();
    (db, table)
}

#[test]
fn durable_tickets_survive_a_crash() {
    const COMMITS: u64 = 40;
    with_limit(PART_SECONDS, |_| {
        let mut lost = 0;
        for seed in 0..60 {
            let disk = SimulatedDisk::new(seed);
            let (db, table) = open(&disk, seed);
            let acknowledged = Arc::new(AtomicU64::new(0));
            let (crash, known) = (Arc::new(Mutex::new(None)), acknowledged.clone());
            let (crashed, mut left) = (crash.clone(), 1 + seed % 13);
            disk.watch(move |moment| {
                left = left.saturating_sub(1);
                if left == 0 {
                    let before = known.load(Ordering::SeqCst);
                    let after = || moment.crash(seed, &mut CrashCounts::default());
                    crashed.lock().get_or_insert_with(|| (before, after()));
                }
            });
            let mut random = fastrand::Rng::with_seed(seed);
            for key in 0..COMMITS {
                let used = table.clone();
                let put = async move |tx: &Transaction| tx.put(&used, &key, &key).await;
                let (_, ticket) = block_on(db.transaction().run_visible(put)).unwrap();
                if random.u8(..4) == 0 {
                    block_on(ticket.durable()).unwrap();
                }
                if ticket.is_durable() {
                    acknowledged.store(key + 1, Ordering::SeqCst);
                }
            }
            disk.unwatch();
            drop((db, table));
            let Some((acknowledged, disk)) = crash.lock().take() else { continue };
            let (db, table) = open(&disk, seed);
            let count = block_on(db.len(&table)).unwrap();
            assert!(count >= acknowledged, "seed {seed}: {acknowledged} durable, {count} there");
            for key in 0..count {
                assert_eq!(block_on(db.get(&table, &key)).unwrap(), Some(key), "seed {seed}");
            }
            lost += COMMITS - count;
            db.close().unwrap();
        }
        assert!(lost > 0, "what is not durable may be lost");
    });
}

#[test]
fn a_failed_log_fails_open_tickets() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 1);
        let visibly = |key: u64| {
            let used = table.clone();
            let put = async move |tx: &Transaction| tx.put(&used, &key, &key).await;
            block_on(db.transaction().run_visible(put))
        };
        let (_, before) = visibly(0).unwrap();
        block_on(before.durable()).unwrap();
        disk.set_faults(Faults { failed_syncs: 1, errors: 1, ..Faults::default() });
        let (_, lost) = visibly(1).unwrap();
        let failed = block_on(lost.durable());
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        assert!(!lost.is_durable() && before.is_durable());
        block_on(before.durable()).unwrap();
        // An execution depends on what it read, which may be lost too.
        let used = table.clone();
        let execution = block_on(db.execute(async move |tx| tx.get(&used, &1).await));
        if let Ok(proposal) = execution {
            assert_eq!(proposal.value, Some(1));
            assert!(matches!(block_on(proposal.ticket.durable()), Err(Error::Io(_))));
        }
        assert!(visibly(2).is_err());
        _ = db.close();
    });
}
