//! A full disk rejects writes, but the database stays usable: reads continue, deletions and
//! compaction have reserved space, and the space they free can be written again.

use crate::database::Tuning;
use std::collections::BTreeMap;
use std::sync::Arc;

use pollster::block_on;

use super::super::{BusyWith, Database, Error, Options, Table, TableOptions};
use crate::common::{Limit, Watched, with_limit};
use crate::io::{CrashCounts, Faults, SimulatedDisk};
use crate::log::LogError;
use crate::sync::Mutex;

pub(super) const SECTOR_BYTES: u64 = 4096;
pub(super) const SEGMENT_BYTES: u64 = 64 << 10;
const VALUE_BYTES: usize = 1000;
/// Values of versions from this on are stored apart from the records of a paged table.
pub(super) const LARGE: u64 = 1 << 32;
const LARGE_VALUE_BYTES: usize = 4000;
/// Records per transaction.
pub(super) const BATCH: u64 = 10;
/// Time limit of a test, in seconds.
pub(super) const LIMIT: u64 = 300;

pub(super) type Records = Table<u64, [u8]>;

/// The expected contents: the version of each key.
type Model = BTreeMap<u64, u64>;

fn options() -> Options {
    Options::default()
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 40))
}

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Records) {
    open_kind(disk, seed, TableOptions::default())
}

fn open_kind(
    disk: &SimulatedDisk,
    seed: u64,
    options_of_table: TableOptions,
) -> (Database, Records) {
    let db = Database::open_simulated(disk, options(), seed).unwrap().watched();
    let table = db.run_blocking(async move |tx| {
        tx.open_or_create_table_with("records", options_of_table).await
    });
    let table = table.unwrap();
    (db, table)
}

pub(super) fn disk_of(limit: &Limit, sectors: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(sectors);
    let watched = disk.clone();
    let state = move || format!("{:?}, {:?}", watched.counts(), watched.files());
    limit.on_timeout("disk", state);
    disk.set_faults(small(sectors));
    disk
}

/// Returns the faults of a disk of this size, whose file system needs space for metadata.
pub(super) fn small(sectors: u64) -> Faults {
    Faults { capacity: sectors, metadata: 1, max_delay: 3, ..Faults::default() }
}

pub(super) fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 16 ^ version);
    let bytes = if version < LARGE { VALUE_BYTES } else { LARGE_VALUE_BYTES };
    (0..bytes).map(|_| random.u8(..)).collect()
}

pub(super) fn put(db: &Database, table: &Records, keys: &[u64], version: u64) -> Result<(), Error> {
    let (table, keys) = (table.clone(), keys.to_vec());
    db.run_blocking(async move |tx| {
        for key in &keys {
            tx.put(&table, key, &value(*key, version)).await?;
        }
        Ok(())
    })
}

pub(super) fn delete(db: &Database, table: &Records, keys: &[u64]) -> Result<(), Error> {
    let (table, keys) = (table.clone(), keys.to_vec());
    db.run_blocking(async move |tx| {
        for key in &keys {
            assert!(tx.delete(&table, key).await?, "key {key} is there");
        }
        Ok(())
    })
}

