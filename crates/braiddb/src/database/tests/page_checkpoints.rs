//! Checkpoints of paged tables on simulated disks: remains of large values after a crash, reads
//! during opening, and checkpoints of earlier builds.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;

use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use super::paged_disk::wait_until;
use super::paged_large::{pieces, pieces_of, wait_for_pieces};
use crate::common::{Watched, with_limit};
use crate::durability::{
    estimate_checkpoint_file, rewrite_as_earlier_build, write_records_of_earlier_build,
};
use crate::io::{CrashCounts, SimulatedDisk};
use crate::page::PeekedRecords;
use crate::reclaim;
use crate::sync::statistic::{AtomicBool, Ordering};
use crate::version::View;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

fn open(disk: &SimulatedDisk, frames: u32) -> (Database, Records) {
    // No automatic checkpoint.
    let options = Options::default()
        .tuning(Tuning::default().page_frames(Some(frames)).checkpoint_bytes(1 << 40));
    let db = Database::open_simulated(disk, options, 1).unwrap().watched();
    let paged = TableOptions::default().paged();
    let open = async move |tx: &Transaction| tx.open_or_create_table_with("records", paged).await;
    let table = db.run_blocking(open).unwrap();
    (db, table)
}

fn put(db: &Database, table: &Records, model: &mut Model, key: u64, value: Vec<u8>) {
    let (table, written) = (table.clone(), value.clone());
    db.run_blocking(async move |tx| tx.put(&table, &key, &written[..]).await).unwrap();
    model.insert(key, value);
}

fn contents(db: &Database, table: &Records) -> Model {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Model::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.to_vec());
        }
        Ok::<_, Error>(found)
    });
    found.unwrap()
}

fn expected_pieces(model: &Model) -> u64 {
    pieces_of(model.values().map(Vec::len))
}

/// Values that are written during a checkpoint, that only a snapshot sees, or that are rolled back:
/// after a crash, only pieces of committed values exist.
#[test]
fn a_crash_leaves_no_piece_of_what_is_not_there() {
    for seed in 0..6 {
        with_limit(LIMIT, move |_| {
            let disk = SimulatedDisk::new(seed);
            let (db, table) = open(&disk, 64);
            let mut model = Model::new();
            let value = |key: u64, version: u8| vec![version; 2000 + key as usize * 700];
            (0..20).for_each(|key| put(&db, &table, &mut model, key, value(key, 1)));
            let snapshot = block_on(db.snapshot()).unwrap();
            // The versions that the snapshot sees stay.
            (0..6).for_each(|key| put(&db, &table, &mut model, key, value(key, 2)));
            put(&db, &table, &mut model, 6, vec![3; 10]);
            let (inner, used) = (db.clone(), table.clone());
            let commits = seed % 2 == 0;
            let undecided = db.run_blocking(async move |tx| {
                for key in 10..14 {
                    tx.put(&used, &key, &value(key, 4)[..]).await?;
                }
                let savepoint = tx.savepoint();
                tx.put(&used, &15, &value(15, 4)[..]).await?;
                inner.checkpoint().await?;
                tx.rollback_to(&savepoint).await?;
                tx.put(&used, &16, &value(1, 4)[..]).await?;
                if commits { Ok(()) } else { Err(Error::Closed) }
            });
            assert_eq!(undecided.is_ok(), commits);
            if commits {
                (10..14).for_each(|key| _ = model.insert(key, value(key, 4)));
                model.insert(16, value(1, 4));
            }
            put(&db, &table, &mut model, 17, value(2, 5));
            assert!(pieces(&db) > expected_pieces(&model), "the snapshot's are there");
            for turns in 0..2 {
                let crashed = disk.crash(seed * 2 + turns, &mut CrashCounts::default());
                for generation in 0..2 {
                    let (db, table) = open(&crashed, 64);
                    assert!(contents(&db, &table) == model, "generation {generation}");
                    wait_for_pieces(&db, expected_pieces(&model));
                    block_on(db.checkpoint()).unwrap();
                    assert_eq!(db.check().unwrap().problems, [""; 0]);
                    db.close().unwrap();
                }
            }
            drop(snapshot);
        });
    }
}

