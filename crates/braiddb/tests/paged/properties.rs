//! Properties of paged tables that other tables do not have.

use std::collections::BTreeMap;

use crate::common::{Watched, with_limit};
use crate::table_kind::{create_table, value_of_any_size};
use braiddb::{
    Certifier, Database, Error, IndexOptions, MAX_VALUE_BYTES, Misuse, Options, Table,
    TableOptions, Transaction, Tuning,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 180;

fn in_memory(workers: usize) -> Database {
    Database::in_memory(Options::default().workers(workers)).unwrap().watched()
}

async fn contents(
    tx: &Transaction,
    table: &Table<u64, [u8]>,
    reverse: bool,
) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let (scan, mut found) = (tx.scan(table, ..)?, Vec::new());
    let mut scan = if reverse { scan.rev() } else { scan };
    while let Some((key, value)) = scan.next().await? {
        found.push((key, value.to_vec()));
    }
    Ok(found)
}

/// Records on many pages grow, shrink, are deleted and inserted again; rolled-back changes fit on
/// their pages.
#[test]
fn records_on_many_pages_grow_shrink_and_are_deleted() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(2);
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let mut model = BTreeMap::new();
        for round in 0..300_u64 {
            let (table, before) = (table.clone(), model.clone());
            let commit = round % 3 != 0;
            let result = db.run_blocking(async move |tx| {
                let mut random = fastrand::Rng::with_seed(round);
                let mut model = before.clone();
                for _ in 0..100 {
                    let key = random.u64(..400);
                    if random.u8(..4) == 0 {
                        let deleted = tx.delete(&table, &key).await?;
                        assert_eq!(deleted, model.remove(&key).is_some());
                    } else {
                        let value = value_of_any_size(&mut random);
                        tx.put(&table, &key, &value[..]).await?;
                        model.insert(key, value);
                    }
                }
                if commit { Ok(model) } else { Err(Error::Closed) }
            });
            match result {
                Ok(left) => model = left,
                Err(Error::Closed) => assert!(!commit),
                Err(error) => panic!("{error}"),
            }
        }
        let mut expected: Vec<_> = model.into_iter().collect();
        let scanned = table.clone();
        let found = db.run_blocking(async move |tx| contents(tx, &scanned, false).await).unwrap();
        assert_eq!(found, expected);
        expected.reverse();
        let found = db.run_blocking(async move |tx| contents(tx, &table, true).await).unwrap();
        assert_eq!(found, expected);
    });
}

async fn sum(tx: &Transaction, tables: &[Table<u64, u64>; 2]) -> Result<u64, Error> {
    let mut sum = 0;
    for table in tables {
        let mut scan = tx.scan(table, ..)?;
        while let Some((_, value)) = scan.next().await? {
            sum += value;
        }
    }
    Ok(sum)
}