/// Writes new records until the disk is full and automatic compaction cannot free space. Returns
/// the number of records.
fn fill(
    db: &Database,
    disk: &SimulatedDisk,
    table: &Records,
    model: &mut Model,
    version: u64,
) -> u64 {
    let mut first = model.last_key_value().map_or(0, |(key, _)| key + 1);
    let (before, mut refused) = (model.len() as u64, 0);
    loop {
        let keys: Vec<u64> = (first..first + BATCH).collect();
        match put(db, table, &keys, version) {
            Ok(()) => {
                refused = 0;
                model.extend(keys.iter().map(|key| (*key, version)));
            }
            Err(Error::DiskFull(error)) => {
                let message = error.to_string();
                assert!(
                    message.contains("simulated") && message.contains("delete records"),
                    "{message}"
                );
                refused += 1;
                if refused == 3 {
                    return model.len() as u64 - before;
                }
                // Waits until the automatic work has ended.
                disk.settle();
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        first += BATCH;
    }
}

/// Deletes every second record. If a deletion finds no space, compaction frees some.
fn thin_out(db: &Database, table: &Records, model: &mut Model) {
    let keys = model.keys().copied().step_by(2).collect();
    delete_all(db, table, model, keys);
}

/// Deletes the first half of all records in the same way. Scattered deletions in a paged table
/// would leave pages half full.
fn delete_first_half(db: &Database, table: &Records, model: &mut Model) {
    let keys = model.keys().copied().take(model.len() / 2).collect();
    delete_all(db, table, model, keys);
}

fn delete_all(db: &Database, table: &Records, model: &mut Model, keys: Vec<u64>) {
    let mut compactions = 0;
    for keys in keys.chunks(BATCH as usize) {
        while let Err(error) = delete(db, table, keys) {
            assert!(matches!(error, Error::DiskFull(_)), "{error}");
            compactions += 1;
            assert!(compactions < 200, "compaction makes no room");
            compact(db);
        }
        keys.iter().for_each(|key| _ = model.remove(key));
    }
}

pub(super) fn compact(db: &Database) {
    loop {
        match block_on(db.compact()) {
            // An automatic checkpoint is running.
            Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
            compacted => {
                compacted.unwrap();
                return;
            }
        }
    }
}

fn check(db: &Database, table: &Records, model: &Model) {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
        while let Some((key, value)) = scan.next().await? {
            found.push((key, value.to_vec()));
        }
        Ok::<_, Error>(found)
    });
    let found = found.unwrap();
    assert_eq!(found.len(), model.len());
    for ((key, bytes), (expected, version)) in found.iter().zip(model) {
        assert_eq!(key, expected);
        assert!(*bytes == value(*key, *version), "key {key}");
    }
}

#[test]
#[ignore = "slow: the gate runs it"]
fn deletions_and_compaction_lead_out_of_a_full_disk_again_and_again() {
    with_limit(LIMIT, |_| {
        let first =
            lead_out_again_and_again(TableOptions::default(), 3000, thin_out, |first| first / 4);
        assert!(first * VALUE_BYTES as u64 > 3000 * SECTOR_BYTES / 2, "{first} records fit");
    });
}

/// A checkpoint of a paged table writes images of its pages. If all pages changed, it needs as much
/// disk space again.
#[test]
#[ignore = "slow: the gate runs it"]
fn deletions_and_compaction_lead_out_of_full_disks_of_any_size_with_a_paged_table() {
    with_limit(LIMIT, |_| {
        for sectors in [1100, 1129, 1900, 3000, 5000] {
            let first = lead_out_again_and_again(
                TableOptions::default().paged(),
                sectors,
                delete_first_half,
                // The first records were written before a checkpoint, whose images need as much
                // space again.
                |_| 0,
            );
            assert!(
                first * VALUE_BYTES as u64 > sectors * SECTOR_BYTES / 10,
                "{first} records fit in {sectors} sectors"
            );
        }
    });
}

fn lead_out_again_and_again(
    options: TableOptions,
    sectors: u64,
    delete_some: fn(&Database, &Records, &mut Model),
    least: fn(u64) -> u64,
) -> u64 {
    with_limit(LIMIT, move |limit| {
        let disk = disk_of(limit, sectors);
        let mut model = Model::new();
        let (mut db, mut table) = open_kind(&disk, 1, options);
        let first = fill(&db, &disk, &table, &mut model, 0);
        for round in 1..8 {
            check(&db, &table, &model);
            delete_some(&db, &table, &mut model);
            compact(&db);
            check(&db, &table, &model);
            if round % 2 == 0 {
                db.close().unwrap();
                drop((db, table));
                (db, table) = open_kind(&disk, round, options);
                check(&db, &table, &model);
            }
            let more = fill(&db, &disk, &table, &mut model, round);
            assert!(more > least(first), "round {round}: {more} more after {first}");
        }
        let stats = db.stats().log;
        assert!(stats.extensions_refused > 0 && stats.segments_freed > 0, "{stats:?}");
        let checked = db.check().unwrap();
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
        db.close().unwrap();
        first
    })
}

