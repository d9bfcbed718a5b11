//! Snapshots that are open for long while records of paged tables are overwritten: memory of
//! versions stays bounded, and each snapshot keeps its answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, Options, Snapshot, Table, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 180;
const ACCOUNTS: u64 = 1000;
const DEPOSIT: u64 = 100;

/// Overwrites every record in transactions of 50, with values of this byte.
fn overwrite(db: &Database, table: &Table<u64, [u8]>, records: u64, bytes: usize, byte: u8) {
    for start in (0..records).step_by(50) {
        let table = table.clone();
        let written = db.run_blocking(async move |tx| {
            for key in start..start + 50 {
                tx.put(&table, &key, &vec![byte; bytes]).await?;
            }
            Ok(())
        });
        written.unwrap();
    }
}

/// Overwrites records while one snapshot stays open and others come and go. Returns the most bytes
/// of versions that remained after a round.
fn most_versions(bytes: usize, rounds: u8) -> u64 {
    const RECORDS: u64 = 1000;
    /// A before-image of 200 bytes takes about 330 bytes with its chain. Each of two snapshots needs
    /// one for each record, as many may wait for their next examination, and each of two workers
    /// may have a batch of 1024 that is not examined yet.
    const BOUND: u64 = (4 * RECORDS + 2 * 1024) * 330;
    let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
    let table: Table<u64, [u8]> = create_table(&db, "records", true);
    overwrite(&db, &table, RECORDS, bytes, 0);
    let old = block_on(db.snapshot()).unwrap();
    let mut most = 0;
    for round in 1..=rounds {
        let young = block_on(db.snapshot()).unwrap();
        overwrite(&db, &table, RECORDS, bytes, round);
        while db.stats().memory.versions > BOUND {
            // Workers prune during turns.
            block_on(db.put(&table, &RECORDS, &[round])).unwrap();
        }
        most = most.max(db.stats().memory.versions);
        for key in [0, 7, RECORDS - 1] {
            assert_eq!(block_on(old.get(&table, &key)).unwrap(), Some(vec![0; bytes]));
            assert_eq!(block_on(young.get(&table, &key)).unwrap(), Some(vec![round - 1; bytes]));
        }
    }
    drop(old);
    while db.stats().memory.versions > 10_000 {
        std::thread::yield_now();
    }
    most
}

#[test]
fn an_idle_snapshot_keeps_a_bounded_number_of_before_images() {
    with_limit(LIMIT_SECONDS, |_| {
        let most = most_versions(200, 60);
        assert!(most > 1000 * 200, "the snapshot needs a before-image of each record: {most}");
    });
}

/// Before-images of large values are references; their pieces are removed with them.
#[test]
fn an_idle_snapshot_keeps_a_bounded_number_of_large_values() {
    with_limit(LIMIT_SECONDS, |_| {
        most_versions(3000, 12);
    });
}

/// The accounts with their balances, and values of any length.
struct Bank {
    db: Database,
    table: Table<u64, [u8]>,
    done: AtomicBool,
    moved: AtomicU64,
}

impl Bank {
    fn balance(value: &[u8]) -> u64 {
        u64::from_le_bytes(value[..8].try_into().unwrap())
    }

    fn value(balance: u64, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut value = balance.to_le_bytes().to_vec();
        value.resize(8 + random.usize(..250), random.u8(..));
        value
    }

