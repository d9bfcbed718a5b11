//! Refreshes, each one transaction, or one bulk operation: RF1 inserts the orders that come next, RF2 deletes the oldest, a thousandth of
//! all. What queries may find while they run is kept.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braiddb::{Database, Error, Transaction};

use super::generate::Generator;
use super::queries::{Answer, Query};
use super::schema::{FullOrder, Tables};

/// Part of the orders that one refresh inserts or deletes.
const PART: u64 = 1_000;

/// What the queries find after each refresh, and how many of them are over.
#[derive(Debug)]
pub(super) struct Expected {
    /// The first after loading; the last after the refresh that was begun last.
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

    /// Refreshes that are over: a query that begins now sees them.
    pub(super) fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }

    /// Whether a query may have found this that began when so many refreshes were over, and is over now.
    pub(super) fn has(&self, answer: &Answer, query: Query, committed: usize) -> bool {
        self.after()[committed..].iter().any(|one| one.of(query) == *answer)
    }

    /// A refresh begins, of these orders, which come or go.
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

/// RF1 and RF2.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Insertion,
    Deletion,
}

/// Refreshes of one database.
#[derive(Clone)]
pub(super) struct Refreshes {
    pub(super) database: Database,
    pub(super) tables: Tables,
    pub(super) generator: Generator,
    pub(super) expected: Arc<Expected>,
    /// Pairs of refreshes that are over, by whoever made them.
    pub(super) pairs: Arc<AtomicU64>,
    /// Whether each is a bulk operation.
    pub(super) in_bulk: bool,
}

impl Refreshes {
    /// Makes pairs of refreshes, one at least, until it is told to stop; how many rows these changed.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<u64, Error> {
        let mut rows = 0;
        loop {
            let each = (self.generator.orders() / PART).max(1);
            // Relaxed: one thread at a time makes refreshes.
            let oldest = self.pairs.load(Ordering::Relaxed) * each;
            let next = oldest + self.generator.orders();
            rows += self.refresh(next..next + each, Kind::Insertion)?;
            rows += self.refresh(oldest..oldest + each, Kind::Deletion)?;
            self.pairs.fetch_add(1, Ordering::Relaxed);
            // Relaxed: what is told by it is told by the thread's end.
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
    tx.insert(&tables.orders, &full.key, &full.order).await?;
    for (key, line) in full.keyed_lines() {
        tx.insert(&tables.lines, &key, &line).await?;
    }
    Ok(())
}

/// All of it is there.
async fn delete(tx: &Transaction, tables: &Tables, full: &FullOrder) -> Result<(), Error> {
    let mut is_there = tx.delete(&tables.orders, &full.key).await?;
    for (key, _) in full.keyed_lines() {
        is_there &= tx.delete(&tables.lines, &key).await?;
    }
    if is_there { Ok(()) } else { Err(Error::KeyNotFound) }
}
