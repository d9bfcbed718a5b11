//! Restriction of writes to one caller.
//!
//! The restriction is a row of the internal table `braid.writer` (`docs/format.md`), so it also
//! holds when the database is opened again. The engine's own transactions write nevertheless:
//! sweeps of expired records, change slots, deletions of dropped tables.

use std::sync::Arc;

use super::error::{Error, Misuse, Result};
use super::handle::Database;
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
    /// prevents mistakes, and is no protection from an attacker. If the restriction is new, returns
    /// after the transactions that began before have ended. If the future is dropped, writes may be
    /// restricted or not; call it again.
    ///
    /// ```
    /// use braiddb::{Database, Error, Misuse, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let replication = db.restrict_writes("Replication::run").await?;
    /// let names: Table<u64, str> = replication.create_table("names").await?;
    /// replication.put(&names, &1, "ada").await?;
    ///
    /// let refused = db.put(&names, &1, "bob").await;
    /// assert!(matches!(refused, Err(Error::Misuse(Misuse::RestrictedWrite { .. }))));
    /// assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`]. If the restriction cannot be noted, writes are as before the call.
    pub async fn restrict_writes(&self, writer: &str) -> Result<Database> {
        let restriction = &self.shared.engine.write_restriction;
        let (before, handle) = (restriction.writer(), self.writing());
        let is_new = before.as_deref() != Some(writer);
        // Before the commit, so that every transaction which does not see it began earlier.
        restriction.set(Some(writer.into()));
        let row = writer.to_owned();
        let note = async move |tx: &Transaction| {
            // An earlier call may have been dropped before it wrote the row.
            if tx.restricted_writer().await?.as_deref() == Some(&row) {
                return Ok(false);
            }
            let table: Table<str, str> = match tx.describe_any(TABLE).await? {
                Some(found) => tx.handle(&found),
                None => tx.create_named(TABLE, TableOptions::default()).await?,
            };
            tx.put(&table, KEY, &row).await?;
            Ok(true)
        };
        match handle.run(note).await {
            Ok(is_noted) if !is_new && !is_noted => return Ok(handle),
            Ok(_) => {}
            Err(error) => {
                restriction.set(before);
                return Err(error);
            }
        }
        let wait = async || WorkerTransactions::current().wait_for_grace_period(true).await;
        match self.on_worker(wait).await? {
            true => Ok(handle),
            false => Err(self.ended()),
        }
    }

    /// Removes the restriction of [`Database::restrict_writes`]: every handle may write. Has no
    /// effect if writes are not restricted.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// db.restrict_writes("Replication::run").await?;
    /// db.allow_writes().await?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.put(&names, &1, "ada").await?;
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub async fn allow_writes(&self) -> Result<()> {
        let remove = async move |tx: &Transaction| {
            let Some(found) = tx.describe_any(TABLE).await? else { return Ok(()) };
            let table: Table<str, str> = tx.handle(&found);
            tx.delete(&table, KEY).await.map(drop)
        };
        self.writing().run(remove).await?;
        self.shared.engine.write_restriction.set(None);
        Ok(())
    }

    /// Returns whether writes are restricted, and not to this handle.
    pub(super) fn is_restricted(&self) -> bool {
        !self.may_write && self.shared.engine.write_restriction.is_set()
    }

    /// Rejects a change of a table that this handle may not write.
    pub(super) fn refuse_if_restricted(&self, table: &str) -> Result<()> {
        match self.shared.engine.write_restriction.writer() {
            Some(writer) if !self.may_write => {
                let (table, writer) = (table.to_owned(), writer.to_string());
                Err(Error::Misuse(Misuse::RestrictedWrite { table, writer }))
            }
            _ => Ok(()),
        }
    }

    fn writing(&self) -> Self {
        Self { may_write: true, ..self.clone() }
    }
}

impl Transaction {
    /// Returns the name of the only caller that may write, if the database notes one.
    pub(super) async fn restricted_writer(&self) -> Result<Option<Arc<str>>> {
        let Some(found) = self.describe_any(TABLE).await? else { return Ok(None) };
        let table: Table<str, str> = self.handle(&found);
        Ok(self.get(&table, KEY).await?.map(Arc::from))
    }
}