/// The reads of an opening do not grow with the table: pages are loaded on demand.
#[test]
fn an_opening_reads_no_leaves() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 256);
        let mut model = Model::new();
        (0..3000).for_each(|key| put(&db, &table, &mut model, key, vec![key as u8; 900]));
        let first = block_on(db.checkpoint()).unwrap();
        assert_eq!(first.records, 3001, "the catalog has one");
        db.close().unwrap();
        let (db, table) = open(&disk, 256);
        let pages = db.stats().pages;
        assert!(pages.faults < 4 && pages.resident < 40, "{pages:?}");
        // A checkpoint does not write unchanged pages.
        put(&db, &table, &mut model, 7, vec![1; 900]);
        let before = db.stats().pages.zone_bytes;
        block_on(db.checkpoint()).unwrap();
        let pages = db.stats().pages;
        assert!(pages.faults < 8 && pages.zone_bytes - before <= 4 * 4096, "{pages:?}");
        assert_eq!(block_on(db.len(&table)).unwrap(), 3000);
        assert!(contents(&db, &table) == model);
        db.close().unwrap();
    });
}

/// A scan returns the records of a leaf without version chains directly, and does not check
/// visibility.
#[test]
fn scans_of_leaves_without_versions_ask_for_none() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 64);
        let mut model = Model::new();
        (0..200).for_each(|key| put(&db, &table, &mut model, key, vec![key as u8; 90]));
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        let (db, table) = open(&disk, 64);
        assert!(contents(&db, &table) == model, "and all leaves are in memory");
        for reverse in [false, true] {
            let engine = db.shared.engine.clone();
            let found = db.run_blocking(async move |_: &Transaction| {
                let (tables, operation) = (engine.tables(), reclaim::enter());
                let paged = tables.iter().find_map(|table| table.paged()).unwrap().pages();
                let (mut cursor, mut found) = (paged.cursor(Unbounded, Unbounded, reverse), vec![]);
                let view = || -> View<'static> { panic!("it is asked who sees what") };
                while let Some(some) =
                    cursor.peek(7, (false, true), view, &operation).await.unwrap()
                {
                    let PeekedRecords::Plain(some) = some else { panic!("{some:?}") };
                    for record in &some.records {
                        let key = u64::from_be_bytes(record.short_key);
                        // SAFETY: in the buffer of values, which is borrowed.
                        let value = unsafe { record.value.as_ref() };
                        assert_eq!(value, [key as u8; 90]);
                        found.push(key);
                    }
                    cursor.pass_all();
                }
                Ok::<_, Error>(found)
            });
            let mut expected: Vec<_> = model.keys().copied().collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(found.unwrap(), expected);
        }
        db.close().unwrap();
    });
}

/// A checkpoint of an earlier build contains the records themselves; the next one contains the
/// positions of leaves.
#[test]
fn a_checkpoint_of_an_earlier_build_is_loaded() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 64);
        let mut model = Model::new();
        // These records are in the log, which is replayed on top.
        (0..40).for_each(|key| put(&db, &table, &mut model, key, vec![1; 50 + key as usize * 100]));
        let deleted = table.clone();
        db.run_blocking(async move |tx| tx.delete(&deleted, &500).await).unwrap();
        let records: Vec<_> = (20..900_u64)
            .map(|key| (key.to_be_bytes().to_vec(), vec![2; key as usize % 50 * 300]))
            .collect();
        for (key, value) in &records {
            let key = u64::from_be_bytes(key[..].try_into().unwrap());
            model.entry(key).or_insert_with(|| value.clone());
        }
        let tables = db.shared.engine.tables();
        let id = tables.iter().find(|table| table.paged().is_some()).unwrap().id;
        let files = db.shared.engine.log.files().unwrap();
        write_records_of_earlier_build(&files, id, &records);
        drop((files, tables));
        db.close().unwrap();
        for generation in 0..3 {
            let (db, table) = open(&disk, 64);
            assert!(contents(&db, &table) == model, "generation {generation}");
            wait_for_pieces(&db, expected_pieces(&model));
            block_on(db.checkpoint()).unwrap();
            assert_eq!(db.check().unwrap().problems, [""; 0]);
            put(&db, &table, &mut model, 20 + generation, vec![9; 3000]);
            db.close().unwrap();
        }
    });
}

