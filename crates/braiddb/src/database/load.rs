//! Filling a staged table from an iterator: rows are gathered to batches, and each batch is a transaction of one
//! worker, which carries its batches out one after the other.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::Result;
use super::options::{Outcome, RunOptions};
use super::stage::StagedTable;
use super::table::Table;
use super::transaction::{Transaction, encode_checked};
use super::{Database, refuse_on_worker};
use crate::transaction::Isolation;
use crate::types::{Key, Value};

/// Rows of one transaction at most. A worker waits for a batch to be durable before it begins the next.
const BATCH_ROWS: usize = 8000;
/// Bytes of keys and values after which a transaction takes no more rows.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that a worker has, or is to have, at a time.
const AHEAD: usize = 8;
/// Bytes of all batches that workers have or are to have, unless it is one alone.
const BYTES_AHEAD: usize = 8 << 20;
/// Rows that are taken from the iterator before others on the same thread are let go on.
const ROWS_AT_ONCE: usize = 1000;

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// Inserts rows, in many transactions on all workers, and returns how many when all are durable (as
    /// [`Options::durability`](crate::Options::durability) says). Rows are best given in the order of their keys, which
    /// fills the index from one end to the other. `progress` is given the number of rows that are durable, each time
    /// that there are more, in the order in which they were given.
    ///
    /// The iterator is run by the future, a thousand rows at a time; then it gives way to others of its thread. At most
    /// 8 MiB of rows wait for the workers, or a single row that is larger, beside the next transaction's. If the future
    /// is dropped, rows that were taken are inserted or not; so they are after an error. The table is not published
    /// then: discard it, or go on with other rows. Once it is published, rows go to a table that others see.
    ///
    /// A worker runs one typed source after the other ([`Database::run_source`]), and the batches of a load are such:
    /// while a worker has another one under way, they wait.
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
    /// [`Error::KeyExists`](crate::Error) if the table has a key by then, or it is given twice;
    /// [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, for which it might wait; the errors of
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
        refuse_on_worker()?;
        let mut loading = Loading::new(self.database(), self.table().encoded());
        let mut loaded = loading.take_all::<K, V, _, _, _>(rows, &mut progress).await;
        while loaded.is_ok() && !loading.under_way.is_empty() {
            loaded = loading.wait_for_oldest(&mut progress).await;
        }
        if loaded.is_err() {
            // Nothing goes on when this returns. What failed first is told.
            for under_way in loading.under_way {
                _ = under_way.done.await;
            }
        }
        loaded.map(|()| loading.durable)
    }
}

/// Rows of one transaction, as they are stored.
#[derive(Debug, Default)]
struct LoadBatch {
    bytes: Vec<u8>,
    /// Where each row's key ends, and its value.
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

    /// Keys and values.
    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1));
        let row = |(begin, &(key_end, end)): (usize, &(usize, usize))| {
            (&self.bytes[begin..key_end], &self.bytes[key_end..end])
        };
        begins.zip(&self.ends).map(row)
    }
}

/// A batch that a worker has, or is to have.
struct UnderWay {
    done: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
    rows: u64,
    bytes: usize,
}

/// Batches on their way into a table.
struct Loading<'d> {
    db: &'d Database,
    table: Table<[u8], [u8]>,
    workers: usize,
    batch: LoadBatch,
    /// In the order in which they were given.
    under_way: VecDeque<UnderWay>,
    /// Of all that are under way.
    bytes: usize,
    /// Batches that were handed to workers.
    handed: usize,
    /// Rows that are durable.
    durable: u64,
}

impl<'d> Loading<'d> {
    fn new(db: &'d Database, table: Table<[u8], [u8]>) -> Self {
        let (workers, batch) = (db.shared.engine.workers(), LoadBatch::default());
        let under_way = VecDeque::new();
        Self { db, table, workers, batch, under_way, bytes: 0, handed: 0, durable: 0 }
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

    /// Gives the batch to the next worker, once there is room for it.
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
        // Nothing is read, and whether a key is there is seen under either isolation.
        let options = RunOptions::default().isolation(Isolation::Snapshot);
        let worker = self.handed % self.workers;
        let run = self.db.run_source_with(worker, options, [batch], body, reply)?;
        self.under_way.push_back(UnderWay { done: Box::pin(run.done()), rows, bytes });
        self.bytes += bytes;
        self.handed += 1;
        Ok(())
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let has_room =
            self.under_way.len() < AHEAD * self.workers && self.bytes + bytes <= BYTES_AHEAD;
        self.under_way.is_empty() || has_room
    }

    /// Lets others of the thread go on, and counts what is durable by now.
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

    /// The oldest batch, if it is over: its rows, or why it failed. `None` if there is none.
    fn poll_oldest(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<u64>>> {
        let Some(oldest) = self.under_way.front_mut() else { return Poll::Ready(None) };
        let ended = std::task::ready!(oldest.done.as_mut().poll(context));
        let UnderWay { rows, bytes, .. } = self.under_way.pop_front().expect("it is there");
        self.bytes -= bytes;
        Poll::Ready(Some(ended.map(|()| rows)))
    }

    fn count(&mut self, ended: Result<u64>, progress: &mut impl FnMut(u64)) -> Result<()> {
        self.durable += ended?;
        progress(self.durable);
        Ok(())
    }
}
