//! Executed transactions, applied in two databases, leave the same contents as running them.

use braiddb::proposals::RowWrites;
use braiddb::{Database, Error, IndexError, IndexOptions, Misuse, Options, Table, TableOptions};
use pollster::block_on;

use crate::common::{Watched, with_limit};
use crate::expiring::{Clock, TTL, create, expiring};
use crate::world::{World, act};

const LIMIT_SECONDS: u64 = 240;
const TRANSACTIONS: u64 = if cfg!(debug_assertions) { 3000 } else { 40_000 };

#[test]
fn applied_writes_leave_what_running_leaves() {
    with_limit(LIMIT_SECONDS, |_| {
        let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
        let [here, there, direct] =
            [None, Some(directory.path()), None].map(|directory| World::open(directory, &clock));
        for seed in 0..TRANSACTIONS {
            let kinds = here.kinds.clone();
            let proposal = here.db.execute(async move |tx| act(tx, &kinds, seed).await);
            let proposal = block_on(proposal).unwrap();
            let kinds = direct.kinds.clone();
            let ran = block_on(direct.db.run(async move |tx| act(tx, &kinds, seed).await));
            assert_eq!(ran.unwrap(), proposal.value, "seed {seed}");
            let writes = RowWrites::decode(proposal.writes.as_bytes()).unwrap();
            assert_eq!(writes, proposal.writes);
            for world in [&here, &there] {
                let writes = writes.clone();
                block_on(world.db.run(async move |tx| tx.apply(&writes).await))
                    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            if seed % 20 == 0 {
                clock.pass(TTL / 10);
            }
            // Only some databases have deleted the records that have expired.
            if seed % 100 == 0 {
                block_on(there.db.sweep_expired()).unwrap();
            }
            if seed % 170 == 0 {
                block_on(here.db.sweep_expired()).unwrap();
            }
            if seed % 500 == 0 {
                let contents = direct.contents();
                assert!(here.contents() == contents && there.contents() == contents, "seed {seed}");
            }
        }
        let contents = direct.contents();
        assert!(contents.iter().all(|(records, ..)| records.len() > 3));
        assert!(here.contents() == contents && there.contents() == contents);
        there.db.close().unwrap();
        drop(there);
        let reopened = World::open(Some(directory.path()), &clock);
        assert!(reopened.contents() == contents);
        let report = reopened.db.check().unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    });
}

/// Tables that only the catalog lists, and indexes without key functions.
#[test]
fn tables_need_not_be_opened_but_indexes_must_be_attached() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let options = Options::default().workers(1);
            Database::open(directory.path(), options).unwrap().watched()
        };
        let attach = |db: &Database, table: &Table<u64, str>| {
            let extract = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
            block_on(db.index(table, "by_name", IndexOptions::default(), extract)).unwrap()
        };
        let writes = {
            let db = open();
            let plain: Table<u64, str> = block_on(db.create_table("plain")).unwrap();
            let indexed: Table<u64, str> = block_on(db.create_table("indexed")).unwrap();
            attach(&db, &indexed);
            let run = |table: Table<u64, str>| {
                let put = db.execute(async move |tx| tx.put(&table, &1, "ada").await);
                block_on(put).unwrap().writes
            };
            let writes = [run(plain), run(indexed)];
            db.close().unwrap();
            writes
        };
        let db = open();
        let apply = |writes: &RowWrites| {
            let writes = writes.clone();
            block_on(db.run(async move |tx| tx.apply(&writes).await))
        };
        let [plain, indexed] = writes;
        apply(&plain).unwrap();
        let refused = apply(&indexed).unwrap_err();
        let Error::Index(detached) = refused else { panic!("{refused}") };
        let IndexError::Detached { table, index } = *detached else { panic!("another error") };
        assert_eq!((&*table, &*index), ("indexed", "by_name"));
        let table: Table<u64, str> = block_on(db.open_table("indexed")).unwrap();
        let by_name = attach(&db, &table);
        apply(&indexed).unwrap();
        let found = db.run(async move |tx| Ok(tx.entries_by(&by_name, ..)?.next().await?));
        assert_eq!(block_on(found).unwrap(), Some(("ada".to_owned(), 1)));
        let plain: Table<u64, str> = block_on(db.open_table("plain")).unwrap();
        assert_eq!(block_on(db.get(&plain, &1)).unwrap().as_deref(), Some("ada"));
    });
}

