//! Writes on the callers' threads, concurrent with transactions of workers, in controlled schedules of
//! two workers and three clients.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use braiddb::simulation::{
    CrashCounts, Faults, Runner, ScheduleOptions, ScheduleResult, SimulatedDisk, block_on,
    found_wrong, spawn, switch_threads,
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

/// Writers of which each record names the records that were acknowledged before it.
#[derive(Clone)]
struct Witnesses {
    db: Database,
    table: Table<u64, [u8]>,
    acknowledged: Arc<[AtomicI64; CLIENTS as usize]>,
    /// True once a writer received an error of the log.
    has_failed: Arc<AtomicBool>,
}

impl Witnesses {
    /// Inserts records until an insertion fails.
    fn run(&self, client: u64) {
        for number in 0..4 * STEPS {
            let seen = self.acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
            let had_failed = self.has_failed.load(Ordering::SeqCst);
            let value: Vec<u8> = seen.iter().flat_map(|count| count.to_le_bytes()).collect();
            match block_on(self.db.insert(&self.table, &(client << 32 | number), &value)) {
                Ok(()) if had_failed => {
                    found_wrong(format!("client {client} wrote {number} after a failure"));
                }
                Ok(()) => _ = self.acknowledged[client as usize].fetch_add(1, Ordering::SeqCst),
                Err(Error::Io(_) | Error::CommitUnknown { .. }) => {
                    self.has_failed.store(true, Ordering::SeqCst);
                    return;
                }
                Err(error) => found_wrong(format!("client {client}: {error}")),
            }
        }
    }

    /// Runs all clients on a new database, and watches its disk from before their first write on.
    fn run_all(disk: &SimulatedDisk, seed: u64, begin: impl FnOnce()) -> Self {
        let options = Options::default().workers(2).durability(Durability::Relaxed);
        let db = Database::open_simulated(disk, options, seed).expect("the disk has no faults");
        let table = block_on(db.create_table("records")).expect("the first table");
        let (acknowledged, has_failed) = Default::default();
        let witnesses = Self { db, table, acknowledged, has_failed };
        begin();
        switch_threads(true);
        let clients = (0..CLIENTS).map(|client| {
            let witnesses = witnesses.clone();
            spawn(&format!("client {client}"), move || witnesses.run(client))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().for_each(|client| client.join());
        witnesses
    }

    /// Checks that the records on a disk are those of a prefix of the log. Returns their number.
    fn check(disk: &SimulatedDisk, seed: u64) -> u64 {
        let options = Options::default().workers(2).durability(Durability::Relaxed);
        let db = Database::open_simulated(disk, options, seed).expect("the disk has no faults");
        let table: Table<u64, [u8]> = match block_on(db.open_table("records")) {
            Ok(table) => table,
            Err(Error::TableNotFound(_)) => return 0,
            Err(error) => found_wrong(format!("{error}")),
        };
        let records = block_on(async { db.scan(&table, ..).await }).expect("they are there");
        let mut counts = [0; CLIENTS as usize];
        for (key, _) in &records {
            let count: &mut u64 = &mut counts[(key >> 32) as usize];
            if key & 0xFFFF_FFFF != *count {
                found_wrong(format!("record {count} before {key:x} is lost"));
            }
            *count += 1;
        }
        for (key, value) in &records {
            let seen = value.chunks(8).map(|count| u64::from_le_bytes(count.try_into().unwrap()));
            if seen.zip(counts).any(|(seen, count)| seen > count) {
                found_wrong(format!("{key:x} is there, but not all of {value:?}: {counts:?}"));
            }
        }
        db.close().expect("the disk has no faults");
        counts.iter().sum()
    }
}

/// Runs a schedule for each seed.
fn for_each_seed(run: impl Fn(u64) + Clone + Send + 'static) {
    with_limit(LIMIT_SECONDS, move |_| {
        let runner = Runner::default();
        for seed in 0..SCHEDULES {
            let (options, run) =
                (ScheduleOptions { seed, max_steps: MAX_STEPS, trace: false }, run.clone());
            if let ScheduleResult::Found(finding) = runner.run(options, move || run(seed)) {
                panic!("seed {seed}: {finding:?}");
            }
        }
    });
}

/// A crash loses the newest writes of all guests, but no earlier one.
#[test]
fn a_crash_leaves_a_prefix_of_what_guests_wrote() {
    let (lost, kept) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let counts = (lost.clone(), kept.clone());
    for_each_seed(move |seed| {
        let (disk, crashed) = (SimulatedDisk::new(seed), Arc::new(Mutex::new(None)));
        let watch = || {
            let (crashed, mut left) = (crashed.clone(), 1 + seed % 7);
            disk.watch(move |moment| {
                left = left.saturating_sub(1);
                if left == 0 {
                    let crash = || moment.crash(seed, &mut CrashCounts::default());
                    crashed.lock().unwrap().get_or_insert_with(crash);
                }
            });
        };
        let witnesses = Witnesses::run_all(&disk, seed, watch);
        let now = disk.crash(seed, &mut CrashCounts::default());
        witnesses.db.close().expect("the disk has no faults");
        disk.unwatch();
        let crashed = crashed.lock().unwrap().take();
        for disk in crashed.iter().chain([&now]) {
            let there = Witnesses::check(disk, seed) as i64;
            kept.fetch_add(there, Ordering::SeqCst);
            lost.fetch_add((CLIENTS * 4 * STEPS) as i64 - there, Ordering::SeqCst);
        }
    });
    let (lost, kept) = (counts.0.load(Ordering::SeqCst), counts.1.load(Ordering::SeqCst));
    assert!(lost > 0 && kept > 0, "{lost}, {kept}");
}

/// After a guest has received an error of the log, no guest's write succeeds, and none hangs.
#[test]
fn no_guest_writes_after_the_log_failed() {
    let failed = Arc::new(AtomicI64::new(0));
    let count = failed.clone();
    for_each_seed(move |seed| {
        let disk = SimulatedDisk::new(seed);
        let fail_later = || {
            let failing_write = disk.counts().writes + 1 + seed % 5;
            disk.set_faults(Faults { failing_write, max_delay: 3, ..Faults::default() });
        };
        let witnesses = Witnesses::run_all(&disk, seed, fail_later);
        let closed = witnesses.db.close();
        let has_failed = witnesses.has_failed.load(Ordering::SeqCst);
        if has_failed && closed.is_ok() {
            found_wrong("the log failed, and the close does not say so".to_owned());
        }
        failed.fetch_add(has_failed.into(), Ordering::SeqCst);
        Witnesses::check(&disk.copy(seed), seed);
    });
    assert!(count.load(Ordering::SeqCst) > 0, "the log never failed while guests wrote");
}
