//! Files after the process was killed: opening leaves none that the database does not need, and a
//! power failure after it loses nothing.

use std::sync::Arc;

use pollster::block_on;

use super::super::{Database, Options, TableOptions, Tuning};
use super::paged_disk::{Model, Records, check, fill};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::io::{CrashCounts, SimulatedDisk};
use crate::sync::Mutex;

/// Number of frames while the table is filled, and a number with which pages are evicted.
const FRAMES: u32 = 64;
const FEW_FRAMES: u32 = 8;

fn open(disk: &SimulatedDisk, frames: u32) -> Database {
    let tuning = Tuning::default().checkpoint_bytes(1 << 40).page_frames(Some(frames));
    Database::open_simulated(disk, Options::default().tuning(tuning), 1).unwrap().watched()
}

fn create(db: &Database) -> Records {
    let paged = TableOptions::default().paged();
    db.run_blocking(async move |tx| tx.create_table_with("records", paged).await).unwrap()
}

fn count(disk: &SimulatedDisk, end: &str) -> usize {
    disk.files().iter().filter(|(name, _)| name.ends_with(end)).count()
}

/// Writes the same values again.
fn rewrite(db: &Database, table: &Records, model: &Model) {
    let (table, model) = (table.clone(), model.clone());
    let put = async move |tx: &super::super::Transaction| {
        for (key, value) in &model {
            tx.put(&table, key, value).await?;
        }
        Ok(())
    };
    db.run_blocking(put).unwrap();
}

/// Writes a checkpoint. Returns the disk as a kill between the naming of that checkpoint and the
/// removal of the previous one leaves it.
fn kill_at_checkpoint(db: &Database, disk: &SimulatedDisk) -> SimulatedDisk {
    let killed = Arc::new(Mutex::new(None));
    let kept = killed.clone();
    disk.watch(move |moment| {
        let now = moment.kill(1);
        if count(&now, ".ckpt") > 1 {
            kept.lock().get_or_insert(now);
        }
    });
    block_on(db.checkpoint()).unwrap();
    disk.unwatch();
    let killed = killed.lock().take();
    killed.expect("two checkpoints exist for a moment")
}

/// Replay writes pages to places of the existing zone.
#[test]
fn openings_after_a_kill_leave_one_checkpoint_and_one_zone() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, FRAMES);
        let table = create(&db);
        block_on(db.checkpoint()).unwrap();
        let model = fill(&db, &table);
        let killed = kill_at_checkpoint(&db, &disk);
        rewrite(&db, &table, &model);
        let replayed = disk.copy(1);
        db.close().unwrap();
        for disk in [killed, replayed] {
            for _ in 0..3 {
                let db = open(&disk, FEW_FRAMES);
                let table = block_on(db.open_table("records")).unwrap();
                check(&db, &table, &model);
                let files = (count(&disk, ".ckpt"), count(&disk, ".zone"));
                assert_eq!(files, (1, 1), "{:?}", disk.files());
                db.close().unwrap();
            }
        }
    });
}

/// The name of the newest checkpoint was not durable when the process was killed. Pages that are
/// evicted afterwards overwrite places that only the previous checkpoint lists.
#[test]
fn a_power_failure_after_a_kill_loses_nothing() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, FRAMES);
        let table = create(&db);
        let model = fill(&db, &table);
        block_on(db.checkpoint()).unwrap();
        rewrite(&db, &table, &model);
        let disk = {
            let killed = kill_at_checkpoint(&db, &disk);
            db.close().unwrap();
            killed
        };
        let db = open(&disk, FEW_FRAMES);
        let table = block_on(db.open_table("records")).unwrap();
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut seed) = (crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            if seed % 16 == 0 {
                noted.lock().push(moment.crash(seed, &mut CrashCounts::default()));
            }
        });
        rewrite(&db, &table, &model);
        disk.unwatch();
        db.close().unwrap();
        let crashes = std::mem::take(&mut *crashes.lock());
        assert!(crashes.len() > 4, "{}", crashes.len());
        for disk in crashes {
            let db = open(&disk, FEW_FRAMES);
            let table = block_on(db.open_table("records")).unwrap();
            check(&db, &table, &model);
            db.close().unwrap();
        }
    });
}

/// On a machine with many cores, a database with one worker is opened by many threads.
#[test]
fn all_threads_of_recovery_participate_at_the_same_time() {
    with_limit(PART_SECONDS, |_| {
        let db = open(&SimulatedDisk::new(1), FRAMES);
        let threads = crate::durability::max_recovery_threads();
        let all = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let _participation = db.shared.engine.domain.participate();
                    all.wait();
                });
            }
        });
        db.close().unwrap();
    });
}