/// A checkpoint with a chunk for each table is loaded, too.
#[test]
fn a_checkpoint_with_separate_chunks_is_loaded() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 64);
        let mut model = Model::new();
        (0..300).for_each(|key| {
            put(&db, &table, &mut model, key, vec![1; key as usize % 60 * 100]);
        });
        let resident = db.run_blocking(async move |tx| {
            let resident: Records = tx.create_table("resident").await?;
            for key in 0..300 {
                tx.put(&resident, &key, &[7; 40][..]).await?;
            }
            Ok::<_, Error>(resident)
        });
        let resident = resident.unwrap();
        let expected = contents(&db, &resident);
        let checkpoint = block_on(db.checkpoint()).unwrap();
        let files = db.shared.engine.log.files().unwrap();
        put(&db, &table, &mut model, 5, vec![8; 50]);
        rewrite_as_earlier_build(&files, crate::log::Lsn(checkpoint.lsn));
        drop(files);
        db.close().unwrap();
        for generation in 0..2 {
            let (db, table) = open(&disk, 64);
            let resident = db.run_blocking(async move |tx| tx.open_table("resident").await);
            assert!(contents(&db, &table) == model, "generation {generation}");
            assert!(contents(&db, &resident.unwrap()) == expected, "generation {generation}");
            wait_for_pieces(&db, expected_pieces(&model));
            assert_eq!(db.check().unwrap().problems, [""; 0]);
            block_on(db.checkpoint()).unwrap();
            db.close().unwrap();
        }
    });
}

/// Small tables share the chunks of a checkpoint, and dropped tables take no room in it.
#[test]
fn a_small_table_takes_few_bytes_of_a_checkpoint() {
    const TABLES: u64 = 200;
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, _) = open(&disk, 4096);
        let create = |paged: bool| {
            for number in 0..TABLES {
                let created = db.run_blocking(async move |tx| {
                    let options = TableOptions::default();
                    let options = if paged { options.paged() } else { options };
                    let name = format!("{paged} {number}");
                    let table: Records = tx.create_table_with(&name, options).await?;
                    tx.put(&table, &number, &[3; 100][..]).await
                });
                created.unwrap();
            }
        };
        let written = || block_on(db.checkpoint()).unwrap().bytes;
        let slack = estimate_checkpoint_file(&db.shared.engine);
        let estimated = || estimate_checkpoint_file(&db.shared.engine) - slack;
        let empty = written();
        assert!(empty <= 2 * 4096, "{empty}");
        create(true);
        let paged = written();
        assert!(paged - empty <= TABLES * 200, "{paged}");
        assert!((paged - empty..4 * paged).contains(&estimated()), "{paged}, {}", estimated());
        create(false);
        let both = written();
        assert!(both - paged <= TABLES * 200, "{both}");
        assert!((both - empty..4 * both).contains(&estimated()), "{both}, {}", estimated());
        for paged in [true, false] {
            for number in 0..TABLES {
                block_on(db.drop_table(&format!("{paged} {number}"))).unwrap();
            }
        }
        let dropped = written();
        assert!(dropped <= 2 * 4096, "{dropped}");
        db.close().unwrap();
    });
}

/// Emptied leaves are removed, even if a checkpoint visits them first and removes their useless
/// entries before the transactions that emptied them do.
#[test]
fn leaves_that_are_emptied_beside_checkpoints_go() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 4096);
        let leaves = || {
            let tables = db.shared.engine.tables();
            tables.iter().find_map(|table| table.paged()).unwrap().pages().leaves()
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a stop flag that orders no other accesses.
                while !is_over.load(Ordering::Relaxed) {
                    block_on(db.checkpoint()).unwrap();
                }
            });
            for round in 0..40 {
                let used = table.clone();
                let fill = db.run_bulk(&table, async move |tx| {
                    for key in 0..1500 {
                        tx.put(&used, &key, &[round; 300][..]).await?;
                    }
                    Ok::<_, Error>(())
                });
                block_on(fill).unwrap();
                assert!(leaves() > 100);
                let used = table.clone();
                let delete = async move |tx: &Transaction| {
                    for key in 0..1500 {
                        assert!(tx.delete(&used, &key).await?);
                    }
                    Ok::<_, Error>(())
                };
                if round % 2 == 0 {
                    block_on(db.run_bulk(&table, delete)).unwrap();
                } else {
                    db.run_blocking(delete).unwrap();
                }
                wait_until(&db, || leaves() <= 2);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}
