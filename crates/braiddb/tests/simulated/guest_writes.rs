//! Writes on the callers' threads, concurrent with transactions of workers, in controlled schedules of
//! two workers and three clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use braiddb::simulation::{
    Runner, ScheduleOptions, ScheduleResult, SimulatedDisk, block_on, found_wrong, spawn,
    switch_threads,
};
use braiddb::{Database, Durability, Error, Options, Table, Transaction};
use fastrand::Rng;

use crate::common::with_limit;

const LIMIT_SECONDS: u64 = 600;
const SCHEDULES: u64 = 150;
/// Far more than a schedule needs.
const MAX_STEPS: u64 = 10_000_000;
const CLIENTS: u64 = 3;
const KEYS: u64 = 3;
const STEPS: u64 = 12;

type Records = Table<u64, u64>;

/// Insertions less deletions of each shared record.
type Counts = Arc<[AtomicI64; KEYS as usize]>;

struct Client {
    db: Database,
    table: Records,
    counts: Counts,
    number: u64,
    random: Rng,
}

impl Client {
    /// Inserts, deletes, overwrites and reads records until the database is closed.
    fn run(mut self) {
        for step in 0..STEPS {
            match self.step(step) {
                Ok(()) | Err(Error::KeyExists { .. } | Error::Conflict { .. }) => {}
                Err(Error::Closed) => return,
                Err(error) => found_wrong(format!("client {}: {error}", self.number)),
            }
        }
    }

    fn step(&mut self, step: u64) -> Result<(), Error> {
        let (db, table, key) = (&self.db, self.table.clone(), self.random.u64(0..KEYS));
        let count = &self.counts[key as usize];
        match self.random.u32(0..5) {
            0 => {
                block_on(db.insert(&table, &key, &step))?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            1 => {
                let insert = async move |tx: &Transaction| tx.insert(&table, &key, &step).await;
                block_on(db.run(insert))?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            2 => {
                let deleted = block_on(db.delete(&table, &key))?;
                count.fetch_sub(deleted.into(), Ordering::SeqCst);
            }
            3 => {
                let delete = async move |tx: &Transaction| tx.delete(&table, &key).await;
                let deleted = block_on(db.run(delete))?;
                count.fetch_sub(deleted.into(), Ordering::SeqCst);
            }
            _ => {
                // Only this client writes the record.
                let own = 100 + self.number;
                block_on(db.put(&table, &own, &step))?;
                let found = block_on(db.get(&table, &own))?;
                if found != Some(step) {
                    found_wrong(format!("put {step}, and read {found:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Runs one schedule. In some, the database is closed while the clients run.
fn schedule(seed: u64, durability: Durability) {
    let closes_early = seed.is_multiple_of(4);
    let disk = SimulatedDisk::new(seed);
    let open = || {
        let options = Options::default().workers(2).durability(durability);
        Database::open_simulated(&disk, options, seed).expect("the disk has no faults")
    };
    let db = open();
    let table: Records = block_on(db.create_table("records")).expect("the first table");
    let counts = Counts::default();
    let client = |number| Client {
        db: db.clone(),
        table: table.clone(),
        counts: counts.clone(),
        number,
        random: Rng::with_seed(seed * CLIENTS + number),
    };
    switch_threads(true);
    let clients = (0..CLIENTS).map(|number| {
        let client = client(number);
        spawn(&format!("client {number}"), move || client.run())
    });
    let clients: Vec<_> = clients.collect();
    if closes_early {
        db.close().expect("the disk has no faults");
    }
    clients.into_iter().for_each(|client| client.join());
    if !closes_early {
        check(&db, &table, &counts, 0);
        db.close().expect("the disk has no faults");
    }
    drop((db, table));
    if durability == Durability::Relaxed {
        let db = open();
        let table: Records = block_on(db.open_table("records")).expect("it was flushed");
        // The close may have prevented one result of each client.
        check(&db, &table, &counts, if closes_early { CLIENTS as i64 } else { 0 });
        db.close().expect("the disk has no faults");
    }
}

/// Checks that the shared records exist that were inserted more often than deleted, except for a
/// number of unknown results.
fn check(db: &Database, table: &Records, counts: &Counts, unknown: i64) {
    for (count, key) in counts.iter().zip(0..) {
        let exists = block_on(db.contains(table, &key)).expect("it is open");
        let count = count.load(Ordering::SeqCst);
        if (count - i64::from(exists)).abs() > unknown {
            found_wrong(format!("{count} more insertions of {key} than deletions: {exists}"));
        }
    }
}

#[test]
fn schedules_of_guests_and_workers_agree() {
    with_limit(LIMIT_SECONDS, |_| {
        let runner = Runner::default();
        for seed in 0..SCHEDULES {
            for durability in [Durability::Volatile, Durability::Relaxed] {
                let options = ScheduleOptions { seed, max_steps: MAX_STEPS, trace: false };
                let ran = runner.run(options, move || schedule(seed, durability));
                if let ScheduleResult::Found(finding) = ran {
                    panic!("seed {seed}, {durability:?}: {finding:?}");
                }
            }
        }
    });
}
