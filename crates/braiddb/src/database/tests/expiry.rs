//! Expiring records on a disk that crashes at any moment: expired records stay invisible, and all
//! others are present.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use pollster::block_on;

use super::super::{Database, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{Watched, with_limit};
use crate::io::{CrashCounts, SimulatedDisk};
use crate::sync::Mutex;
use crate::transaction::WallClock;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 600;
/// The workers sweep after an additional eighth of this, in real time.
const TTL: u64 = 8 * 3_600_000;
/// Records, each written a tenth of a lifetime after the previous one.
const RECORDS: u64 = 40;
/// The test examines every `EVERY`-th possible moment of a crash.
const EVERY: u64 = 2;

/// The expected state at a moment.
#[derive(Clone, Default)]
struct Known {
    now: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
}

fn open(disk: &SimulatedDisk, now: &Arc<AtomicU64>, paged: bool) -> (Database, Table<u64, u64>) {
    let shown = now.clone();
    let clock =
        WallClock::new(move || UNIX_EPOCH + Duration::from_millis(shown.load(Ordering::SeqCst)));
    let options =
        Options::default().tuning(Tuning::default().log_segment_bytes(1 << 20).wall_clock(clock));
    let db = Database::open_simulated(disk, options, 1).unwrap().watched();
    let table = TableOptions::default().ttl(Duration::from_millis(TTL));
    let table = if paged { table.paged() } else { table };
    let open = async move |tx: &Transaction| tx.open_or_create_table_with("records", table).await;
    let table = db.run_blocking(open).unwrap();
    (db, table)
}

fn keys(db: &Database, table: &Table<u64, u64>) -> Vec<u64> {
    let table = table.clone();
    let keys = async move |tx: &Transaction| {
        let (mut keys, mut all) = (tx.keys(&table, ..)?, Vec::new());
        while let Some(key) = keys.next().await? {
            all.push(key);
        }
        Ok(all)
    };
    db.run_blocking(keys).unwrap()
}

#[test]
fn a_crash_brings_nothing_back_that_had_expired_and_loses_nothing_that_had_not() {
    with_limit(LIMIT, |_| {
        for paged in [false, true] {
            let (disk, known) = (SimulatedDisk::new(11), Known::default());
            let crashes = Arc::new(Mutex::new(Vec::new()));
            let (told, noted, mut seed) = (known.clone(), crashes.clone(), 0);
            disk.watch(move |moment| {
                seed += 1;
                if seed % EVERY == 0 {
                    let crash = moment.crash(seed, &mut CrashCounts::default());
                    let acknowledged = told.acknowledged.load(Ordering::SeqCst);
                    noted.lock().push((acknowledged, told.now.load(Ordering::SeqCst), crash));
                }
            });
            let (db, table) = open(&disk, &known.now, paged);
            let mut swept = 0;
            for key in 0..RECORDS {
                // Record `key` expires at `TTL + key * TTL / 10`.
                known.now.store(key * (TTL / 10) + 1, Ordering::SeqCst);
                block_on(db.put(&table, &key, &key)).unwrap();
                known.acknowledged.store(key + 1, Ordering::SeqCst);
                match key % 10 {
                    3 => swept += block_on(db.sweep_expired()).unwrap(),
                    7 => _ = block_on(db.checkpoint()).unwrap(),
                    _ => {}
                }
            }
            db.close().unwrap();
            assert!(swept > RECORDS / 2, "{swept} were swept");
            let crashes = std::mem::take(&mut *crashes.lock());
            assert!(crashes.len() > 20, "{}", crashes.len());
            for (acknowledged, now, disk) in crashes {
                let time = Arc::new(AtomicU64::new(now));
                let (db, table) = open(&disk, &time, paged);
                let found = keys(&db, &table);
                // The clock is one more than a multiple of the interval, so the record written ten
                // intervals ago has expired.
                let first = (now / (TTL / 10)).saturating_sub(9);
                let (alive, more) = (first..acknowledged, first..=acknowledged);
                let expected = [alive.collect::<Vec<_>>(), more.collect()];
                assert!(expected.contains(&found), "{found:?} of {acknowledged} at {now}");
                time.store(now + 2 * TTL, Ordering::SeqCst);
                assert!(block_on(db.sweep_expired()).unwrap() >= found.len() as u64);
                assert_eq!(block_on(db.table_contents(&table)).unwrap().records(), 0);
                db.close().unwrap();
            }
        }
    });
}

/// A transaction writes a record, and a sweep passes before its commit and cannot see the record.
/// After the commit, the record must be due for a sweep.
#[test]
fn what_is_committed_after_a_sweep_has_passed_is_due_when_it_expires() {
    with_limit(LIMIT, |_| {
        for paged in [false, true] {
            let (disk, now) = (SimulatedDisk::new(3), Arc::new(AtomicU64::new(1)));
            let (db, table) = open(&disk, &now, paged);
            let writer = block_on(db.begin()).unwrap();
            let put = writer.step(async move |tx| {
                tx.put_with_ttl(&table, &1, &1, Duration::from_millis(10)).await
            });
            block_on(put).unwrap();
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 0);
            block_on(writer.commit()).unwrap();
            let is_due = |at| {
                let tables = db.shared.engine.tables();
                let mut expiring = tables.iter().filter(|table| table.expires());
                expiring.any(|table| table.may_have_expired(at))
            };
            assert!(!is_due(10) && is_due(11), "paged: {paged}");
            now.store(11, Ordering::SeqCst);
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 1);
            assert!(!is_due(u64::MAX - 1), "nothing is left");
            db.close().unwrap();
        }
    });
}
