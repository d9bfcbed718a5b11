//! A table that maps numbers to numbers, with an index. Clients run look-ups, scans in both
//! directions, insertions, updates, deletions and savepoints at the isolation level of the round.
//! Each answer is compared with the order of LSNs, or with the snapshot of its transaction.
//!
//! The comparison needs to know how each transaction ended. Therefore clients never abandon a
//! writing transaction as a whole, but they abandon single reads, and some transactions panic. If
//! the database is closed under its clients, only the commits before the first transaction with an
//! unknown end are compared.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use anyhow::{Result, ensure};
use braiddb::{Database, Error, Index, IndexOptions, Isolation, RunOptions, Table, Transaction};
use fastrand::Rng;

use super::client::{ON_PURPOSE, Patience, Shared, wait};
use super::tables::kind;
use crate::history::{self, Answer, History, Shape, let_others_run};

const KEYS: u64 = 48;
const NO_PANIC: &str = "no thread panics while it is locked";

/// The table and the answers in one part of a round.
#[derive(Debug)]
pub(super) struct Map {
    table: Table<u64, u64>,
    index: Index<u64, u64, u64>,
    isolation: Isolation,
    history: Mutex<History>,
    /// The history contains everything that committed before this LSN.
    whole_until: AtomicU64,
}

/// The known contents of the map at the end of a part of a round.
#[derive(Debug, Default)]
pub(super) struct Left {
    history: History,
    whole: bool,
}

impl Map {
    /// Opens or creates the table and checks that it has the contents that the part before left.
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
        // One transaction that puts all records, before everything else.
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
        ensure!(
            found == by_index,
            "the index contains {by_index:?}, but the map contains {found:?}"
        );
        Ok(found)
    }

    /// Checks the recorded answers. The clients must have ended; the database may be closed.
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
    /// Checks that a map contains the results of the recorded transactions.
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
            // Relaxed, here and below: read after the transaction has ended.
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
        let options = RunOptions::default().isolation(map.isolation).read_only(read_only);
        let outcome = wait(pin!(self.db.run_with(options, body)), Patience::Whole);
        let outcome = outcome.expect("waited for");
        let counts = &self.counts;
        // Relaxed, here and below: the transaction has ended, and these are read after the clients
        // end.
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
            // The transaction may have committed; its begin is known.
            Err(Error::Closed) => {
                // Relaxed, both: the transaction has ended, and `whole_until` is read after the
                // clients end.
                map.whole_until.fetch_min(begun.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Err(error) => self.report_problem(format!("a transaction on the map failed: {error}")),
        }
    }
}

/// Begins some reads and drops their futures. Returns the number of reads.
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
