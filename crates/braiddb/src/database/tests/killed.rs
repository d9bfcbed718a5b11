//! Files after the process was killed: opening leaves none that the database does not need.

use pollster::block_on;

use super::super::{Database, Options, Tuning};
use super::paged_disk::{check, fill};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::io::SimulatedDisk;
use crate::sync::Mutex;
use std::sync::Arc;

fn open(disk: &SimulatedDisk, frames: u32) -> Database {
    let tuning = Tuning::default().checkpoint_bytes(1 << 40).page_frames(Some(frames));
    Database::open_simulated(disk, Options::default().tuning(tuning), 1).unwrap().watched()
}

fn count(disk: &SimulatedDisk, end: &str) -> usize {
    disk.files().iter().filter(|(name, _)| name.ends_with(end)).count()
}

/// A kill between the naming of a checkpoint and the removal of the previous one leaves both.
/// Replay writes pages to places of the existing zone.
#[test]
fn openings_after_a_kill_leave_one_checkpoint_and_one_zone() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, 64);
        let paged = super::super::TableOptions::default().paged();
        let table =
            db.run_blocking(async move |tx| tx.create_table_with("records", paged).await).unwrap();
        block_on(db.checkpoint()).unwrap();
        let model = fill(&db, &table);
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
        db.close().unwrap();
        let disk = killed.lock().take().expect("two checkpoints exist for a moment");
        for _ in 0..3 {
            let db = open(&disk, 8);
            let table = block_on(db.open_table("records")).unwrap();
            check(&db, &table, &model);
            assert_eq!(
                (count(&disk, ".ckpt"), count(&disk, ".zone")),
                (1, 1),
                "{:?}",
                disk.files()
            );
            db.close().unwrap();
        }
    });
}
