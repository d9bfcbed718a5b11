//! Point operations of a transaction: the part that ends without waiting, and the part that may
//! wait.

use super::encode::{check_key, encode, encode_for};
use super::error::Result;
use super::table::Table;
use super::transaction::Transaction;
use crate::record::{MemoryRecords, Records};
use crate::sched::{ImmediateOperation, engine_call, engine_code, immediate_or};
use crate::transaction::{ActiveTransaction, ReadNow, WriteIntent};
use crate::types::{KeyBuffer, TableKey, Value};

/// A read, before its first poll. Its arguments, like those of a write, keep their own lifetimes.
#[derive(Clone, Copy)]
struct ReadOperation<A>(A);

impl<'tx, K, V> ImmediateOperation for ReadOperation<(&'tx Transaction, &Table<K, V>, &K)>
where
    K: TableKey + ?Sized,
    V: Value + ?Sized,
{
    type Output = Result<Option<V::Ref<'tx>>>;

    #[inline(always)]
    fn now(self) -> Option<Self::Output> {
        let (transaction, table, key) = self.0;
        let records = match transaction.records(table) {
            Ok(records) => records,
            Err(error) => return Some(Err(error)),
        };
        // Checked before the key is encoded, which happens again if the read has to wait.
        let plain = engine_call(|| transaction.core.may_read_now(records))?;
        // Encoded in place: a buffer that a function returns is copied.
        let mut encoded = KeyBuffer::new();
        key.encode_key(&mut encoded);
        if let Err(error) = check_key(records, &encoded) {
            return Some(Err(error));
        }
        match engine_call(|| transaction.core.get_now(plain, &encoded)) {
            ReadNow::Found(found) => match found.decode::<V>() {
                Ok(value) => Some(Ok(Some(value))),
                Err(error) => Some(Err(error.into())),
            },
            ReadNow::Absent => Some(Ok(None)),
            ReadNow::Later => None,
        }
    }
}

/// The kind of a write.
trait PointWrite: Copy {
    /// Writes if the write need not wait and meets no conflict.
    fn now(
        core: &ActiveTransaction,
        table: &MemoryRecords,
        key: &[u8],
        value: &[u8],
    ) -> Option<bool>;

    /// Returns the intent of the write.
    fn intent(value: &[u8]) -> WriteIntent<'_>;
}

macro_rules! point_writes {
    ($($name:ident, $now:ident, $intent:ident;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;

            impl PointWrite for $name {
                #[inline(always)]
                fn now(
                    core: &ActiveTransaction,
                    table: &MemoryRecords,
                    key: &[u8],
                    value: &[u8],
                ) -> Option<bool> {
                    core.$now(table, key, value)
                }

                fn intent(value: &[u8]) -> WriteIntent<'_> {
                    WriteIntent::$intent(value)
                }
            }
        )*
    };
}

point_writes! {
    InsertWrite, insert_now, Insert;
    PutWrite, put_now, Put;
    UpdateWrite, update_now, Update;
}

/// A write, before its first poll.
#[derive(Clone, Copy)]
struct WriteOperation<W, A>(W, A);

impl<W: PointWrite, K, V> ImmediateOperation
    for WriteOperation<W, (&Transaction, &Table<K, V>, &K, &V::Input)>
where
    K: TableKey + ?Sized,
    V: Value + ?Sized,
{
    type Output = Result<()>;

    #[inline(always)]
    fn now(self) -> Option<Self::Output> {
        // Errors are left to the part that may wait, so that no result with an error is moved here.
        // The check comes before the encoding, as for a read.
        let (transaction, table, key, value) = self.1;
        let records = transaction.records(table).ok()?;
        let plain = engine_call(|| transaction.core.may_write_now(records))?;
        let value = V::encode(value).ok()?;
        // Encoded in place, as for a read.
        let mut encoded = KeyBuffer::new();
        key.encode_key(&mut encoded);
        engine_call(|| W::now(&transaction.core, plain, &encoded, &value)).map(|_| Ok(()))
    }
}

impl Transaction {
    /// Returns the future of a read.
    #[inline(always)]
    pub(super) fn read<'tx, K, V>(
        &'tx self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Ref<'tx>>>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        immediate_or(
            ReadOperation((self, table, key)),
            |ReadOperation((transaction, table, key))| transaction.get_later(table, key),
        )
    }

    /// Inserts a new record.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.insert(&names, "ada", &7).await?;
    ///         assert!(matches!(tx.insert(&names, "ada", &8).await, Err(Error::KeyExists(_))));
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyExists`](crate::Error::KeyExists) if a record with this key exists; [`Error::Conflict`](crate::Error::Conflict); an error if the
    /// key or the value is too long.
    #[inline(always)]
    pub fn insert<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(InsertWrite, table, key, value)
    }

    /// Inserts a record, or replaces the value of the existing one.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&names, "ada", &7).await?;
    ///         tx.put(&names, "ada", &8).await?;
    ///         assert_eq!(tx.get(&names, "ada").await?, Some(8));
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict); an error if the key or the value is too long.
    #[inline(always)]
    pub fn put<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(PutWrite, table, key, value)
    }

    /// Replaces the value of an existing record.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         assert!(matches!(tx.update(&names, "ada", &7).await, Err(Error::KeyNotFound(_))));
    ///         tx.put(&names, "ada", &7).await?;
    ///         tx.update(&names, "ada", &8).await?;
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyNotFound`](crate::Error::KeyNotFound) if no record with this key exists; [`Error::Conflict`](crate::Error::Conflict); an error if
    /// the value is too long.
    #[inline(always)]
    pub fn update<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(UpdateWrite, table, key, value)
    }

    /// Returns the future of a write.
    #[inline(always)]
    fn write<W, K, V>(
        &self,
        kind: W,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>>
    where
        W: PointWrite,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let operation = WriteOperation(kind, (self, table, key, value));
        immediate_or(operation, |WriteOperation(_, (transaction, table, key, value))| {
            transaction.write_later(table, key, value, W::intent)
        })
    }

    /// Reads a record; may suspend.
    pub(super) async fn get_later<'tx, K, V>(
        &'tx self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V::Ref<'tx>>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let key = encode_for(records, key)?;
        match engine_code(self.core.get_interleaved(records, &key)).await {
            ReadNow::Found(found) => return Ok(Some(found.decode::<V>()?)),
            ReadNow::Absent => return Ok(None),
            ReadNow::Later => {}
        }
        let found = engine_code(self.core.get(records, &key)).await?;
        Ok(found.map(|found| found.decode::<V>()).transpose()?)
    }

    /// Writes a record; may suspend.
    pub(super) async fn write_later<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
        intent: fn(&[u8]) -> WriteIntent<'_>,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let value = V::encode(value)?;
        self.write_encoded_later(records, &encode(key), intent(&value)).await.map(drop)
    }

    /// Writes an encoded record; may suspend.
    pub(super) async fn write_encoded<K, V>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        match engine_call(|| self.core.write_now(records, key, intent)) {
            Some(written) => Ok(written),
            None => self.write_encoded_later(records, key, intent).await,
        }
    }

    /// Writes after `write_now` could not.
    async fn write_encoded_later(
        &self,
        records: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool> {
        let write = self.core.write_interleaved(records, key, intent);
        match engine_code(write).await {
            Some(written) => Ok(written),
            None => Ok(engine_code(self.core.write(records, key, intent, None)).await?),
        }
    }
}