#[test]
fn a_crash_while_a_full_disk_with_a_paged_table_is_compacted_loses_nothing() {
    const SECTORS: u64 = 700;
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, SECTORS);
        let (mut model, paged) = (Model::new(), TableOptions::default().paged());
        let (db, table) = open_kind(&disk, 1, paged);
        let first = fill(&db, &disk, &table, &mut model, 0);
        delete_first_half(&db, &table, &mut model);
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut seed) = (crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            if seed < 20 || seed % 4 == 0 {
                noted.lock().push(moment.crash(seed, &mut CrashCounts::default()));
            }
        });
        compact(&db);
        disk.unwatch();
        db.close().unwrap();
        drop((db, table));
        let crashes = std::mem::take(&mut *crashes.lock());
        assert!(crashes.len() > 10, "{}", crashes.len());
        for (number, disk) in crashes.into_iter().enumerate() {
            disk.set_faults(small(SECTORS));
            let mut model = model.clone();
            let (db, table) = open_kind(&disk, number as u64, paged);
            check(&db, &table, &model);
            compact(&db);
            let more = fill(&db, &disk, &table, &mut model, 1);
            assert!(more > first / 4, "crash {number}: {more} more after {first}");
            check(&db, &table, &model);
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
            db.close().unwrap();
        }
    });
}

/// The space reserved by the database is not sufficient in this case. The error states the required
/// number of bytes.
#[test]
fn a_disk_that_others_filled_refuses_a_checkpoint_and_says_what_it_takes() {
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 3000);
        let mut model = Model::new();
        let (db, table) = open_kind(&disk, 1, TableOptions::default().paged());
        for first in (0..1000).step_by(BATCH as usize) {
            let keys: Vec<u64> = (first..first + BATCH).collect();
            put(&db, &table, &keys, 0).unwrap();
            model.extend(keys.iter().map(|key| (*key, 0)));
        }
        disk.settle();
        // The other user of the disk takes part of the reserve too.
        let reserve = disk.files().into_iter().find(|(name, _)| name == "braid.reserve");
        let held = reserve.map_or(0, |(_, bytes)| bytes) / SECTOR_BYTES;
        let used = |disk: &SimulatedDisk| {
            let files = disk.files();
            files.iter().map(|(_, bytes)| bytes.div_ceil(SECTOR_BYTES)).sum::<u64>()
        };
        let capacity = used(&disk) - held + 10;
        disk.set_faults(Faults { capacity, ..Faults::default() });
        let error = block_on(db.compact()).unwrap_err();
        let Error::DiskFull(error) = error else { panic!("{error}") };
        let message = error.to_string();
        let LogError::NoRoomForCheckpoint { needed, available, path, .. } = &*error else {
            panic!("{message}")
        };
        let is_zone = path.extension().is_some_and(|extension| extension == "zone");
        assert!(is_zone || path.ends_with("checkpoint.new"), "{message}");
        let missing = needed - available;
        assert!(message.contains(&format!("free at least {missing} bytes")), "{message}");
        check(&db, &table, &model);
        let capacity = used(&disk) + (missing + available).div_ceil(SECTOR_BYTES);
        disk.set_faults(Faults { capacity, ..Faults::default() });
        compact(&db);
        put(&db, &table, &[1 << 30], 1).unwrap();
        model.insert(1 << 30, 1);
        check(&db, &table, &model);
        db.close().unwrap();
    });
}

/// Compaction then finds no segment with many dead records.
#[test]
fn a_few_deletions_everywhere_make_room() {
    const ROUNDS: u64 = 3;
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 3000);
        let mut model = Model::new();
        let (db, table) = open(&disk, 1);
        let first = fill(&db, &disk, &table, &mut model, 0);
        let mut more = Vec::new();
        for round in 1..=ROUNDS {
            // Uses one transaction: the disk may have no space for several.
            let keys: Vec<u64> = model.keys().copied().step_by(8).collect();
            delete(&db, &table, &keys).unwrap();
            keys.iter().for_each(|key| _ = model.remove(key));
            compact(&db);
            more.push(fill(&db, &disk, &table, &mut model, round));
            check(&db, &table, &model);
        }
        let sum: u64 = more.iter().sum();
        assert!(sum > first / 16 * ROUNDS, "{more:?} more after {first}");
        db.close().unwrap();
    });
}