    /// Moves amounts between accounts until the readers have ended. An account without a balance has
    /// no record. Some transactions abort.
    fn write(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.done.load(Ordering::Relaxed) {
            let (table, attempt) = (self.table.clone(), random.fork());
            let moved = self.db.run_blocking(async move |tx| {
                let mut random = attempt.clone();
                let hot = random.bool();
                for _ in 0..random.usize(1..6) {
                    let account = |random: &mut fastrand::Rng| {
                        if hot { random.u64(..10) } else { random.u64(..ACCOUNTS) }
                    };
                    let (from, to) = (account(&mut random), account(&mut random));
                    let source = tx.get(&table, &from).await?.map_or(0, Self::balance);
                    let amount = random.u64(..=source);
                    let left = Self::value(source - amount, &mut random);
                    match source - amount {
                        0 => drop(tx.delete(&table, &from).await?),
                        _ => tx.put(&table, &from, &left[..]).await?,
                    }
                    let target = tx.get(&table, &to).await?.map_or(0, Self::balance);
                    if target + amount > 0 {
                        let value = Self::value(target + amount, &mut random);
                        tx.put(&table, &to, &value[..]).await?;
                    }
                }
                if random.u8(..5) == 0 { Err(Error::Closed) } else { Ok(()) }
            });
            match moved {
                Ok(()) => _ = self.moved.fetch_add(1, Ordering::Relaxed),
                Err(Error::Closed) => {}
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }

    fn contents(&self, snapshot: &Snapshot) -> BTreeMap<u64, Vec<u8>> {
        let table = self.table.clone();
        let read = snapshot.run(async move |tx| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
            while let Some((key, value)) = scan.next().await? {
                found.insert(key, value.to_vec());
            }
            Ok(found)
        });
        block_on(read).unwrap()
    }

    /// Returns true once pages with chains were evicted and chains were pruned.
    fn has_pruned(&self) -> bool {
        let stats = self.db.stats();
        let moved = self.moved.load(Ordering::Relaxed);
        stats.pages.faults > 100 && stats.versions_pruned > 1000 && moved > 100
    }

    /// Opens and closes snapshots at random, at least 25 times and until chains were pruned. As long
    /// as a snapshot is open, it must return the same records.
    fn read(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut open = Vec::<(Snapshot, BTreeMap<u64, Vec<u8>>)>::new();
        let mut rounds = 0;
        while rounds < 25 || !self.has_pruned() {
            rounds += 1;
            if open.len() < 4 && random.bool() || open.is_empty() {
                let snapshot = block_on(self.db.snapshot()).unwrap();
                let contents = self.contents(&snapshot);
                let sum: u64 = contents.values().map(|value| Self::balance(value)).sum();
                assert_eq!(sum, ACCOUNTS * DEPOSIT, "at {}", snapshot.lsn());
                open.push((snapshot, contents));
            }
            let place = random.usize(..open.len());
            let (snapshot, contents) = &open[place];
            for _ in 0..50 {
                let key = if random.bool() { random.u64(..10) } else { random.u64(..ACCOUNTS) };
                let found = block_on(snapshot.get(&self.table, &key)).unwrap();
                assert_eq!(found.as_ref(), contents.get(&key), "{key} at {}", snapshot.lsn());
            }
            if random.u8(..3) == 0 {
                assert!(self.contents(snapshot) == *contents, "at {}", snapshot.lsn());
                open.swap_remove(place);
            }
        }
    }
}

#[test]
fn snapshots_keep_their_answers_while_chains_are_pruned() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2).durability(Durability::Relaxed);
        // Few frames, so that pages with chains are evicted.
        let options = options.tuning(Tuning::default().page_frames(Some(24)));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = create_table(&db, "accounts", true);
        let filled = table.clone();
        let filled = db.run_blocking(async move |tx| {
            for key in 0..ACCOUNTS {
                tx.put(&filled, &key, &DEPOSIT.to_le_bytes()).await?;
            }
            Ok(())
        });
        filled.unwrap();
        let bank = Bank { db, table, done: AtomicBool::new(false), moved: AtomicU64::new(0) };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|seed| {
                    scope.spawn({
                        let bank = &bank;
                        move || bank.read(seed)
                    })
                })
                .collect();
            for seed in 10..14 {
                let bank = &bank;
                scope.spawn(move || bank.write(seed));
            }
            let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            bank.done.store(true, Ordering::Relaxed);
            read.into_iter().for_each(|read| read.unwrap());
        });
        while bank.db.stats().memory.versions > 10_000 {
            std::thread::yield_now();
        }
        bank.db.close().unwrap();
    });
}
