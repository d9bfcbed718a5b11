//! A snapshot that stays open while transactions run, checkpoints are written, and log is freed.

use anyhow::{Result, ensure};
use braiddb::simulation::SimulatedDisk;
use braiddb::{Database, Error, Snapshot};

use super::oracle::Contents;
use super::work::{Tables, wait};

/// A snapshot, and the contents that it had at the beginning.
pub(super) struct HeldSnapshot {
    snapshot: Snapshot,
    contents: Contents,
}

impl HeldSnapshot {
    /// Returns whether a seed holds a snapshot. These include seeds with and without paged tables,
    /// and with and without requested compaction.
    pub(super) fn is_taken(seed: u64) -> bool {
        seed % 3 == 2
    }

    /// Takes a snapshot and reads all of it. Returns `None` if this waits although no operation in
    /// progress could wake it.
    pub(super) fn take(
        db: &Database,
        disk: &SimulatedDisk,
        tables: &Tables,
    ) -> Option<Result<Self, Error>> {
        let snapshot = match wait(disk, db.snapshot())? {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(Err(error)),
        };
        let contents = contents(&snapshot, disk, tables)?;
        Some(contents.map(|contents| Self { snapshot, contents }))
    }

    /// Checks that the snapshot's contents are the same as at the beginning, unless the disk has
    /// failed. Returns `None` as [`HeldSnapshot::take`] does.
    pub(super) fn check(self, disk: &SimulatedDisk, tables: &Tables) -> Option<Result<()>> {
        let found = contents(&self.snapshot, disk, tables)?;
        Some((|| match found {
            Ok(found) => {
                ensure!(found == self.contents, "the contents of an open snapshot changed");
                Ok(())
            }
            Err(_) if disk.counts().any_failed() => Ok(()),
            Err(error) => Err(error.into()),
        })())
    }
}

/// Reads all contents of a snapshot.
fn contents(
    snapshot: &Snapshot,
    disk: &SimulatedDisk,
    tables: &Tables,
) -> Option<Result<Contents, Error>> {
    let tables = tables.clone();
    wait(disk, snapshot.run(async move |tx| tables.contents(tx).await))
}
