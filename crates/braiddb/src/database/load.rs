//! Loading a staged table from an iterator. Rows are collected into batches. Each batch is a
//! transaction on one worker, and each worker runs its batches one after the other.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::blocking::refuse_on_worker;
use super::encode::encode_checked;
use super::error::Result;
use super::handle::Database;
use super::stage::StagedTable;
use super::table::Table;
use super::transaction::Transaction;
use super::transaction_builder::Outcome;
use crate::transaction::Isolation;
use crate::types::{Key, Value};

/// Maximum number of rows in one transaction. A worker waits until a batch is durable before it
/// starts the next.
const BATCH_ROWS: usize = 8000;
/// Bytes of keys and values after which a transaction takes no more rows.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of batches running or queued on one worker.
const AHEAD: usize = 8;
/// Maximum bytes of all batches running or queued on workers, unless it is a single batch.
const BYTES_AHEAD: usize = 8 << 20;
/// Rows taken from the iterator before the future yields to other tasks on its thread.
const ROWS_AT_ONCE: usize = 1000;

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// Inserts rows in many transactions on all workers. Returns their number once all are durable
    /// according to [`Options::durability`](crate::Options::durability). Loading is fastest in key
    /// order, which fills the index from one end to the other. `progress` receives the number of
    /// durable rows each time it grows, counted in the order of the rows.
    ///
    /// The future itself runs the iterator, and yields to other tasks after every thousand rows. At
    /// most 8 MiB of rows, or one larger row, wait for the workers, in addition to those of the
    /// next transaction. If the future is dropped or fails, any of the rows taken may be inserted.
    /// The table is then unpublished: discard it, or load other rows. Do not load after publishing,
    /// because the rows would go to a table that others see.
    ///
    /// A worker runs one typed source at a time ([`Database::run_source`]), and the batches of a
    /// load count as such. While a worker runs another source, its batches wait.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let squares = db.stage_table::<u64, u64>("squares").await?;
    ///         let rows = (0..10_000_u64).map(|number| (number, number * number));
    ///         let mut seen = 0;
    ///         assert_eq!(squares.load(rows, |durable| seen = durable).await?, 10_000);
    ///         assert_eq!(seen, 10_000);
    ///         let squares = squares.publish().await?;
    ///         assert_eq!(db.get(&squares, &12).await?, Some(144));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyExists`](crate::Error) if the table already has a key, or the key occurs twice;
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because it might wait
    /// for that transaction; the errors of [`Transaction::insert`] and [`Database::run`].
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
        refuse_on_worker()?;
        let mut load = LoadInProgress::new(self.database(), self.table().encoded());
        let mut loaded = load.take_all::<K, V, _, _, _>(rows, &mut progress).await;
        while loaded.is_ok() && !load.submitted.is_empty() {
            loaded = load.wait_for_oldest(&mut progress).await;
        }
        if loaded.is_err() {
            // All batches must end before this returns. The first error is reported.
            for batch in load.submitted {
                _ = batch.done.await;
            }
        }
        loaded.map(|()| load.durable)
    }
}

/// The encoded rows of one transaction.
#[derive(Debug, Default)]
struct LoadBatch {
    bytes: Vec<u8>,
    /// For each row, the ends of its key and its value.
    ends: Vec<(usize, usize)>,
}

impl LoadBatch {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_ROWS || self.bytes.len() >= BATCH_BYTES
    }

    /// Iterates over keys and values.
    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1));
        let row = |(begin, &(key_end, end)): (usize, &(usize, usize))| {
            (&self.bytes[begin..key_end], &self.bytes[key_end..end])
        };
        begins.zip(&self.ends).map(row)
    }
}

/// A batch that is running or queued on a worker.
struct SubmittedBatch {
    done: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
    rows: u64,
    bytes: usize,
}

/// The batches of one load.
struct LoadInProgress<'d> {
    db: &'d Database,
    table: Table<[u8], [u8]>,
    workers: usize,
    batch: LoadBatch,
    /// Running and queued batches, in submission order.
    submitted: VecDeque<SubmittedBatch>,
    /// Bytes of all running and queued batches.
    bytes: usize,
    /// Number of batches submitted to workers.
    handed: usize,
    /// Number of durable rows.
    durable: u64,
}

impl<'d> LoadInProgress<'d> {
    fn new(db: &'d Database, table: Table<[u8], [u8]>) -> Self {
        let (workers, batch) = (db.shared.engine.workers(), LoadBatch::default());
        let submitted = VecDeque::new();
        Self { db, table, workers, batch, submitted, bytes: 0, handed: 0, durable: 0 }
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
        for (number, (key, value)) in rows.into_iter().enumerate() {
            let key = encode_checked(key.borrow())?;
            self.batch.add(&key, &V::encode(value.borrow())?);
            if self.batch.is_full() {
                self.hand_over(progress).await?;
            }
            if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1 {
                self.give_way(progress).await?;
            }
        }
        self.hand_over(progress).await
    }

    /// Submits the batch to the next worker, once that worker has room.
    async fn hand_over(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let bytes = self.batch.bytes.len();
        while !self.has_room_for(bytes) {
            self.wait_for_oldest(progress).await?;
        }
        let batch = std::mem::take(&mut self.batch);
        if batch.ends.is_empty() {
            return Ok(());
        }
        let (rows, table) = (batch.ends.len() as u64, self.table.clone());
        let body = async move |tx: &Transaction, batch: &LoadBatch| {
            for (key, value) in batch.rows() {
                tx.insert(&table, key, value).await?;
            }
            Ok(())
        };
        let reply = |_, result: Result<Outcome<()>>| result.map(drop);
        // Snapshot isolation suffices: nothing is read, and either isolation level detects an
        // existing key.
        let insert = self.db.transaction().isolation(Isolation::Snapshot);
        let worker = self.handed % self.workers;
        let run = insert.run_source(worker, [batch], body, reply)?;
        self.submitted.push_back(SubmittedBatch { done: Box::pin(run.done()), rows, bytes });
        self.bytes += bytes;
        self.handed += 1;
        Ok(())
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let has_room =
            self.submitted.len() < AHEAD * self.workers && self.bytes + bytes <= BYTES_AHEAD;
        self.submitted.is_empty() || has_room
    }

    /// Yields to other tasks of the thread, and updates the count of durable rows.
    async fn give_way(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let mut gave_way = false;
        poll_fn(|context| {
            while let Poll::Ready(Some(ended)) = self.poll_oldest(context) {
                self.count(ended, progress)?;
            }
            if std::mem::replace(&mut gave_way, true) {
                return Poll::Ready(Ok(()));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    async fn wait_for_oldest(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        match poll_fn(|context| self.poll_oldest(context)).await {
            Some(ended) => self.count(ended, progress),
            None => Ok(()),
        }
    }

    /// Polls the oldest batch: returns its row count or its error when it has ended. Returns `None`
    /// without batches.
    fn poll_oldest(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<u64>>> {
        let Some(oldest) = self.submitted.front_mut() else { return Poll::Ready(None) };
        let ended = std::task::ready!(oldest.done.as_mut().poll(context));
        let SubmittedBatch { rows, bytes, .. } = self.submitted.pop_front().expect("it is there");
        self.bytes -= bytes;
        Poll::Ready(Some(ended.map(|()| rows)))
    }

    fn count(&mut self, ended: Result<u64>, progress: &mut impl FnMut(u64)) -> Result<()> {
        self.durable += ended?;
        progress(self.durable);
        Ok(())
    }
}
