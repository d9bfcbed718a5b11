//! Thousands of tables, and tables whose creation aborts: each uses little memory, and an aborted
//! creation leaves nothing behind.

#[path = "common/abort.rs"]
mod abort;
mod common;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use abort::Abort;
use braiddb::{BusyWith, Database, Error, Options, Table, Transaction, Tuning};
use common::{Watched, with_limit};
use pollster::block_on;

type Numbers = Table<u64, u64>;

const LIMIT_SECONDS: u64 = 300;

fn in_memory() -> Database {
    Database::in_memory(Options::default().workers(2)).unwrap().watched()
}

/// Returns the process's used address space and its resident memory, in bytes.
fn process_bytes() -> [u64; 2] {
    const PAGE_BYTES: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages =
        pages.split_whitespace().map(|pages| pages.parse::<u64>().unwrap() * PAGE_BYTES);
    std::array::from_fn(|_| pages.next().unwrap())
}

/// Waits until nothing of the aborted creations is left, bounded by transactions, not by time.
fn settle(db: &Database, is_settled: impl Fn(&Database) -> bool) {
    for _ in 0..100_000 {
        db.run_blocking(async |tx| tx.tables().await).unwrap();
        if is_settled(db) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("something is left: {:?}", db.stats());
}

/// Creates a table with `records` records, and rolls everything back.
async fn create_in_vain(tx: &Transaction, records: u64) -> Result<Numbers, Error> {
    let table: Numbers = tx.create_table("in vain").await?;
    for key in 0..records {
        tx.insert(&table, &key, &key).await?;
    }
    Ok(table)
}

fn aborted_creations(db: &Database, count: u64, records: fn(u64) -> u64) {
    for number in 0..count {
        let result = db.transaction().try_run_blocking(async move |tx: &Transaction| {
            create_in_vain(tx, records(number)).await?;
            Err::<(), _>(Abort::OnPurpose)
        });
        assert!(matches!(result, Err(Abort::OnPurpose)), "{number}: {result:?}");
    }
}

#[test]
fn aborted_creations_use_no_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        const CREATIONS: u64 = 20_000;
        let db = in_memory();
        let kept: Numbers = block_on(db.create_table("kept")).unwrap();
        let used = |db: &Database| {
            let memory = db.stats().memory;
            [memory.versions, memory.index_nodes, memory.keys]
        };
        let (before, [addresses, _]) = (used(&db), process_bytes());
        // Some have records, and few have many.
        aborted_creations(&db, CREATIONS, |number| match number % 5000 {
            0 => 70_000,
            number => number % 3,
        });
        settle(&db, |db| used(db) == before);
        // The catalog's memory, whose ids were not immediately free again.
        assert!(db.stats().memory.indirection < 64 << 10, "{:?}", db.stats().memory);
        let [now, _] = process_bytes();
        assert!(now < addresses + (8 << 30), "{addresses} bytes of addresses became {now}");
        let id = block_on(async {
            let _: Numbers = db.create_table("last").await?;
            Ok::<_, Error>(db.tables().await?.iter().find(|table| table.name == "last").unwrap().id)
        });
        assert_eq!(id.unwrap(), 2, "ids go back too");
        db.run_blocking(async move |tx| tx.put(&kept, &1, &1).await).unwrap();
        db.close().unwrap();
    });
}

#[test]
fn thousands_of_tables_use_little_memory_and_are_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        const TABLES: u64 = 3000;
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .workers(2)
            .memory_budget(Some(128 << 20))
            .tuning(Tuning::default().log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let [addresses, _] = process_bytes();
        for first in (0..TABLES).step_by(100) {
            db.run_blocking(async move |tx| {
                for number in first..first + 100 {
                    let table: Numbers = tx.create_table(&format!("table {number}")).await?;
                    tx.insert(&table, &number, &(number * 2)).await?;
                }
                Ok(())
            })
            .unwrap();
        }
        let ([now, _], memory) = (process_bytes(), db.stats().memory);
        assert!(now < addresses + (4 << 30), "{addresses} bytes of addresses became {now}");
        // A table's root, the first entries of its array, its record, and its catalog entry.
        let each =
            (memory.versions + memory.index_nodes + memory.keys + memory.indirection) / TABLES;
        assert!(each < 2500, "{each} bytes a table: {memory:?}");
        db.close().unwrap();
        drop(db);
        let db = Database::open(directory.path(), options).unwrap().watched();
        block_on(db.checkpoint()).unwrap();
        for first in (0..TABLES).step_by(100) {
            db.run_blocking(async move |tx| {
                for number in first..first + 100 {
                    let table: Numbers = tx.open_table(&format!("table {number}")).await?;
                    assert_eq!(tx.get(&table, &number).await?, Some(number * 2));
                }
                Ok(())
            })
            .unwrap();
        }
        db.close().unwrap();
    });
}

