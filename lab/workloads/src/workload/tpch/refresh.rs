//! Refreshes, each one transaction or one bulk operation: RF1 inserts the next orders, RF2 deletes
//! the oldest. Each refresh changes a thousandth of all orders. The expected results of concurrent
//! queries are recorded.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braiddb::{Database, Error, Transaction};

use super::generate::Generator;
use super::queries::{Answer, Query};
use super::schema::{FullOrder, Tables};
use crate::workload::encoding::Encoded;
use crate::workload::missing_record;

/// One refresh inserts or deletes one order in this number.
const PART: u64 = 1_000;

/// The expected query results after each refresh, and the number of refreshes that ended.
#[derive(Debug)]
pub(super) struct Expected {
    /// The first element holds the results after loading, the last one those after the newest
    /// refresh.
    after: Mutex<Vec<Answer>>,
    committed: AtomicUsize,
}

impl Expected {
    pub(super) fn new(loaded: Answer) -> Self {
        Self { after: Mutex::new(vec![loaded]), committed: AtomicUsize::new(0) }
    }

    fn after(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of refreshes that ended: a query that begins now sees them.
    pub(super) fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }

    /// Returns true if a query may return this answer, when it ends now and began after `committed`
    /// refreshes.
    pub(super) fn has(&self, answer: &Answer, query: Query, committed: usize) -> bool {
        self.after()[committed..].iter().any(|one| one.of(query) == *answer)
    }

    /// Records that a refresh begins, which inserts or deletes these orders.
    fn begin(&self, orders: &[FullOrder], kind: Kind) {
        let mut after = self.after();
        let mut answer = after.last().expect("what was loaded").clone();
        let times = match kind {
            Kind::Insertion => 1,
            Kind::Deletion => -1,
        };
        orders.iter().for_each(|order| answer.add(order, times));
        after.push(answer);
    }

    fn end(&self) {
        self.committed.fetch_add(1, Ordering::SeqCst);
    }
}

/// The kind of refresh: RF1 or RF2.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Insertion,
    Deletion,
}

/// The refreshes of one database.
#[derive(Clone)]
pub(super) struct Refreshes {
    pub(super) database: Database,
    pub(super) tables: Tables,
    pub(super) generator: Generator,
    pub(super) expected: Arc<Expected>,
    /// The number of completed pairs of refreshes of all threads.
    pub(super) pairs: Arc<AtomicU64>,
    /// True if each refresh is a bulk operation.
    pub(super) in_bulk: bool,
}

impl Refreshes {
    /// Runs pairs of refreshes, at least one, until `stop` is set. Returns the number of rows that
    /// changed.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<u64, Error> {
        let mut rows = 0;
        loop {
            let each = (self.generator.orders() / PART).max(1);
            // Relaxed: only one thread at a time runs refreshes.
            let oldest = self.pairs.load(Ordering::Relaxed) * each;
            let next = oldest + self.generator.orders();
            rows += self.refresh(next..next + each, Kind::Insertion)?;
            rows += self.refresh(oldest..oldest + each, Kind::Deletion)?;
            self.pairs.fetch_add(1, Ordering::Relaxed);
            // Relaxed: joining the thread makes its results visible.
            if stop.load(Ordering::Relaxed) {
                return Ok(rows);
            }
        }
    }

    fn refresh(&self, numbers: Range<u64>, kind: Kind) -> Result<u64, Error> {
        let orders: Vec<FullOrder> = numbers.map(|number| self.generator.order(number)).collect();
        let rows = orders.iter().map(|order| 1 + order.lines.len() as u64).sum();
        self.expected.begin(&orders, kind);
        let tables = self.tables.clone();
        let listed = (tables.orders.clone(), tables.lines.clone());
        let body = async move |tx: &Transaction| {
            for order in &orders {
                match kind {
                    Kind::Insertion => insert(tx, &tables, order).await?,
                    Kind::Deletion => delete(tx, &tables, order).await?,
                }
            }
            Ok(())
        };
        match self.in_bulk {
            true => pollster::block_on(self.database.run_bulk(listed, body))?,
            false => self.database.run_blocking(body)?,
        }
        self.expected.end();
        Ok(rows)
    }
}

async fn insert(tx: &Transaction, tables: &Tables, full: &FullOrder) -> Result<(), Error> {
    tx.insert(&tables.orders, &full.key, &Encoded::of(&full.order)).await?;
    for (key, line) in full.keyed_lines() {
        tx.insert(&tables.lines, &key, &Encoded::of(&line)).await?;
    }
    Ok(())
}

/// Deletes an order with all its lines, which must exist.
async fn delete(tx: &Transaction, tables: &Tables, full: &FullOrder) -> Result<(), Error> {
    let mut is_there = tx.delete(&tables.orders, &full.key).await?;
    for (key, _) in full.keyed_lines() {
        is_there &= tx.delete(&tables.lines, &key).await?;
    }
    if is_there { Ok(()) } else { Err(missing_record()) }
}