/// Each round deletes a sixty-fourth of the records, spread over all segments, so that compaction
/// finds few dead records in any. Deletions still have space, and the freed space can soon be
/// written again.
#[test]
fn deletions_go_on_where_compaction_gains_little() {
    const SHARE: usize = 64;
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 3000);
        let mut model = Model::new();
        let (db, table) = open(&disk, 1);
        fill(&db, &disk, &table, &mut model, 0);
        let (mut deleted, mut more) = (0, 0);
        for step in 0..16 {
            let keys: Vec<u64> = model.keys().copied().skip(step).step_by(SHARE).collect();
            let mut compactions = 0;
            while let Err(error) = delete(&db, &table, &keys) {
                assert!(matches!(error, Error::DiskFull(_)), "{error}");
                compactions += 1;
                assert!(compactions < 100, "step {step}: compaction makes no room for deletions");
                compact(&db);
            }
            keys.iter().for_each(|key| _ = model.remove(key));
            deleted += keys.len() as u64;
            compact(&db);
            check(&db, &table, &model);
            more += fill(&db, &disk, &table, &mut model, 1 + step as u64);
        }
        assert!(2 * more > deleted, "{more} records more after {deleted} were deleted");
        check(&db, &table, &model);
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
    });
}

#[test]
fn each_reopening_of_a_full_disk_leaves_as_much_room_for_deletions() {
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 3000);
        let mut model = Model::new();
        let (db, table) = open(&disk, 1);
        fill(&db, &disk, &table, &mut model, 0);
        db.close().unwrap();
        drop((db, table));
        let mut deleted = Vec::new();
        for round in 0..6 {
            let (db, table) = open(&disk, round);
            // One record per transaction: each takes a sector of the log.
            let mut count = 0;
            while count < 20 {
                let key = *model.keys().next().unwrap();
                match delete(&db, &table, &[key]) {
                    Ok(()) => _ = model.remove(&key),
                    Err(Error::DiskFull(_)) => break,
                    Err(other) => panic!("{other}"),
                }
                count += 1;
            }
            deleted.push(count);
            if count < 20 {
                compact(&db);
            }
            check(&db, &table, &model);
            db.close().unwrap();
        }
        assert!(deleted.iter().sum::<u64>() >= 60, "{deleted:?}");
    });
}

#[test]
fn commits_go_on_when_there_is_room_again() {
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 1000);
        let mut model = Model::new();
        let (db, table) = open(&disk, 1);
        fill(&db, &disk, &table, &mut model, 0);
        for _ in 0..3 {
            let keys: Vec<u64> = (1 << 40..(1 << 40) + BATCH).collect();
            assert!(matches!(put(&db, &table, &keys, 0), Err(Error::DiskFull(_))));
        }
        check(&db, &table, &model);
        disk.set_faults(Faults { capacity: 2000, ..Faults::default() });
        let more = fill(&db, &disk, &table, &mut model, 1);
        assert!(more * VALUE_BYTES as u64 > 500 * SECTOR_BYTES, "{more}");
        check(&db, &table, &model);
        db.close().unwrap();
        drop((db, table));
        let (db, table) = open(&disk, 2);
        check(&db, &table, &model);
        // Overwriting leaves many dead records, whose space automatic compaction frees.
        let keys: Vec<u64> = model.keys().copied().take(200).collect();
        let mut refused = 0;
        for version in 2..12 {
            for keys in keys.chunks(BATCH as usize) {
                match put(&db, &table, keys, version) {
                    Ok(()) => model.extend(keys.iter().map(|key| (*key, version))),
                    Err(Error::DiskFull(_)) => {
                        refused += 1;
                        // The reserve for deletions starts an automatic compaction.
                        let last = *model.keys().last().unwrap();
                        match delete(&db, &table, &[last]) {
                            Ok(()) => _ = model.remove(&last),
                            Err(Error::DiskFull(_)) => compact(&db),
                            Err(other) => panic!("{other}"),
                        }
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(refused > 0, "the disk ran full");
        check(&db, &table, &model);
        db.close().unwrap();
    });
}

/// Another writer takes the disk's space and frees it immediately afterwards.
#[test]
fn a_checkpoint_is_written_again_if_its_space_was_taken_for_a_moment() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 1);
        put(&db, &table, &[1, 2, 3], 0).unwrap();
        disk.settle();
        disk.set_faults(Faults { full_for: 4, ..Faults::default() });
        block_on(db.checkpoint()).unwrap();
        disk.set_faults(Faults { full_for: 100, ..Faults::default() });
        let message = block_on(db.checkpoint()).unwrap_err().to_string();
        assert!(message.contains("are available now, so wait a moment"), "{message}");
        disk.set_faults(Faults::default());
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
    });
}
