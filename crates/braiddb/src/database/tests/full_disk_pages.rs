//! Full disks with more pages in memory than the disk reserve covers in advance.

use pollster::block_on;

use super::super::{Database, Error, TableOptions, Transaction};
use super::full_disk::{LIMIT, Records, compact, delete, disk_of, put, value};
use super::full_disk_cycles::{Model, fill, open};
use crate::common::{Limit, with_limit};
use crate::io::SimulatedDisk;

/// Frames, of which each holds a page, and sectors of the disk.
const FRAMES: u32 = 512;
const SECTORS: u64 = 4000;

/// A database with a paged table on a full disk, all pages of which are clean or in memory.
fn full(limit: &Limit) -> (SimulatedDisk, Database, Records, Model) {
    let disk = disk_of(limit, SECTORS);
    let (db, table) = open(&disk, 1, FRAMES, TableOptions::default().paged()).unwrap();
    let model = fill(&db, &disk, &table, 0);
    let pages = db.shared.engine.pages().unwrap();
    assert!(u64::from(FRAMES) > 4 * pages.image_step());
    (disk, db, table, model)
}

/// Deletes half of the records, a few at a time. Then new records fit.
fn make_room(
    db: &Database,
    disk: &SimulatedDisk,
    table: &Records,
    keys: &[u64],
) -> Result<(), Error> {
    for keys in keys[..keys.len() / 2].chunks(10) {
        delete(db, table, keys)?;
    }
    compact(db);
    disk.settle();
    for key in 0..keys.len() as u64 / 8 {
        put(db, table, &[(1 << 40) + key], 1)?;
    }
    assert_eq!(db.check()?.problems, Vec::<String>::new());
    Ok(())
}

/// Writes all records in one transaction.
fn write_all(db: &Database, table: &Records, keys: &[u64], deletes: bool) -> Result<(), Error> {
    let (table, keys) = (table.clone(), keys.to_vec());
    db.run_blocking(async move |tx: &Transaction| {
        for key in &keys {
            match deletes {
                true => _ = tx.delete(&table, key).await?,
                false => tx.put(&table, key, &value(*key, 2)).await?,
            }
        }
        Ok(())
    })
}

#[test]
fn one_transaction_over_all_pages_of_a_full_disk_is_refused_and_leaves_room_for_deletions() {
    with_limit(LIMIT, |limit| {
        let (disk, db, table, model) = full(limit);
        let keys: Vec<u64> = model.keys().copied().collect();
        let refused = write_all(&db, &table, &keys, false);
        assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
        make_room(&db, &disk, &table, &keys).unwrap();
        db.close().unwrap();
    });
}

/// Deletes all records of a full disk in one transaction. If it is refused, makes room.
fn delete_all_at_once() -> Result<(), Error> {
    with_limit(LIMIT, |limit| {
        let (disk, db, table, model) = full(limit);
        let keys: Vec<u64> = model.keys().copied().collect();
        match write_all(&db, &table, &keys, true) {
            Ok(()) => put(&db, &table, &[1], 1)?,
            Err(Error::DiskFull(_)) => make_room(&db, &disk, &table, &keys)?,
            Err(error) => panic!("{error}"),
        }
        db.close()
    })
}

#[test]
fn one_deletion_of_all_records_of_a_full_disk_leaves_room_for_others() {
    delete_all_at_once().unwrap();
}

#[test]
fn refused_changes_of_random_records_leave_room_for_deletions() {
    with_limit(LIMIT, |limit| {
        let (disk, db, table, model) = full(limit);
        let (keys, mut random) = (Vec::from_iter(model.into_keys()), fastrand::Rng::with_seed(1));
        let mut refused = 0;
        for _ in 0..4 * FRAMES {
            match put(&db, &table, &[keys[random.usize(..keys.len())]], 2) {
                Ok(()) => {}
                Err(Error::DiskFull(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0);
        make_room(&db, &disk, &table, &keys).unwrap();
        db.close().unwrap();
    });
}

#[test]
fn a_full_disk_has_room_for_deletions_while_a_snapshot_is_open() {
    with_limit(LIMIT, |limit| {
        let (_disk, db, table, model) = full(limit);
        let snapshot = block_on(db.snapshot()).unwrap();
        let keys: Vec<u64> = model.keys().copied().collect();
        let mut deleted = 0;
        for keys in keys.chunks(10) {
            match delete(&db, &table, keys) {
                Ok(()) => deleted += keys.len(),
                Err(Error::DiskFull(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        drop(snapshot);
        for keys in keys[deleted..].chunks(10) {
            delete(&db, &table, keys).unwrap();
        }
        compact(&db);
        put(&db, &table, &[1], 1).unwrap();
        db.close().unwrap();
    });
}

/// A compaction waits for the outer transaction, which waits for the inner one.
#[test]
fn a_nested_deletion_on_a_full_disk_ends() {
    with_limit(LIMIT, |limit| {
        let (disk, db, table, model) = full(limit);
        let keys: Vec<u64> = model.keys().copied().collect();
        let (outer, inner, records) = (db.clone(), table.clone(), keys.clone());
        let nested = db.run_blocking(async move |tx: &Transaction| {
            tx.get(&inner, &records[0]).await?;
            for keys in records.chunks(10).take(4) {
                let (table, keys) = (inner.clone(), keys.to_vec());
                let deleted = outer
                    .run(async move |tx: &Transaction| {
                        for key in &keys {
                            tx.delete(&table, key).await?;
                        }
                        Ok(())
                    })
                    .await;
                assert!(matches!(deleted, Ok(()) | Err(Error::DiskFull(_))), "{deleted:?}");
            }
            Ok::<_, Error>(())
        });
        nested.unwrap();
        make_room(&db, &disk, &table, &keys[40..]).unwrap();
        db.close().unwrap();
    });
}

/// The bug is planted in the whole process, so the gate runs this module by itself.
#[cfg(braid_simulation)]
mod planted {
    use super::{Error, delete_all_at_once};
    use crate::planted::{Bug, with_and_without};

    #[test]
    fn pages_that_became_dirty_without_disk_space_leave_none_for_deletions() {
        let is_refused = || match delete_all_at_once() {
            Ok(()) => false,
            Err(Error::DiskFull(_)) => true,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(with_and_without(Bug::DirtyPagesNotFollowed, is_refused), (true, false));
    }
}
