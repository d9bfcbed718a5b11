//! Values of paged tables that exceed a page, on a simulated disk: their remains, and the size of a
//! checkpoint.

use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction};
use super::paged_disk::{check, fill, open_with, value, wait_until, work_of_all};
use crate::common::{Watched, with_limit};
use crate::io::{Faults, SimulatedDisk};
use crate::page::LargeRef;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;
const FRAMES: u32 = 16;
/// Bytes of a piece.
const PIECE: usize = 960;

/// Returns the number of pieces of large values in the only table, if it exists.
pub(super) fn pieces(db: &Database) -> u64 {
    let tables = db.shared.engine.tables();
    let large =
        tables.iter().find_map(|table| table.paged()).and_then(|table| table.pages().large());
    large.map_or(0, |large| large.stored().records)
}

/// Waits for this number of pieces; the test's time limit ends a wait that takes too long.
pub(super) fn wait_for_pieces(db: &Database, expected: u64) {
    wait_until(db, || {
        let there = pieces(db);
        assert!(there >= expected, "pieces are missing");
        there == expected
    });
}

pub(super) fn pieces_of(values: impl Iterator<Item = usize>) -> u64 {
    values.filter(|bytes| *bytes > 1024).map(|bytes| bytes.div_ceil(PIECE) as u64).sum()
}

/// After values are overwritten, deleted, rolled back, rejected, abandoned, or failed by the disk,
/// only pieces of existing values remain.
#[test]
fn unseen_large_values_are_removed() {
    for seed in 0..4 {
        with_limit(LIMIT, move |_| {
            let (disk, db, table) = open_with(seed, FRAMES);
            let model = fill(&db, &table);
            disk.set_faults(Faults { errors: 5, max_delay: 10, ..Faults::default() });
            let (model, counts) = work_of_all(&db, &table, &model);
            assert!(counts.dropped > 1000 && counts.failed > 10, "{counts:?}");
            disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
            check(&db, &table, &model);
            wait_for_pieces(&db, pieces_of(model.values().map(Vec::len)));
            check(&db, &table, &model);
            // Rejected and partly rolled back.
            let (used, known) = (table.clone(), model.clone());
            let refused = db.run_blocking(async move |tx| {
                for (key, _) in known.iter().take(30) {
                    let savepoint = tx.savepoint();
                    let told = tx.insert(&used, key, &[1; 5000][..]).await;
                    assert!(matches!(told, Err(Error::KeyExists(_))), "{told:?}");
                    tx.put(&used, key, &[2; 5000][..]).await?;
                    tx.put(&used, key, &[3; 6000][..]).await?;
                    let inner = tx.savepoint();
                    tx.put(&used, key, &[4; 7000][..]).await?;
                    tx.put(&used, key, &[5; 100][..]).await?;
                    tx.rollback_to(&inner).await?;
                    assert!(tx.get(&used, key).await? == Some(&[3; 6000][..]));
                    if key % 3 == 0 {
                        tx.rollback_to(&savepoint).await?;
                    }
                }
                Err::<(), _>(Error::Closed)
            });
            assert!(matches!(refused, Err(Error::Closed)));
            wait_for_pieces(&db, pieces_of(model.values().map(Vec::len)));
            check(&db, &table, &model);
            let deleted = table.clone();
            let delete = async move |tx: &Transaction| {
                for key in model.keys() {
                    tx.delete(&deleted, key).await?;
                }
                Ok(())
            };
            db.run_blocking(delete).unwrap();
            wait_for_pieces(&db, 0);
            db.close().unwrap();
        });
    }
}

/// Values that a snapshot sees stay, and are freed with the snapshot.
#[test]
fn values_stay_as_long_as_a_snapshot_sees_them() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open_with(9, FRAMES);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        let put = |key: u64, bytes: usize| {
            let (table, value) = (table.clone(), vec![bytes as u8; bytes]);
            db.run_blocking(async move |tx| tx.put(&table, &key, &value[..]).await).unwrap();
        };
        (0..10).for_each(|key| put(key, 20_000));
        let snapshot = block_on(db.snapshot()).unwrap();
        (0..10).for_each(|key| put(key, 30_000));
        (0..10).for_each(|key| put(key, 500));
        let many = table.clone();
        db.run_blocking(async move |tx| {
            for key in 100..200 {
                tx.put(&many, &key, &value(key, 1)[..]).await?;
            }
            Ok(())
        })
        .unwrap();
        for key in 0..10 {
            let found = block_on(snapshot.get(&table, &key)).unwrap();
            assert!(found == Some(vec![20_000_usize as u8; 20_000]));
        }
        drop(snapshot);
        wait_for_pieces(&db, pieces_of((100..200).map(|key| value(key, 1).len())));
        db.close().unwrap();
    });
}

