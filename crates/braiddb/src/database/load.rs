//! Filling a staged table from an iterator: rows are gathered to batches, and each batch is a transaction of one
//! worker, which carries its batches out one after the other.

use std::borrow::Borrow;
use std::collections::VecDeque;

use super::Database;
use super::error::Result;
use super::options::{Outcome, RunOptions};
use super::source::SourceRun;
use super::stage::StagedTable;
use super::table::Table;
use super::transaction::{Transaction, encode_checked};
use crate::transaction::Isolation;
use crate::types::{Key, Value};

/// Rows of one transaction at most.
const BATCH_ROWS: usize = 1000;
/// Bytes of keys and values after which a transaction takes no more rows.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that a worker has, or is to have, at a time.
const AHEAD: usize = 8;

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// Inserts rows, in many transactions on all workers, and returns how many when all are durable (as
    /// [`Options::durability`](crate::Options::durability) says). Rows in the order of their keys are the fastest by
    /// far. After each batch that is durable, `progress` is given the number of rows that are, in the order in which
    /// they were given. At most some MiB of rows are kept in memory, or a few of the largest rows.
    ///
    /// The iterator is run by the future, about a thousand rows at a time. If the future is dropped, rows that were
    /// taken are inserted or not; so they are after an error. The table is not published then: discard it, or go on
    /// with other rows.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let squares = db.stage_table::<u64, u64>("squares").await?;
    /// let rows = (0..10_000_u64).map(|number| (number, number * number));
    /// let mut seen = 0;
    /// assert_eq!(squares.load(rows, |durable| seen = durable).await?, 10_000);
    /// assert_eq!(seen, 10_000);
    /// let squares = squares.publish().await?;
    /// assert_eq!(db.get(&squares, &12).await?, Some(144));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyExists`](crate::Error) if the table has a key by then, or it is given twice; the errors of
    /// [`Transaction::insert`] and [`Database::run`].
    pub async fn load<R, KeyOf, ValueOf>(
        &self,
        rows: R,
        mut progress: impl FnMut(u64),
    ) -> Result<u64>
    where
        R: IntoIterator<Item = (KeyOf, ValueOf)>,
        KeyOf: Borrow<K>,
        ValueOf: Borrow<V::Input>,
    {
        let mut loading = Loading::new(self.database(), self.table().encoded());
        let mut loaded = loading.take_all::<K, V, _, _, _>(rows, &mut progress).await;
        while loaded.is_ok() && !loading.under_way.is_empty() {
            loaded = loading.wait_for_oldest(&mut progress).await;
        }
        if loaded.is_err() {
            // Nothing goes on when this returns. What failed first is told.
            for (run, _) in loading.under_way {
                _ = run.done().await;
            }
        }
        loaded.map(|()| loading.durable)
    }
}

/// Rows of one transaction, as they are stored.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each row's key ends, and its value.
    ends: Vec<(usize, usize)>,
}

impl Batch {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_ROWS || self.bytes.len() >= BATCH_BYTES
    }

    /// Keys and values.
    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1));
        let row = |(begin, &(key_end, end)): (usize, &(usize, usize))| {
            (&self.bytes[begin..key_end], &self.bytes[key_end..end])
        };
        begins.zip(&self.ends).map(row)
    }
}

/// Batches on their way into a table.
struct Loading<'d> {
    db: &'d Database,
    table: Table<[u8], [u8]>,
    workers: usize,
    batch: Batch,
    /// In the order in which they were given, with their rows.
    under_way: VecDeque<(SourceRun, u64)>,
    /// Batches that were handed to workers.
    handed: usize,
    /// Rows that are durable.
    durable: u64,
}

impl<'d> Loading<'d> {
    fn new(db: &'d Database, table: Table<[u8], [u8]>) -> Self {
        let (workers, batch) = (db.shared.engine.workers(), Batch::default());
        Self { db, table, workers, batch, under_way: VecDeque::new(), handed: 0, durable: 0 }
    }

    async fn take_all<K, V, R, KeyOf, ValueOf>(
        &mut self,
        rows: R,
        progress: &mut impl FnMut(u64),
    ) -> Result<()>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
        R: IntoIterator<Item = (KeyOf, ValueOf)>,
        KeyOf: Borrow<K>,
        ValueOf: Borrow<V::Input>,
    {
        for (key, value) in rows {
            let key = encode_checked(key.borrow())?;
            self.batch.add(&key, &V::encode(value.borrow())?);
            if self.batch.is_full() {
                self.hand_over()?;
                while self.under_way.len() > AHEAD * self.workers {
                    self.wait_for_oldest(progress).await?;
                }
            }
        }
        self.hand_over()
    }

    /// Gives the batch to the next worker.
    fn hand_over(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.ends.is_empty() {
            return Ok(());
        }
        let (rows, table) = (batch.ends.len() as u64, self.table.clone());
        let body = async move |tx: &Transaction, batch: &Batch| {
            for (key, value) in batch.rows() {
                tx.insert(&table, key, value).await?;
            }
            Ok(())
        };
        let reply = |_, result: Result<Outcome<()>>| result.map(drop);
        // Nothing is read, and whether a key is there is seen under either isolation.
        let options = RunOptions::default().isolation(Isolation::Snapshot);
        let worker = self.handed % self.workers;
        let run = self.db.run_source_with(worker, options, [batch], body, reply)?;
        self.under_way.push_back((run, rows));
        self.handed += 1;
        Ok(())
    }

    async fn wait_for_oldest(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let Some((oldest, rows)) = self.under_way.pop_front() else { return Ok(()) };
        oldest.done().await?;
        self.durable += rows;
        progress(self.durable);
        Ok(())
    }
}