/// A handle may leave the closure that creates its table; it is usable after the commit.
#[test]
fn a_new_table_is_visible_only_to_its_creator_until_it_commits() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let creator = block_on(db.begin()).unwrap();
        let table: Numbers = block_on(creator.step(async |tx: &Transaction| {
            let table = tx.create_table("new").await?;
            tx.put(&table, &1, &1).await?;
            Ok(table)
        }))
        .unwrap();
        let earlier = block_on(db.begin()).unwrap();
        let refused = block_on(earlier.put(&table, &2, &2));
        assert!(
            matches!(&refused, Err(Error::TableNotFound(missing)) if missing.name == "new"),
            "{refused:?}"
        );
        let refused = block_on(earlier.get(&table, &1));
        assert!(matches!(refused, Err(Error::TableNotFound(_))), "{refused:?}");
        assert_eq!(block_on(creator.get(&table, &1)).unwrap(), Some(1));
        block_on(creator.commit()).unwrap();
        // Its snapshot is older than the record.
        assert_eq!(block_on(earlier.get(&table, &1)).unwrap(), None);
        block_on(earlier.commit()).unwrap();
        let kept = table.clone();
        assert_eq!(db.run_blocking(async move |tx| tx.get(&kept, &1).await).unwrap(), Some(1));

        // A handle of an aborted creation stays unusable, even if another table has its id and its
        // name.
        let (smuggled, inside) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let out = smuggled.clone();
        let aborted = db.transaction().try_run_blocking(async move |tx: &Transaction| {
            let table = create_in_vain(tx, 3).await?;
            *out.lock().unwrap() = Some(table);
            Err::<(), _>(Abort::OnPurpose)
        });
        assert!(matches!(aborted, Err(Abort::OnPurpose)));
        *inside.lock().unwrap() = Some(block_on(db.create_table::<u64, u64>("in vain")).unwrap());
        let stale: Numbers = smuggled.lock().unwrap().take().unwrap();
        let refused = db.run_blocking(async move |tx| tx.put(&stale, &1, &7).await);
        assert!(matches!(refused, Err(Error::TableNotFound(_))), "{refused:?}");
        let table: Numbers = inside.lock().unwrap().take().unwrap();
        assert_eq!(db.run_blocking(async move |tx| tx.get(&table, &1).await).unwrap(), None);
        db.close().unwrap();
    });
}

/// Checkpoints, compactions and evictions run while table creations roll back.
#[test]
fn creations_are_rolled_back_during_passes_over_all_tables() {
    with_limit(LIMIT_SECONDS, |_| {
        const MIB: usize = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .workers(2)
            .memory_budget(Some(72 * MIB as u64))
            .tuning(Tuning::default().log_segment_bytes(4 * MIB as u64).log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let large: Table<u64, [u8]> = block_on(db.create_table("large")).unwrap();
        let creating = {
            let db = db.clone();
            std::thread::spawn(move || aborted_creations(&db, 2000, |number| number % 40))
        };
        let mut passes = 0;
        while !creating.is_finished() || passes < 3 {
            let table = large.clone();
            let fill = db.run_source(passes as usize % 2, 0..2000_u64, async move |tx, key| {
                tx.put(&table, key, &[passes; 5000][..]).await
            });
            fill.unwrap().wait().unwrap();
            match block_on(db.compact()) {
                Ok(_) => passes += 1,
                Err(Error::Busy(BusyWith::Checkpoint)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        creating.join().unwrap();
        assert!(db.stats().versions_evicted > 0, "{:?}", db.stats());
        let report = db.check().unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        db.close().unwrap();
        drop((db, large));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let tables = block_on(db.tables()).unwrap();
        assert_eq!(tables.iter().map(|table| &*table.name).collect::<Vec<_>>(), ["large"]);
        db.close().unwrap();
    });
}

/// The numbers that a process must support; prints the memory of each table.
#[test]
#[ignore = "takes minutes"]
fn a_hundred_thousand_tables_and_a_million_aborted_creations() {
    with_limit(3600, |_| {
        const TABLES: u64 = 100_000;
        const CREATIONS: u64 = 1_000_000;
        let db = in_memory();
        let ([addresses, resident], begin) = (process_bytes(), Instant::now());
        for number in 0..TABLES {
            block_on(db.create_table::<u64, u64>(&format!("table {number}"))).unwrap();
        }
        let (took, [_, now]) = (begin.elapsed(), process_bytes());
        println!("{TABLES} tables: {took:?}, {:?} each", took / TABLES as u32);
        println!("{} resident bytes for an empty table", (now - resident) / TABLES);
        let begin = Instant::now();
        aborted_creations(&db, CREATIONS, |number| number % 2);
        let (took, [end_addresses, end]) = (begin.elapsed(), process_bytes());
        println!("{CREATIONS} aborted creations: {took:?}, {:?} each", took / CREATIONS as u32);
        println!("resident: {now} bytes before, {end} after");
        assert!(end < now + now / 2, "{now} resident bytes became {end}");
        assert!(end_addresses < addresses + (8 << 30), "{addresses} became {end_addresses}");
        db.close().unwrap();
    });
}
