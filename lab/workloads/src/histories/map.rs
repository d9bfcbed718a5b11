//! A table that is a map from numbers to numbers, with an index: look-ups, scans both ways, insertions, updates,
//! deletions and savepoints, at the isolation level of the round. Each answer is held against the order of LSNs, or
//! against each one's snapshot.
//!
//! How a transaction ended must be known for that. So none that writes is given up as a whole; but reads within one
//! are, and some panic. Where the database is closed under its clients, what committed before the first transaction
//! of which nobody knows is held against the order.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use anyhow::{Result, ensure};
use braiddb::{Database, Error, Index, IndexOptions, Isolation, Table, Transaction};
use fastrand::Rng;

use super::client::{ON_PURPOSE, Patience, Shared, wait};
use super::tables::kind;
use crate::history::{self, Answer, History, Shape, let_others_run};

const KEYS: u64 = 48;
const NO_PANIC: &str = "nobody panics with it";

/// The table, and what was told of it in one part of a round.
#[derive(Debug)]
pub(super) struct Map {
    table: Table<u64, u64>,
    index: Index<u64, u64, u64>,
    isolation: Isolation,
    history: Mutex<History>,
    /// Whatever committed before this LSN is in the history.
    whole_until: AtomicU64,
}

/// What is known of the map when a part of a round is over.
#[derive(Debug, Default)]
pub(super) struct Left {
    history: History,
    whole: bool,
}

impl Map {
    /// Opens the table, or makes it, and looks that what is in it is what an earlier part left.
    pub(super) async fn open(db: &Database, seed: u64, before: &Left) -> Result<Self> {
        let mut random = Rng::with_seed(seed);
        let table: Table<u64, u64> = db.open_or_create_table_with("map", kind(&mut random)).await?;
        let index = db.index(&table, "by", IndexOptions::default(), history::extract).await?;
        let isolation = if random.bool() { Isolation::Serializable } else { Isolation::Snapshot };
        let map = Self {
            table,
            index,
            isolation,
            history: Mutex::default(),
            whole_until: AtomicU64::new(u64::MAX),
        };
        let found = map.contents(db).await?;
        before.check(&found)?;
        // All of it at once, before everything else.
        let puts = found.iter().map(|(key, value)| Answer::Put(*key, *value)).collect();
        map.history.lock().expect(NO_PANIC).add(0, 0, puts);
        Ok(map)
    }

    async fn contents(&self, db: &Database) -> Result<BTreeMap<u64, u64>> {
        let (table, index) = (self.table.clone(), self.index.clone());
        let found = db.run(async move |tx: &Transaction| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
            while let Some((key, value)) = scan.next().await? {
                found.insert(key, value);
            }
            let (mut scan, mut by_index) = (tx.scan_by(&index, ..)?.rev(), BTreeMap::new());
            while let Some((_, key, value)) = scan.next().await? {
                by_index.insert(key, value);
            }
            Ok::<_, Error>((found, by_index))
        });
        let (found, by_index) = found.await?;
        ensure!(found == by_index, "the index leads to {by_index:?}, the map has {found:?}");
        Ok(found)
    }

    /// Holds what was told against what must be so. The clients are over; the database may be closed.
    pub(super) fn check(self) -> Result<Left> {
        let (history, until) =
            (self.history.into_inner().expect(NO_PANIC), self.whole_until.into_inner());
        let known = history.clone().before(until);
        let checked = if self.isolation == Isolation::Serializable {
            known.replay(&mut BTreeMap::new())
        } else {
            known.check_snapshots()
        };
        checked.map_err(|wrong| anyhow::anyhow!("the map: {wrong}"))?;
        Ok(Left { history, whole: until == u64::MAX })
    }
}

impl Left {
    /// Looks that a map has what the transactions left of which this knows.
    fn check(&self, found: &BTreeMap<u64, u64>) -> Result<()> {
        if self.whole && !self.history.is_empty() {
            let history = self.history.clone();
            let all = history.len();
            let recovered = history.recovered(all, found);
            recovered.map_err(|wrong| anyhow::anyhow!("the map after opening: {wrong}"))?;
        }
        Ok(())
    }
}

impl Shared {
    pub(super) fn on_the_map(&self, random: &mut Rng) {
        let map = &self.map;
        let (table, index, seed) = (map.table.clone(), map.index.clone(), random.u64(..));
        let (read_only, panics) = (random.u8(..4) == 0, random.u8(..50) == 0);
        let (given_up, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let (dropped, first) = (given_up.clone(), begun.clone());
        let body = async move |tx: &Transaction| {
            // Relaxed, here and below: looked at when the transaction is over.
            first.fetch_min(tx.snapshot_lsn(), Ordering::Relaxed);
            let random = &mut Rng::with_seed(seed ^ u64::from(tx.attempt()));
            let shape = Shape { keys: KEYS, operations: 5, read_only };
            let mut answers = Vec::new();
            for _ in 0..random.u8(1..3) {
                dropped.fetch_add(give_reads_up(tx, &table, random)?, Ordering::Relaxed);
                let more = history::transaction(tx, &table, Some(&index), shape, random).await?;
                answers.extend(more);
                let_others_run().await;
            }
            assert!(!panics, "{ON_PURPOSE}");
            Ok::<_, Error>((tx.snapshot_lsn(), answers))
        };
        let outcome = wait(
            pin!(self.db.transaction().isolation(map.isolation).read_only(read_only).run(body)),
            Patience::Whole,
        );
        let outcome = outcome.expect("waited for");
        let counts = &self.counts;
        // Relaxed, here and below: the transaction is over, and these are read when the clients are.
        counts.given_up.fetch_add(given_up.load(Ordering::Relaxed), Ordering::Relaxed);
        match outcome {
            Ok(outcome) => {
                let (snapshot, answers) = outcome.value;
                counts.committed.fetch_add(1, Ordering::Relaxed);
                counts.note(&answers);
                map.history.lock().expect(NO_PANIC).add(snapshot, outcome.commit_lsn, answers);
            }
            Err(Error::Panicked(message)) if message == ON_PURPOSE => {
                // Relaxed, here and below: as above.
                counts.panicked.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Conflict { .. } | Error::NotSerializable { .. }) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            // It may have committed; before that it has begun.
            Err(Error::Closed) => {
                // Relaxed, both: the transaction is over, and `whole_until` is read when the clients are.
                map.whole_until.fetch_min(begun.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Err(error) => self.report_problem(format!("a transaction on the map failed: {error}")),
        }
    }
}

/// Begins some reads and drops their futures; how many.
fn give_reads_up(
    tx: &Transaction,
    table: &Table<u64, u64>,
    random: &mut Rng,
) -> Result<u64, Error> {
    let count = random.u64(..3);
    for _ in 0..count {
        let (key, context) = (random.u64(..KEYS), &mut Context::from_waker(Waker::noop()));
        if random.bool() {
            _ = pin!(tx.get(table, &key)).poll(context);
        } else {
            let mut scan = tx.scan(table, key..)?;
            _ = pin!(scan.next()).poll(context);
        }
    }
    Ok(count)
}