/// Writes of one transaction to tables of both kinds commit together or not at all.
#[test]
fn transactions_over_both_kinds_are_atomic() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(2);
        let tables: [Table<u64, u64>; 2] =
            [create_table(&db, "hot", false), create_table(&db, "paged", true)];
        let setup = tables.clone();
        db.run_blocking(async move |tx| {
            for key in 0..8 {
                for table in &setup {
                    tx.put(table, &key, &100).await?;
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (db, tables) = (db.clone(), tables.clone());
                std::thread::spawn(move || {
                    for round in 0..400 {
                        let used = tables.clone();
                        let moved = db.run_blocking(async move |tx| {
                            let mut random = fastrand::Rng::with_seed(thread << 32 | round);
                            let (from, to) = (random.usize(..2), random.usize(..2));
                            let (one, two) = (random.u64(..8), random.u64(..8));
                            let now = tx.get(&used[from], &one).await?.unwrap();
                            tx.put(&used[from], &one, &(now.wrapping_sub(1))).await?;
                            let now = tx.get(&used[to], &two).await?.unwrap();
                            tx.put(&used[to], &two, &(now.wrapping_add(1))).await?;
                            if random.u8(..5) == 0 { Err(Error::Closed) } else { Ok(()) }
                        });
                        match moved {
                            Ok(()) | Err(Error::Closed) => {}
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                        let used = tables.clone();
                        let found = block_on(
                            db.transaction()
                                .read_only(true)
                                .run(async move |tx| sum(tx, &used).await),
                        );
                        assert_eq!(found.unwrap().value, 1600);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Before-images are kept only while a transaction may need them.
#[test]
fn versions_are_freed_when_no_transaction_needs_them() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(2);
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let write = |byte: u8, delete: bool| {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in 0..2000 {
                    match delete {
                        true => assert!(tx.delete(&table, &key).await?),
                        false => tx.put(&table, &key, &[byte; 100]).await?,
                    }
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        };
        write(1, false);
        let reader = block_on(db.begin()).unwrap();
        assert_eq!(block_on(reader.get(&table, &7)).unwrap(), Some(vec![1; 100]));
        (2..6).for_each(|byte| write(byte, false));
        write(0, true);
        // The reader needs one before-image of each record, whose change takes 132 bytes. Its chain
        // and mapping entry take about as much. Each worker may keep a batch of 1024 unexamined.
        while db.stats().memory.versions > 2 * 2000 * 132 + 2 * 1024 * 264 {
            block_on(db.put(&table, &5000, &[1; 100])).unwrap();
        }
        assert!(db.stats().memory.versions > 2000 * 100, "{:?}", db.stats().memory);
        // The records with their slots, on pages that are at least half full.
        let pages = db.stats().memory.pages;
        assert!((240_000..700_000).contains(&pages), "{:?}", db.stats().memory);
        assert_eq!(block_on(reader.get(&table, &7)).unwrap(), Some(vec![1; 100]));
        assert_eq!(block_on(reader.get(&table, &1999)).unwrap(), Some(vec![1; 100]));
        block_on(reader.commit()).unwrap();
        while db.stats().memory.versions > 10_000 {
            std::thread::yield_now();
        }
        let found = db.run_blocking(async move |tx| contents(tx, &table, false).await).unwrap();
        assert!(found.is_empty());
    });
}

#[test]
fn a_paged_table_is_dropped_cleared_and_renamed() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(2);
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let fill = || {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in 0..3000 {
                    tx.insert(&table, &key, &[9; 50]).await?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        };
        fill();
        assert_eq!(block_on(db.clear(&table)).unwrap(), 3000);
        fill();
        block_on(db.rename_table("records", "renamed")).unwrap();
        let listed = db.run_blocking(async |tx| tx.tables().await).unwrap();
        assert!(listed.len() == 1 && listed[0].options.paged && listed[0].name == "renamed");
        let again: Table<u64, [u8]> = block_on(db.open_table("renamed")).unwrap();
        assert_eq!(block_on(db.get(&again, &5)).unwrap(), Some(vec![9; 50]));
        block_on(db.drop_table("renamed")).unwrap();
        assert!(matches!(block_on(db.get(&again, &5)), Err(Error::TableNotFound(_))));
        // A creation that its transaction rolls back, together with the table's records.
        let result = db.run_blocking(async |tx| {
            let options = TableOptions::default().paged();
            let table: Table<u64, [u8]> = tx.create_table_with("never", options).await?;
            for key in 0..500 {
                tx.put(&table, &key, &[1; 200]).await?;
            }
            Err::<(), _>(Error::Closed)
        });
        assert!(matches!(result, Err(Error::Closed)));
    });
}

#[test]
fn unsupported_operations_of_paged_tables_fail() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(1);
        let table: Table<[u8], [u8]> = create_table(&db, "records", true);
        let put = |key: usize, value: usize| {
            let table = table.clone();
            db.run_blocking(async move |tx| tx.put(&table, &vec![1; key], &vec![2; value]).await)
        };
        put(512, 1025).unwrap();
        assert!(matches!(
            put(513, 1),
            Err(Error::Misuse(Misuse::KeyTooLong { bytes: 513, limit: 512 }))
        ));
        let (most, more) = (MAX_VALUE_BYTES, MAX_VALUE_BYTES + 1);
        let told = |error| matches!(error, Error::Misuse(Misuse::ValueTooLong { bytes, limit }) if (bytes, limit) == (more, most));
        assert!(told(put(1, more).unwrap_err()));
        let read = block_on(db.get(&table, &vec![1; 513]));
        assert!(
            matches!(read, Err(Error::Misuse(Misuse::KeyTooLong { bytes: 513, limit: 512 }))),
            "{read:?}"
        );
        assert_eq!(block_on(db.get(&table, &vec![1; 512])).unwrap(), Some(vec![2; 1025]));
        let refused = block_on(db.index::<u64, _, _, _>(
            &table,
            "by_length",
            IndexOptions::default(),
            |value, keys| keys.push(&(value.len() as u64)),
        ));
        // An entry consists of the index key and the record key, and must fit on a page.
        let is_told =
            matches!(refused, Err(Error::Misuse(Misuse::KeyTooLong { bytes: 520, limit: 512 })));
        assert!(is_told, "{refused:?}");
        let create = |db: &Database| {
            db.run_blocking(async |tx| {
                let options = TableOptions::default().paged();
                tx.create_table_with::<u64, u64>("paged", options).await
            })
        };
        let options = Options::default()
            .workers(1)
            .tuning(Tuning::default().certifier(Certifier::SerialSafetyNet));
        assert!(matches!(
            create(&Database::in_memory(options).unwrap().watched()),
            Err(Error::Misuse(Misuse::NeedsReadValidation { .. }))
        ));
    });
}

/// Room that a page reserves to undo a deletion is free after the commit, once the record is
/// reclaimed.
#[test]
fn space_reserved_for_undo_is_reused_after_commit() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory(1);
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let long = [7; 1000];
        let keys = [1, 2, 3];
        let versions = || db.stats().memory.versions;
        let before = versions();
        for _ in 0..4 {
            let of = table.clone();
            db.run_blocking(async move |tx| {
                for key in &keys {
                    tx.insert(&of, key, &long).await?;
                }
                Ok(())
            })
            .unwrap();
            let of = table.clone();
            db.run_blocking(async move |tx| {
                for key in &keys {
                    // The page reserves room for the long value.
                    tx.update(&of, key, &[1]).await?;
                    tx.delete(&of, key).await?;
                }
                Ok(())
            })
            .unwrap();
            while versions() > before {
                assert_eq!(block_on(db.get(&table, &9)).unwrap(), None);
            }
            block_on(db.put(&table, &2, &long)).unwrap();
            assert_eq!(block_on(db.get(&table, &2)).unwrap().unwrap(), long);
            assert!(block_on(db.delete(&table, &2)).unwrap());
        }
    });
}

