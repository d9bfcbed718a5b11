//! Reads on threads of callers that come and go. Meanwhile others write, delete, drop tables and close
//! the database, and the engine collects garbage and evicts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Durability, Error, Options, Table};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
const KEYS: u64 = 16;
const WRITERS: u64 = 2;
/// Number of short-lived reading threads at a time, and the reads of each.
const READERS: usize = 4;
const READS: usize = 200;
const DURATION: Duration = Duration::from_secs(3);

type Records = Table<u64, [u8]>;

/// For each key, the number of the last write that began, and of the last that was acknowledged.
struct Model {
    begun: [AtomicU64; KEYS as usize],
    acknowledged: [AtomicU64; KEYS as usize],
    is_over: AtomicBool,
}

/// Returns the value that a key's write with this number stores; `None` for a deletion.
fn written(key: u64, number: u64) -> Option<Vec<u8>> {
    if number.is_multiple_of(5) {
        return None;
    }
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number * 37 % 500) as usize, key as u8 ^ number as u8);
    Some(value)
}

impl Model {
    fn write(&self, db: &Database, table: &Records, key: u64) -> Result<(), Error> {
        let number = self.begun[key as usize].fetch_add(1, Ordering::SeqCst) + 1;
        match written(key, number) {
            Some(value) => block_on(db.put(table, &key, &value))?,
            None => assert!(block_on(db.delete(table, &key))?),
        }
        self.acknowledged[key as usize].store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Reads a key, and compares the result with the writes that may be the newest.
    fn read(&self, db: &Database, table: &Records, key: u64) -> Result<(), Error> {
        let oldest = self.acknowledged[key as usize].load(Ordering::SeqCst);
        let found = block_on(db.get(table, &key))?;
        let newest = self.begun[key as usize].load(Ordering::SeqCst);
        let expected = (oldest..=newest).any(|number| written(key, number) == found);
        assert!(expected, "key {key}, writes {oldest} to {newest}: {found:?}");
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Calls `act` until it fails because the database is closed.
fn until_closed(mut act: impl FnMut() -> Result<(), Error>) {
    loop {
        match act() {
            Ok(()) => {}
            Err(Error::Closed) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Creates a table, drops it while threads read it, and repeats that.
fn drop_tables(db: &Database, round: &mut u64) -> Result<(), Error> {
    *round += 1;
    let name = format!("round {round}");
    let table: Records = block_on(db.create_table(&name))?;
    for key in 0..KEYS {
        block_on(db.put(&table, &key, &[7; 40]))?;
    }
    std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                loop {
                    match block_on(db.get(&table, &fastrand::u64(..KEYS))) {
                        Ok(found) => assert_eq!(found.as_deref(), Some(&[7; 40][..])),
                        Err(Error::TableNotFound(_)) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
            })
        });
        let dropped = block_on(db.drop_table(&name));
        readers.into_iter().try_for_each(|reader| reader.join().unwrap())?;
        dropped.map(drop)
    })
}

/// Moves an amount between two of the accounts, or removes an account that is empty.
fn transfer(db: &Database, accounts: &Table<u64, u64>) -> Result<(), Error> {
    let (accounts, from, to) = (accounts.clone(), fastrand::u64(..KEYS), fastrand::u64(..KEYS));
    block_on(db.run(async move |tx| {
        let amount = tx.get(&accounts, &from).await?.unwrap_or(0);
        let moved = amount.min(7);
        match amount - moved {
            0 => drop(tx.delete(&accounts, &from).await?),
            left => tx.put(&accounts, &from, &left).await?,
        }
        let before = tx.get(&accounts, &to).await?.unwrap_or(0);
        if before + moved > 0 {
            tx.put(&accounts, &to, &(before + moved)).await?;
        }
        Ok(())
    }))
}

/// Scans all accounts, from either end.
fn sum(db: &Database, accounts: &Table<u64, u64>) -> Result<u64, Error> {
    let scan = db.scan(accounts, ..);
    let scan = if fastrand::bool() { scan.rev() } else { scan };
    let records = block_on(scan.into_future())?;
    assert!(records.is_sorted_by_key(|(key, _)| *key) || records.iter().rev().is_sorted());
    Ok(records.iter().map(|(_, amount)| amount).sum())
}

fn run(db: Database) {
    let table: Records = block_on(db.create_table("records")).unwrap();
    let accounts: Table<u64, u64> = block_on(db.create_table("accounts")).unwrap();
    for key in 0..KEYS {
        block_on(db.put(&accounts, &key, &100)).unwrap();
    }
    let [begun, acknowledged] = Default::default();
    let model = Arc::new(Model { begun, acknowledged, is_over: AtomicBool::new(false) });
    std::thread::scope(|scope| {
        let (db, table, accounts, model) = (&db, &table, &accounts, &model);
        scope.spawn(|| until_closed(|| transfer(db, accounts)));
        scope.spawn(|| {
            until_closed(|| sum(db, accounts).map(|sum| assert_eq!(sum, 100 * KEYS)));
        });
        for writer in 0..WRITERS {
            let mut keys = (writer..KEYS).step_by(WRITERS as usize).cycle();
            let mut write = move || model.write(db, table, keys.next().unwrap());
            scope.spawn(move || until_closed(&mut write));
        }
        scope.spawn(|| {
            while !model.is_over() {
                std::thread::scope(|scope| {
                    for _ in 0..READERS {
                        scope.spawn(|| {
                            for _ in 0..READS {
                                match model.read(db, table, fastrand::u64(..KEYS)) {
                                    Ok(()) => {}
                                    Err(Error::Closed) => return,
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        });
                    }
                });
            }
        });
        scope.spawn(|| {
            let mut round = 0;
            until_closed(|| drop_tables(db, &mut round));
            assert!(round > 1, "no table was dropped");
        });
        let until = Instant::now() + DURATION;
        while Instant::now() < until {
            // An old snapshot at times, so that versions are pruned.
            let snapshot = block_on(db.snapshot()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(snapshot);
            std::thread::sleep(Duration::from_millis(20));
        }
        db.close().unwrap();
        assert!(matches!(block_on(db.get(table, &1)), Err(Error::Closed)));
        model.is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn guests_beside_all_others_in_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        run(Database::in_memory(Options::default().workers(2)).unwrap().watched());
    });
}

#[test]
fn guests_beside_all_others_on_disk() {
    with_limit(LIMIT_SECONDS, |_| {
        for durability in [Durability::Group, Durability::Relaxed] {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(2).durability(durability);
            run(Database::open(directory.path(), options).unwrap().watched());
        }
    });
}

/// With little memory, versions are evicted while guests read them.
#[test]
fn guests_beside_eviction() {
    const RECORDS: u64 = 20_000;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).durability(Durability::Relaxed);
        // The log's ring takes 32 MiB of it.
        let options = options.memory_budget(40 << 20);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        let value = |key: u64| key.to_le_bytes().repeat(125);
        let filled = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (db, table, filled) = (&db, &table, &filled);
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    loop {
                        let end = filled.load(Ordering::SeqCst);
                        if end == RECORDS {
                            return;
                        }
                        let key = fastrand::u64(..end.max(1));
                        let found = block_on(db.get(table, &key)).unwrap();
                        let is_expected =
                            found.as_ref().map_or(end == 0, |found| *found == value(key));
                        assert!(is_expected, "{key} of {end}");
                    }
                })
            });
            for key in 0..RECORDS {
                block_on(db.put(table, &key, &value(key))).unwrap();
                filled.store(key + 1, Ordering::SeqCst);
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert!(db.stats().versions_evicted > 0, "nothing was evicted");
        });
        db.close().unwrap();
    });
}