/// The whole transaction is refused, even if the closure ignores the error.
#[test]
fn writes_that_do_not_fit_are_refused() {
    with_limit(LIMIT_SECONDS, |_| {
        let clock = Clock::new();
        let [from, to] = [(); 2].map(|()| Database::in_memory(clock.options()).unwrap().watched());
        let create = |db: &Database, name: &'static str, options: TableOptions| {
            let create = db.create_table_with::<u64, str>(name, options);
            block_on(create).unwrap()
        };
        let tables = [
            create(&from, "a", TableOptions::default()),
            create(&from, "lasting", TableOptions::default()),
            create(&from, "expiring", expiring(false)),
            create(&from, "missing", TableOptions::default()),
        ];
        let own = create(&to, "a", TableOptions::default());
        create(&to, "lasting", expiring(true));
        create(&to, "expiring", TableOptions::default());
        let [a, lasting, expiring, missing] = tables;
        for (other, name) in [(lasting, "lasting"), (expiring, "expiring"), (missing, "missing")] {
            let a = a.clone();
            let executed = from.execute(async move |tx| {
                tx.put(&a, &1, "one").await?;
                tx.put(&other, &1, "two").await
            });
            let writes = block_on(executed).unwrap().writes;
            for ignores in [false, true] {
                let writes = writes.clone();
                let applied = to.run(async move |tx| match tx.apply(&writes).await {
                    Err(_) if ignores => Ok(()),
                    applied => applied,
                });
                match block_on(applied).unwrap_err() {
                    Error::Misuse(Misuse::IncompleteApply) => assert!(ignores),
                    Error::Misuse(Misuse::AppliedExpiry(table)) => {
                        assert!(!ignores && table == name);
                    }
                    Error::TableNotFound(missing) => assert!(!ignores && missing.name == name),
                    error => panic!("{error}"),
                }
                assert_eq!(block_on(to.get(&own, &1)).unwrap(), None);
            }
        }
    });
}

/// Row writes cannot name tables of the engine.
#[test]
fn the_catalog_cannot_be_written() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, str> = block_on(db.create_table("braid_catalog")).unwrap();
        let executed = db.execute(async move |tx| tx.put(&table, &1, "x").await);
        let bytes = block_on(executed).unwrap().writes.as_bytes().to_vec();
        let place = bytes.windows(6).position(|part| part == b"braid_").unwrap();
        let mut bytes = bytes[..bytes.len() - 4].to_vec();
        bytes[place + 5] = b'.';
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let writes = RowWrites::decode(&bytes).unwrap();
        assert_eq!(writes.rows().next().unwrap().table, "braid.catalog");
        let applied = block_on(db.run(async move |tx| tx.apply(&writes).await));
        assert!(matches!(applied, Err(Error::TableNotFound(_))), "{applied:?}");
    });
}

/// The clocks of the two databases differ, and so do the records that they have swept.
#[test]
fn the_time_of_the_execution_decides_what_has_expired() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (early, late) = (Clock::new(), Clock::new());
            let [here, there] = [&early, &late].map(|clock| {
                let db = Database::in_memory(clock.options()).unwrap().watched();
                let table = create(&db, paged);
                let unique = IndexOptions::default().unique(true);
                let extract = |value, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
                block_on(db.index(&table, "by_value", unique, extract)).unwrap();
                (db, table)
            });
            let insert = |(db, table): &(Database, Table<u64, u64>), key: u64| {
                let table = table.clone();
                let executed = db.execute(async move |tx| tx.insert(&table, &key, &7).await);
                block_on(executed).unwrap().writes
            };
            let apply = |writes: &RowWrites| {
                for (db, _) in [&here, &there] {
                    let writes = writes.clone();
                    block_on(db.run(async move |tx| tx.apply(&writes).await)).unwrap();
                }
            };
            apply(&insert(&here, 1));
            // The first record is expired and swept only there, and here it has the unique key.
            late.pass(TTL);
            assert_eq!(block_on(there.0.sweep_expired()).unwrap(), 1);
            apply(&insert(&there, 2));
            assert_eq!(block_on(here.0.get(&here.1, &1)).unwrap(), None);
            assert_eq!(block_on(here.0.get(&here.1, &2)).unwrap(), Some(7));
            // The second record is deleted here, and there too although it is expired there.
            late.pass(TTL);
            let table = here.1.clone();
            let executed = here.0.execute(async move |tx| tx.delete(&table, &2).await);
            let deletion = block_on(executed).unwrap();
            assert!(deletion.value);
            apply(&deletion.writes);
            assert_eq!(block_on(there.0.sweep_expired()).unwrap(), 0);
        }
    });
}