/// A commit stamps changes without loading pages.
#[test]
fn a_commit_touches_no_page() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(1).tuning(Tuning::default().page_frames(Some(16)));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        for keys in (0..4000_u64).collect::<Vec<_>>().chunks(100) {
            let (table, keys) = (table.clone(), keys.to_vec());
            db.run_blocking(async move |tx| {
                for key in &keys {
                    tx.insert(&table, key, &[1; 400]).await?;
                }
                Ok(())
            })
            .unwrap();
        }
        // A snapshot prevents garbage collection, which may load pages after a commit.
        let snapshot = block_on(db.snapshot()).unwrap();
        for round in 0..20 {
            let (inner, looked_at) = (table.clone(), db.clone());
            let before = db.run_blocking(async move |tx| {
                // Writes to a few leaves, far from the later reads.
                for key in 0..40 {
                    tx.put(&inner, &key, &[round; 400]).await?;
                }
                // There are many more of these leaves than frames.
                for _ in 0..2 {
                    let mut scan = tx.scan(&inner, 1000..)?;
                    while scan.next().await?.is_some() {}
                }
                Ok(looked_at.stats().pages.faults)
            });
            let before = before.unwrap();
            let after = db.stats().pages.faults;
            assert_eq!(after, before, "no page was loaded in round {round}");
            assert_eq!(block_on(db.get(&table, &20)).unwrap(), Some(vec![round; 400]));
            assert!(db.stats().pages.faults > after, "the record's page had left memory");
        }
        drop(snapshot);
        db.close().unwrap();
    });
}

/// The size of a paged table includes its levels and the pages above the leaves. It grows and
/// shrinks with the records, and a reopened database reports the same size.
#[test]
fn the_size_of_a_paged_table_is_known_without_a_scan() {
    with_limit(LIMIT_SECONDS, |_| {
        const PAGE_BYTES: usize = 4096;
        let directory = tempfile::tempdir().unwrap();
        let options =
            || Options::default().workers(1).tuning(Tuning::default().page_bytes(PAGE_BYTES));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let paged = TableOptions::default().paged();
        let table: Table<u64, [u8]> = block_on(db.create_table_with("records", paged)).unwrap();
        let empty = db.table_size(&table);
        assert_eq!((empty.records, empty.index_height, empty.index_bytes), (0, 1, 0));
        const RECORDS: u64 = 40_000;
        let filled = table.clone();
        db.run_blocking(async move |tx| {
            for key in 0..RECORDS {
                tx.put(&filled, &key, &[7; 100]).await?;
            }
            Ok(())
        })
        .unwrap();
        let size = db.table_size(&table);
        assert_eq!((size.records, size.index_height), (RECORDS, 3));
        // At least as many leaves as the values fill, and an entry of at least 16 bytes for each.
        let least = RECORDS * 100 / PAGE_BYTES as u64 * 16;
        assert!((least..RECORDS * 10).contains(&size.index_bytes), "{size:?}");
        assert_eq!(size.index_bytes % PAGE_BYTES as u64, 0);
        db.close().unwrap();
        let read = Database::open(directory.path(), options().read_only(true)).unwrap().watched();
        let same: Table<u64, [u8]> = block_on(read.open_table("records")).unwrap();
        assert_eq!(read.table_size(&same).index_height, 3);
        assert_eq!(read.table_size(&same).records, RECORDS);
        read.close().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_table("records")).unwrap();
        let again = db.table_size(&table);
        assert_eq!((again.records, again.index_height), (RECORDS, 3));
        // The pages above the leaves are rebuilt.
        assert!((least..RECORDS * 10).contains(&again.index_bytes), "{again:?}");
        block_on(db.clear(&table)).unwrap();
        let cleared = db.table_size(&table);
        assert_eq!((cleared.records, cleared.index_height, cleared.index_bytes), (0, 1, 0));
        db.close().unwrap();
    });
}
