//! The clients of a soak: overwrites, long readers, and tables that are created and dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Error, Table, TableOptions, Transaction};
use futures_util::stream::{FuturesUnordered, StreamExt};
use pollster::block_on;

/// Records of each of the two tables.
pub(super) const KEYS: u64 = 10_000;
/// Records of a transaction that fills a table.
const BATCH: usize = 500;
/// Records of a table that is created and dropped.
const CHURN_RECORDS: u64 = 50;
const CHURN_BYTES: usize = 100;
const NAMES: [&str; 2] = ["memory", "paged"];
/// Bytes of the turn at the beginning of each value.
const TURN_BYTES: usize = 8;

type Records = Table<u64, [u8]>;

/// Counters of the clients, and the order to stop.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) stop: AtomicBool,
    pub(super) overwrites: AtomicU64,
    pub(super) tables: AtomicU64,
    pub(super) readers: AtomicU64,
    /// Bytes that were logged before the last snapshot but one was taken. Later segments stay on
    /// disk while a snapshot is open, and until a compaction after its end.
    pub(super) logged_before_snapshots: AtomicU64,
}

impl Progress {
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Sleeps, unless the clients must stop.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the bytes of a key's value, which all its values have: a few large ones among small
/// ones.
fn value_bytes(key: u64) -> usize {
    match key % 100 {
        0 => 100_000,
        1..=4 => 5000,
        5..=24 => 1000,
        _ => 200,
    }
}

/// Returns the bytes of keys and values of both tables.
pub(super) fn live_bytes() -> u64 {
    let record = |key| (size_of::<u64>() + value_bytes(key)) as u64;
    NAMES.len() as u64 * (0..KEYS).map(record).sum::<u64>()
}

fn value(key: u64, turn: u64) -> Vec<u8> {
    let mut bytes = vec![(key ^ turn) as u8; value_bytes(key)];
    bytes[..TURN_BYTES].copy_from_slice(&turn.to_le_bytes());
    bytes
}

/// The tables that are overwritten.
#[derive(Clone)]
pub(super) struct Tables([Records; 2]);

impl Tables {
    /// Opens the tables, or creates and fills them.
    pub(super) fn open(db: &Database) -> Result<Self> {
        let create = async |tx: &Transaction| {
            let paged = TableOptions::default().paged();
            Ok::<_, Error>(Self([
                tx.open_or_create_table(NAMES[0]).await?,
                tx.open_or_create_table_with(NAMES[1], paged).await?,
            ]))
        };
        let tables = db.run_blocking(create).context("creating the tables")?;
        for table in &tables.0 {
            if block_on(db.is_empty(table))? {
                fill(db, table).context("filling a table")?;
            }
        }
        Ok(tables)
    }

    /// Overwrites random records in `writers` transactions at a time.
    pub(super) fn overwrite(
        &self,
        db: &Database,
        writers: u64,
        seed: u64,
        progress: &Progress,
    ) -> Result<()> {
        let write = async |writer: u64| {
            let mut random = fastrand::Rng::with_seed(seed ^ writer << 32);
            while !progress.is_over() {
                let (key, turn) = (random.u64(..KEYS), random.u64(..));
                let table = &self.0[random.usize(..2)];
                db.put(table, &key, &value(key, turn)[..]).await.context("overwriting")?;
                progress.overwrites.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, anyhow::Error>(())
        };
        let mut writing: FuturesUnordered<_> = (0..writers).map(write).collect();
        block_on(async {
            while let Some(result) = writing.next().await {
                result?;
            }
            Ok(())
        })
    }

    /// Takes one snapshot after the other, holds each one for `hold`, and reads all records at its
    /// beginning and at its end.
    pub(super) fn read(&self, db: &Database, hold: Duration, progress: &Progress) -> Result<()> {
        let mut logged_before = 0;
        while !progress.is_over() {
            progress.logged_before_snapshots.store(logged_before, Ordering::SeqCst);
            logged_before = db.stats().log.bytes_written;
            let snapshot = block_on(db.snapshot()).context("taking a snapshot")?;
            let read = || {
                let tables = self.clone();
                block_on(snapshot.run(async move |tx| tables.turns(tx).await))
            };
            let before = read().context("reading a snapshot")?;
            progress.pause(hold);
            let after = read().context("reading a snapshot again")?;
            ensure!(before == after, "a snapshot has changed");
            ensure!(before.len() as u64 == 2 * KEYS, "{} records exist", before.len());
            drop(snapshot);
            progress.readers.fetch_add(1, Ordering::SeqCst);
            progress.pause(hold);
        }
        Ok(())
    }

    /// Returns the turns of all values, or `u64::MAX` for a wrong value.
    async fn turns(&self, tx: &Transaction) -> Result<Vec<u64>, Error> {
        let mut turns = Vec::with_capacity(2 * KEYS as usize);
        for table in &self.0 {
            let mut scan = tx.scan(table, ..)?;
            while let Some((key, found)) = scan.next().await? {
                let turn = found.first_chunk().map_or(u64::MAX, |turn| u64::from_le_bytes(*turn));
                let is_right = found == value(key, turn);
                turns.push(if is_right { turn } else { u64::MAX });
            }
        }
        Ok(turns)
    }

    /// Checks that every record has a right value.
    pub(super) fn check(&self, db: &Database) -> Result<()> {
        let tables = self.clone();
        let turns = db.run_blocking(async move |tx| tables.turns(tx).await)?;
        ensure!(turns.len() as u64 == 2 * KEYS, "{} records exist", turns.len());
        ensure!(!turns.contains(&u64::MAX), "a record has a wrong value");
        Ok(())
    }
}

/// Writes all records of a table.
fn fill(db: &Database, table: &Records) -> Result<(), Error> {
    for first in (0..KEYS).step_by(BATCH) {
        let table = table.clone();
        db.run_blocking(async move |tx| {
            for key in first..first + BATCH as u64 {
                tx.put(&table, &key, &value(key, 0)[..]).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Creates, fills and drops one table after the other, of both kinds.
pub(super) fn churn(db: &Database, first: u64, progress: &Progress) -> Result<()> {
    let mut number = first;
    while !progress.is_over() {
        let name = format!("churn-{number}");
        let created = name.clone();
        let is_paged = number.is_multiple_of(2);
        db.run_blocking(async move |tx| {
            let options = TableOptions::default();
            let options = if is_paged { options.paged() } else { options };
            let table: Records = tx.create_table_with(&created, options).await?;
            for key in 0..CHURN_RECORDS {
                tx.put(&table, &key, &[7; CHURN_BYTES]).await?;
            }
            Ok(())
        })
        .context("creating a table")?;
        // Waits for the open snapshots.
        block_on(db.drop_table(&name)).context("dropping a table")?;
        progress.tables.fetch_add(1, Ordering::SeqCst);
        number += 1;
    }
    Ok(())
}
