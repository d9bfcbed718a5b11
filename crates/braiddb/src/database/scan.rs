//! Typed scans, which return one record after another.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::error::{Error, Result};
use super::table::Table;
use super::unfold::unfold;
use crate::sched::{engine_call, engine_code};
use crate::transaction::{self, Direction, ScanBounds};
use crate::types::{DecodeError, KeyBuffer, TableKey, Value};

/// A scan over the records of a range, in key order.
///
/// It holds only a few records at a time and releases the returned ones as it proceeds, so it can
/// scan a range of any size.
pub struct Scan<'tx, K: ?Sized, V: ?Sized> {
    /// In a block, because a scan is moved several times before its first record.
    core: Box<transaction::RecordScan<'tx>>,
    types: PhantomData<fn(&K, &V)>,
}

impl<'tx, K: TableKey + ?Sized, V: Value + ?Sized> Scan<'tx, K, V> {
    pub(super) fn new(
        transaction: &'tx transaction::ActiveTransaction,
        table: &Table<K, V>,
        low: Bound<KeyBuffer>,
        high: Bound<KeyBuffer>,
    ) -> Self {
        Self::of(transaction.scan(&table.core, ScanBounds { low, high }))
    }

    pub(super) fn of(core: transaction::RecordScan<'tx>) -> Self {
        let mut core = Box::new(core);
        core.leave_out_expired();
        Self { core, types: PhantomData }
    }

    /// Reverses the order: from the largest key to the smallest. Call this before the first `next`;
    /// otherwise the next call fails with [`Misuse::ScanBegun`](crate::Misuse).
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         for (name, number) in [("ada", 1), ("ben", 2), ("cleo", 3)] {
    ///             tx.put(&names, name, &number).await?;
    ///         }
    ///         let mut scan = tx.scan(&names, .."c")?.rev();
    ///         assert_eq!(scan.next().await?, Some(("ben".to_owned(), 2)));
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.core.set_direction(Direction::Reverse);
        self
    }

