//! Restriction of writes to one caller.
//!
//! The restriction is a row of the internal table `braid.writer` (`docs/format.md`), so it also
//! holds when the database is opened again. The engine's own transactions write nevertheless:
//! sweeps of expired records, change slots, deletions of dropped tables.

use std::sync::Arc;

use super::blocking::refuse_on_worker;
use super::error::{Error, Misuse, Result};
use super::handle::Database;
use super::run::commit_on_worker;
use super::table::Table;
use super::table_options::TableOptions;
use super::transaction::Transaction;
use crate::transaction::WorkerTransactions;

/// The internal table.
const TABLE: &str = "braid.writer";
/// Key of its only row. The value is the name of the caller that may write.
const KEY: &str = "writer";

impl Database {
    /// Restricts writes to the returned handle and its clones, now and after the database is opened
    /// again. This protects a database whose contents a layer above keeps, such as a replication,
    /// from writes that this layer would not see. `writer` names the call that programs should use;
    /// errors name it.
    ///
    /// Through other handles, every transaction that writes a record or changes the catalog fails
    /// with [`Misuse::RestrictedWrite`](crate::Misuse). Reads, [`Database::execute`], change feeds,
    /// checkpoints and backups are not affected. A backup has the same restriction.
    ///
    /// A later call replaces the name, and returns a handle that may write too: the restriction
    /// prevents mistakes, and is no protection from an attacker. Returns after the transactions that
    /// began before have ended. If the future is dropped, the restriction is still set.
    ///
    /// ```
    /// use braiddb::{Database, Error, Misuse, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let replication = db.restrict_writes("Replication::run").await?;
    ///         let names: Table<u64, str> = replication.create_table("names").await?;
    ///         replication.put(&names, &1, "ada").await?;
    ///
    ///         let refused = db.put(&names, &1, "bob").await;
    ///         assert!(matches!(refused, Err(Error::Misuse(Misuse::RestrictedWrite { .. }))));
    ///         assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because it would wait
    /// for that transaction; the errors of [`Database::run`]. If the restriction cannot be noted,
    /// writes are as before the call.
    pub async fn restrict_writes(&self, writer: &str) -> Result<Database> {
        self.change_restriction(Some(writer.into())).await?;
        Ok(self.writing())
    }

    /// Removes the restriction of [`Database::restrict_writes`]: every handle may write. Has no
    /// effect if writes are not restricted.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         db.restrict_writes("Replication::run").await?;
    ///         db.allow_writes().await?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::restrict_writes`].
    pub async fn allow_writes(&self) -> Result<()> {
        self.change_restriction(None).await
    }

    async fn change_restriction(&self, writer: Option<Arc<str>>) -> Result<()> {
        refuse_on_worker()?;
        match self.on_worker(async move || change_restriction(writer).await).await? {
            true => Ok(()),
            false => Err(self.ended()),
        }
    }

    /// Returns whether writes are restricted, and not to this handle.
    pub(super) fn is_restricted(&self) -> bool {
        !self.may_write && self.shared.engine.write_restriction.is_set()
    }

    /// Rejects a change of a table that this handle may not write.
    pub(super) fn refuse_if_restricted(&self, table: &str) -> Result<()> {
        match self.shared.engine.write_restriction.writer() {
            Some(writer) if !self.may_write => {
                let (table, writer) = (table.into(), (*writer).into());
                Err(Error::Misuse(Misuse::RestrictedWrite { table, writer }))
            }
            _ => Ok(()),
        }
    }

    fn writing(&self) -> Self {
        Self { may_write: true, ..self.clone() }
    }
}

/// Stores the caller that may write, or that all may. Returns `false` if the database is closing, and
/// transactions that began before have not ended.
async fn change_restriction(writer: Option<Arc<str>>) -> Result<bool> {
    let worker = WorkerTransactions::current();
    let restriction = &worker.engine().write_restriction;
    let mut attempt = 0;
    let _change = loop {
        if let Some(change) = restriction.begin_change() {
            break change;
        }
        attempt += 1;
        worker.back_off(attempt).await;
    };
    let before = restriction.writer();
    if writer.is_some() {
        // Before the commit, so that every transaction which does not see it began earlier.
        restriction.set(writer.clone());
    }
    if let Err(error) = commit_on_worker(async |tx| tx.put_writer(writer.as_deref()).await).await {
        restriction.set(before);
        return Err(error);
    }
    if writer.is_none() {
        restriction.set(None);
        return Ok(true);
    }
    Ok(worker.wait_for_grace_period(true).await?)
}

impl Transaction {
    async fn put_writer(&self, writer: Option<&str>) -> Result<()> {
        let table: Table<str, str> = match (self.describe_any(TABLE).await?, writer) {
            (Some(found), _) => self.handle(&found),
            (None, Some(_)) => self.create_named(TABLE, TableOptions::default()).await?,
            (None, None) => return Ok(()),
        };
        match writer {
            Some(writer) => self.put(&table, KEY, writer).await,
            None => self.delete(&table, KEY).await.map(drop),
        }
    }

    /// Returns the name of the only caller that may write, if the database notes one.
    pub(super) async fn restricted_writer(&self) -> Result<Option<Arc<str>>> {
        let Some(found) = self.describe_any(TABLE).await? else { return Ok(None) };
        let table: Table<str, str> = self.handle(&found);
        Ok(self.get(&table, KEY).await?.map(Arc::from))
    }
}
