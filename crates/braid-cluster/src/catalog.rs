//! Tables of the cluster: creating, dropping and renaming them on all nodes.

use std::time::Duration;

use braiddb::tables::TableDescription;
use braiddb::{BusyWith, Database, Key, Table, TableKey, TableOptions, Value};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::command::{Action, CatalogChange, ClusterTable, Decision};
use crate::error::{Error, Result};

/// Pause before the catalog of the database is read or changed again.
pub const PAUSE: Duration = Duration::from_millis(1);

impl Cluster {
    /// Returns a table of the cluster, and creates it on all nodes if it does not exist.
    ///
    /// # Errors
    /// [`Error::Refused`] if the name is reserved; the errors of [`Cluster::run`]; the errors of
    /// [`Database::open_table`] if the types differ.
    pub async fn open_or_create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        self.open_or_create_table_with(name, TableOptions::default()).await
    }

    /// Works like [`Cluster::open_or_create_table`], with options: paged tables, and tables whose
    /// records expire. An existing table keeps its options.
    ///
    /// The node that executes a transaction decides which records have expired, by its clock. Keep
    /// the clocks of all nodes synchronized.
    ///
    /// # Errors
    /// As [`Cluster::open_or_create_table`].
    pub async fn open_or_create_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        let (replica, deadline) = (&self.inner.replica, Instant::now() + self.timeout);
        let storage = &replica.storage;
        loop {
            if storage.db.get(&storage.catalog, name).await?.is_none() {
                let types = (<K::Stored as Key>::type_name(), V::type_name());
                let table = ClusterTable::new(name, types.0, types.1, options);
                self.change_catalog(CatalogChange::Create(table), deadline).await?;
            }
            // Through the handle that writes: the catalog notes the version of the type of the
            // values.
            match storage.db.open_table(name).await {
                // An entry that is being applied, or was since then, drops or renames it.
                Err(braiddb::Error::TableNotFound(_)) if Instant::now() < deadline => {
                    let applied = replica.wait_applied(replica.newest());
                    let applied = tokio::time::timeout_at(deadline, applied).await;
                    applied.map_err(|_| Error::Timeout(self.timeout))?;
                    // A snapshot that is being installed replaces the catalog first.
                    tokio::time::sleep(PAUSE).await;
                }
                opened => return Ok(opened?),
            }
        }
    }

    /// Drops a table and its indexes on all nodes. Each node deletes the records in the background,
    /// when the transactions and snapshots that use the table have ended.
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster has no such table; the errors of [`Cluster::run`].
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        self.change_catalog(CatalogChange::Drop(name.to_owned()), deadline).await
    }

    /// Renames a table on all nodes. Handles of it stay valid.
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster has no such table, if it has a table with the new name, or
    /// if that name is reserved; the errors of [`Cluster::run`].
    pub async fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        let deadline = Instant::now() + self.timeout;
        self.change_catalog(CatalogChange::Rename { from, to }, deadline).await
    }

    /// Submits a change of the catalog until no other change comes before it.
    pub(crate) async fn change_catalog(
        &self,
        change: CatalogChange,
        deadline: Instant,
    ) -> Result<()> {
        self.require_version(change.version(), deadline).await?;
        let (mut base, mut attempts) = (self.inner.replica.applied(), 0);
        loop {
            attempts += 1;
            let action = Action::Catalog { base, change: change.clone() };
            let (decision, index) = self.submit(action, deadline).await?;
            if decision == Decision::Committed {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Conflict { attempts });
            }
            base = index;
        }
    }
}

/// Drops a table of the database, unless it does not exist. Returns when its name is free. The
/// database deletes the records later, because long reads would delay that.
pub async fn drop_table(db: &Database, name: &str) -> braiddb::Result<()> {
    loop {
        let (dropping, dropped) = (db.clone(), name.to_owned());
        let task = tokio::spawn(async move { dropping.drop_table(&dropped).await });
        while !task.is_finished() {
            if !has_table(db, name).await? {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        match task.await {
            Ok(Err(error)) if is_busy(&error) => tokio::time::sleep(PAUSE).await,
            Ok(Ok(()) | Err(braiddb::Error::TableNotFound(_))) => return Ok(()),
            Ok(failed) => return failed,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Renames a table of the database, unless that is done already.
pub async fn rename_table(db: &Database, from: &str, to: &str) -> braiddb::Result<()> {
    loop {
        match db.rename_table(from, to).await {
            Err(error) if is_busy(&error) => tokio::time::sleep(PAUSE).await,
            Err(braiddb::Error::TableNotFound(_)) if has_table(db, to).await? => return Ok(()),
            renamed => return renamed,
        }
    }
}

async fn has_table(db: &Database, name: &str) -> braiddb::Result<bool> {
    Ok(tables(db).await?.iter().any(|table| table.name == name))
}

/// Returns the tables of the database. Waits while the database refuses transactions.
pub async fn tables(db: &Database) -> braiddb::Result<Vec<TableDescription>> {
    repeat(|| db.tables()).await
}

/// Repeats a call while the database refuses it for a moment.
pub async fn repeat<T, F>(mut call: impl FnMut() -> F) -> braiddb::Result<T>
where
    F: IntoFuture<Output = braiddb::Result<T>>,
{
    loop {
        match call().await {
            Err(error) if is_busy(&error) => tokio::time::sleep(PAUSE).await,
            called => return called,
        }
    }
}

/// Returns whether a change of the database's catalog is repeated.
pub fn is_busy(error: &braiddb::Error) -> bool {
    error.is_retryable() || matches!(error, braiddb::Error::Busy(BusyWith::TableChange { .. }))
}