/// A checkpoint is no larger than expected, even if transactions are about to overwrite or delete
/// values: it contains the previous values.
#[test]
fn a_checkpoint_of_large_values_takes_no_more_than_was_expected() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(4);
        let db = Database::open_simulated(&disk, Options::default(), 4).unwrap().watched();
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
        let table: Table<u64, [u8]> = db.run_blocking(create).unwrap();
        for key in 0..60 {
            let table = table.clone();
            let value = vec![key as u8; key as usize * 2500];
            db.run_blocking(async move |tx| tx.put(&table, &key, &value[..]).await).unwrap();
        }
        let inner = db.clone();
        let (expected, written) = db
            .run_blocking(async move |tx| {
                for key in 0..60 {
                    match key % 2 {
                        0 => _ = tx.delete(&table, &key).await?,
                        _ => tx.put(&table, &key, &[1][..]).await?,
                    }
                }
                let expected = crate::durability::estimate_checkpoint(&inner.shared.engine);
                let before = inner.stats().pages.zone_bytes;
                let file = inner.checkpoint().await?.bytes;
                Ok::<_, Error>((expected, file + inner.stats().pages.zone_bytes - before))
            })
            .unwrap();
        assert!(written > 4 << 20 && written <= expected, "{written} of {expected} bytes");
        assert!(expected <= written * 3 / 2, "{expected} for {written} bytes");
        db.close().unwrap();
    });
}

/// A transaction that reads a value while it overwrites it, or rolls that back, gets one of the two
/// values, complete.
#[test]
fn a_value_that_is_written_over_while_it_is_read_is_one_or_the_other() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open_with(3, 2 * FRAMES);
        fill(&db, &table);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        let body = async move |tx: &Transaction| {
            let (mut before, mut after) = (0, 0);
            for round in 0..60_u64 {
                let (old, new) = (vec![round as u8; 9000], vec![round as u8 + 1; 12_000]);
                let others = 1000 + round % 4 * 10;
                tx.put(&table, &1, &old[..]).await?;
                let savepoint = tx.savepoint();
                if round % 2 == 0 {
                    tx.put(&table, &1, &new[..]).await?;
                }
                // Evicts the value that is read next.
                for key in others..others + 10 {
                    tx.put(&table, &key, &[7; 3000][..]).await?;
                }
                let read = async { Ok::<_, Error>(tx.get(&table, &1).await?.unwrap().to_vec()) };
                let scan = async {
                    let mut scan = tx.scan(&table, 1..2)?;
                    Ok::<_, Error>(scan.next().await?.unwrap().1.to_vec())
                };
                let write = async {
                    give_way_times(round % 16).await;
                    match round % 2 {
                        0 => tx.rollback_to(&savepoint).await?,
                        _ => tx.put(&table, &1, &new[..]).await?,
                    }
                    Ok::<_, Error>(())
                };
                let (read, scanned, written) = futures_util::future::join3(read, scan, write).await;
                written?;
                for found in [read?, scanned?] {
                    assert!(found == old || found == new, "{} bytes", found.len());
                    *if found == old { &mut before } else { &mut after } += 1;
                }
            }
            Ok((before, after))
        };
        let (before, after) = db.run_blocking(body).unwrap();
        assert!(before > 10 && after > 10, "{before} and {after}");
        db.close().unwrap();
    });
}

/// Clearing a table, deleting ranges, dropping tables and discarding a staged table leave no piece.
#[test]
fn deleting_many_records_leaves_no_piece() {
    with_limit(LIMIT, |_| {
        let (_disk, db, table) = open_with(9, FRAMES);
        for _ in 0..2 {
            fill(&db, &table);
            assert!(pieces(&db) > 0 && block_on(db.clear(&table)).unwrap() > 0);
            wait_for_pieces(&db, 0);
            let model = fill(&db, &table);
            let half = model.len() as u64 / 2;
            block_on(db.delete_range(&table, ..half)).unwrap();
            let left = model.range(half..).map(|(_, value)| value.len());
            wait_for_pieces(&db, pieces_of(left));
            block_on(db.delete_range(&table, ..)).unwrap();
            wait_for_pieces(&db, 0);
        }
        fill(&db, &table);
        block_on(db.drop_table("records")).unwrap();
        wait_for_pieces(&db, 0);
    });
}

/// Values are overwritten again and again, while others stay and most pages are on disk. The number
/// of pages does not grow: emptied leaves are removed, even if their neighbours are on disk.
#[test]
fn leaves_of_values_that_are_gone_go() {
    with_limit(LIMIT, |_| {
        let (_disk, db, table) = open_with(3, 3 * FRAMES);
        let mut random = fastrand::Rng::with_seed(3);
        let mut lengths = std::collections::BTreeMap::new();
        for _ in 0..2500 {
            let (key, bytes) = (random.u64(..100), random.usize(2000..12_000));
            let table = table.clone();
            let put =
                db.run_blocking(async move |tx| tx.put(&table, &key, &vec![7; bytes][..]).await);
            put.unwrap();
            lengths.insert(key, bytes);
        }
        wait_for_pieces(&db, pieces_of(lengths.values().copied()));
        let tables = db.shared.engine.tables();
        let paged = tables.iter().find_map(|table| table.paged()).expect("a table is paged");
        let leaves = paged.pages().large().expect("it has large values").leaves();
        assert!(leaves <= pieces(&db), "{leaves} leaves of {} pieces", pieces(&db));
    });
}