    /// Limits the scan to `count` records.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         for (name, number) in [("ada", 1), ("ben", 2), ("cleo", 3)] {
    ///             tx.put(&names, name, &number).await?;
    ///         }
    ///         assert_eq!(tx.scan(&names, ..)?.limit(2).count().await?, 2);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn limit(mut self, count: u64) -> Self {
        self.core.limit(count);
        self
    }

    /// Returns the next record, or `None` after the last. The value is valid until the next call;
    /// [`Value::into_owned`] converts it to an owned value.
    ///
    /// Dropping the future or receiving an error loses no record: the next call returns the same
    /// record or tries it again.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, str> = block_on(db.create_table("names"))?;
    ///     let longest = db.run_blocking(async move |tx| {
    ///         tx.put(&table, &1, "one").await?;
    ///         tx.put(&table, &3, "three").await?;
    ///         let (mut scan, mut longest) = (tx.scan(&table, ..)?, String::new());
    ///         while let Some((_, name)) = scan.next().await? {
    ///             if name.len() > longest.len() {
    ///                 longest = name.to_owned();
    ///             }
    ///         }
    ///         Ok(longest)
    ///     })?;
    ///     assert_eq!(longest, "three");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if stored bytes do not decode; [`Error::Io`] if they cannot be
    /// read; [`Error::Overloaded`].
    #[expect(clippy::should_implement_trait, reason = "a future of the next record")]
    pub fn next(&mut self) -> impl Future<Output = Result<Option<(K::Decoded, V::Ref<'_>)>>> {
        NextRecord { scan: Some(self), waiting: None }
    }

    /// Does what `next` does, if something must be waited for.
    async fn load_next(&mut self) -> Result<Option<(K::Decoded, V::Ref<'_>)>> {
        match engine_code(self.core.next()).await? {
            true => Ok(Some(self.give()?)),
            false => Ok(None),
        }
    }

    /// Returns whether the next record is loaded, or could be loaded without waiting.
    #[inline(always)]
    fn is_ready(&mut self) -> bool {
        self.core.next_now() || engine_call(|| self.core.load_now())
    }

    /// Returns the record that was loaded.
    #[inline(always)]
    fn give(&self) -> Result<(K::Decoded, V::Ref<'_>)> {
        let (key, value) = self.core.lend().expect("loaded");
        let record = self.decode(key, value)?;
        self.core.pass();
        Ok(record)
    }

    /// Decodes the next record.
    #[inline(always)]
    fn decode<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<(K::Decoded, V::Ref<'v>)> {
        let key = K::decode_key(key).map_err(|error| *self.note_undecodable(error))?;
        let value = V::decode(value).map_err(|error| *self.note_undecodable(error))?;
        Ok((key, value))
    }

    /// Notes that the caller knows about the next record, because it does not decode.
    #[cold]
    #[inline(never)]
    fn note_undecodable(&self, error: DecodeError) -> Box<Error> {
        self.core.current();
        Box::new(error.into())
    }

    /// Calls `each` with all records until it returns `Break`, and returns the value of the
    /// `Break`, if any. Values are borrowed from the table, or from copies of some of them if the
    /// table is paged or records are read from the log. So a table of any size can be visited.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    /// use std::ops::ControlFlow;
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, str> = block_on(db.create_table("names"))?;
    ///     let first_long = db.run_blocking(async move |tx| {
    ///         tx.put(&table, &1, "one").await?;
    ///         tx.put(&table, &3, "three").await?;
    ///         let long = |key, name: &str| match name.len() > 3 {
    ///             true => ControlFlow::Break(key),
    ///             false => ControlFlow::Continue(()),
    ///         };
    ///         tx.scan(&table, ..)?.visit(long).await
    ///     })?;
    ///     assert_eq!(first_long, Some(3));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub async fn visit<B>(
        mut self,
        mut each: impl FnMut(K::Decoded, V::Ref<'_>) -> ControlFlow<B>,
    ) -> Result<Option<B>> {
        self.core.set_visits();
        while self.is_ready() || engine_code(self.core.next()).await? {
            for (number, key, value) in self.core.loaded() {
                let (key, value) = self.decode(key, value)?;
                self.core.pass_through(number);
                if let ControlFlow::Break(result) = each(key, value) {
                    return Ok(Some(result));
                }
            }
        }
        Ok(None)
    }

    /// Returns the number of records, without reading their values.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         for key in 0..10 {
    ///             db.put(&names, &key, "ada").await?;
    ///         }
    ///         let count = db.run(async move |tx| tx.scan(&names, 3..)?.count().await).await?;
    ///         assert_eq!(count, 7);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub async fn count(mut self) -> Result<u64> {
        self.core.set_keys_only();
        let mut count = 0;
        while self.is_ready() || engine_code(self.core.next()).await? {
            count += self.core.pass_loaded() as u64;
        }
        Ok(count)
    }

    /// Returns the records as a stream of owned values. The stream ends after the first error.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    /// use futures_util::TryStreamExt;
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, str> = block_on(db.create_table("names"))?;
    ///     let names = db.run_blocking(async move |tx| {
    ///         tx.put(&table, &1, "one").await?;
    ///         tx.put(&table, &3, "three").await?;
    ///         tx.scan(&table, ..)?
    ///             .into_stream()
    ///             .map_ok(|(_, name)| name)
    ///             .try_collect::<Vec<_>>()
    ///             .await
    ///     })?;
    ///     assert_eq!(names, ["one", "three"]);
    ///     Ok(())
    /// }
    /// ```
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<(K::Decoded, V::Owned)>> + use<'tx, K, V> {
        unfold(self, async |mut scan: Self| {
            let item = match scan.next().await {
                Ok(None) => return None,
                Ok(Some((key, value))) => Ok((key, V::into_owned(value))),
                Err(error) => return Some((Err(error), None)),
            };
            Some((item, Some(scan)))
        })
    }

    /// Returns the next key in its stored encoding.
    pub(super) async fn next_encoded(&mut self) -> Result<Option<&[u8]>> {
        if !self.is_ready() && !engine_code(self.core.next()).await? {
            return Ok(None);
        }
        let next = self.core.lend().map(|(key, _)| key);
        self.core.pass();
        Ok(next)
    }

    /// Returns the first record, with a value that is valid while the transaction is active.
    pub(super) async fn into_first(self) -> Result<Option<(K::Decoded, V::Ref<'tx>)>> {
        let Some((key, value)) = engine_code(self.core.into_first()).await? else {
            return Ok(None);
        };
        Ok(Some((K::decode_key(&key)?, V::decode(value)?)))
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan(at most {} more)", self.core.left())
    }
}

/// The future of [`Scan::next`]. Most records are ready, and are returned by its first poll. This is
/// not an `async` block because the result of that, which may be an error, is moved more than once.
struct NextRecord<'s, 'tx, K: TableKey + ?Sized, V: Value + ?Sized> {
    scan: Option<&'s mut Scan<'tx, K, V>>,
    waiting: Option<WaitingRecord<'s, K, V>>,
}

/// The next record, if any.
type NextResult<'s, K, V> = Result<Option<(<K as TableKey>::Decoded, <V as Value>::Ref<'s>)>>;

/// A record that must be waited for.
type WaitingRecord<'s, K, V> = Pin<Box<dyn Future<Output = NextResult<'s, K, V>> + 's>>;

impl<'s, K: TableKey + ?Sized, V: Value + ?Sized> Future for NextRecord<'s, '_, K, V> {
    type Output = NextResult<'s, K, V>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(scan) = self.scan.take() {
            if scan.is_ready() {
                let scan: &'s Scan<'_, K, V> = scan;
                return match scan.give() {
                    Ok(record) => Poll::Ready(Ok(Some(record))),
                    Err(error) => Poll::Ready(Err(error)),
                };
            }
            self.waiting = Some(Box::pin(scan.load_next()));
        }
        self.poll_waiting(context).map(|result| *result)
    }
}

impl<'s, K: TableKey + ?Sized, V: Value + ?Sized> NextRecord<'s, '_, K, V> {
    /// Polls the future of the record. The result is in a block of memory, so that nothing is moved
    /// there if a record is ready.
    #[cold]
    #[inline(never)]
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Box<NextResult<'s, K, V>>> {
        let waiting = self.waiting.as_mut().expect("not polled after its end");
        waiting.as_mut().poll(context).map(Box::new)
    }
}