/// A check reports every incomplete value by its key, and continues.
#[test]
fn a_check_lists_values_that_are_not_whole() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let db = Database::open_simulated(&disk, Options::default(), 1).unwrap().watched();
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
        let table: Table<str, [u8]> = db.run_blocking(create).unwrap();
        let keys = ["a", "b", "c", "d", "e", "f"];
        let written = table.clone();
        let write = db.run_blocking(async move |tx| {
            for key in keys {
                // One of the values fits into its page.
                let bytes = if key == "c" { 10 } else { 5000 };
                tx.put(&written, key, &vec![1; bytes][..]).await?;
            }
            Ok(())
        });
        write.unwrap();
        let whole = db.check().unwrap();
        assert_eq!(whole.problems, Vec::<String>::new());
        let engine = db.shared.engine.clone();
        let lose = db.run_blocking(async move |_tx| {
            let tables = engine.tables();
            let paged = tables.iter().find_map(|table| table.paged()).expect("a table is paged");
            let large = paged.pages().large().expect("it has large values");
            // Pieces are numbered in the order of the writes: those of "b", "d" and "f".
            for (number, piece) in [(2, 0), (3, 2), (5, 4)] {
                large.remove_piece(LargeRef::numbered(number, 5000), piece).await.unwrap();
            }
            Ok(())
        });
        lose.unwrap();
        let report = db.check().unwrap();
        assert_eq!(report.records, whole.records);
        assert_eq!(report.problems.len(), 3, "{:?}", report.problems);
        for (problem, key) in report.problems.iter().zip(["b", "d", "f"]) {
            assert!(problem.contains("5000 bytes"), "{problem}");
            let place = format!("table \"records\", key {key:?}: ");
            assert!(problem.starts_with(&place), "{problem}");
        }
    });
}

async fn give_way_times(times: u64) {
    for _ in 0..times {
        super::paged_disk::give_way().await;
    }
}

/// Recovery leaves no pieces of values that were overwritten or deleted since the checkpoint.
#[test]
fn recovery_leaves_pieces_of_what_is_there() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(6);
        let mut expected = std::collections::BTreeMap::new();
        for generation in 0..3_u64 {
            let db = Database::open_simulated(&disk, Options::default(), 6).unwrap().watched();
            let paged = TableOptions::default().paged();
            let open =
                async move |tx: &Transaction| tx.open_or_create_table_with("records", paged).await;
            let table: Table<u64, [u8]> = db.run_blocking(open).unwrap();
            check(&db, &table, &expected);
            wait_for_pieces(&db, pieces_of(expected.values().map(Vec::len)));
            for number in 0..60 {
                let (table, key) = (table.clone(), number * 7 % 20);
                let value = value(number, generation);
                let bytes = value.clone();
                if number % 5 == 4 {
                    db.run_blocking(async move |tx| tx.delete(&table, &key).await).unwrap();
                    expected.remove(&key);
                } else {
                    db.run_blocking(async move |tx| tx.put(&table, &key, &bytes[..]).await)
                        .unwrap();
                    expected.insert(key, value);
                }
                if number == 30 && generation > 0 {
                    block_on(db.checkpoint()).unwrap();
                }
            }
            db.close().unwrap();
        }
    });
}

/// If the disk becomes full in the middle of a value, the whole write fails. No part of the value
/// is visible or stays, and the value can be written once the disk has space.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_value_refuses_it() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open_with(8, FRAMES);
        let mut model = fill(&db, &table);
        disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        let put = |key: u64, bytes: usize| {
            let (table, value) = (table.clone(), vec![key as u8; bytes]);
            db.run_blocking(async move |tx| tx.put(&table, &key, &value[..]).await)
        };
        // More bytes than all frames have.
        let large = 2 * FRAMES as usize * 4096;
        let key = *model.keys().next().unwrap();
        for _ in 0..5 {
            let refused = put(key, large);
            assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
        }
        // The transaction catches the error and continues.
        let caught = table.clone();
        let ended = db.run_blocking(async move |tx| {
            let refused = tx.put(&caught, &key, &vec![1; large][..]).await;
            assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
            Ok(())
        });
        ended.unwrap();
        disk.set_faults(Faults::default());
        check(&db, &table, &model);
        wait_for_pieces(&db, pieces_of(model.values().map(Vec::len)));
        put(key, large).unwrap();
        model.insert(key, vec![key as u8; large]);
        check(&db, &table, &model);
        wait_for_pieces(&db, pieces_of(model.values().map(Vec::len)));
        db.close().unwrap();
    });
}
