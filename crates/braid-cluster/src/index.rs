//! Indexes of the cluster: creating, attaching and dropping them.

use std::sync::Arc;

use braiddb::proposals::KeySpace;
use braiddb::{
    Index, IndexError, IndexKeys, IndexOptions, Key, Table, TableKey, Transaction, Value,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::catalog::{PAUSE, is_busy};
use crate::cluster::Cluster;
use crate::command::{CatalogChange, ClusterIndex};
use crate::error::{Error, Result};
use crate::local_indexes::{is_missing, is_of_index};
use crate::storage::Storage;

impl Cluster {
    /// Attaches an index of a table on this node, and creates it for the cluster if no index of the
    /// table has this name. It works like [`Database::index`](braiddb::Database::index): `extract`
    /// receives each value, and pushes the index keys of the record.
    ///
    /// The function is code and is not stored. **Each node calls this with the same function
    /// immediately after [`Cluster::start`]**, also after a restart. Raise
    /// [`IndexOptions::version`] when the function changes. Until a node has attached all indexes of
    /// a table, its transactions that write the table fail with [`Error::IndexNotAttached`]; it
    /// applies those of the other nodes.
    ///
    /// Existing records are indexed on this node before the call returns, while transactions of all
    /// nodes continue. Use [`Cluster::with_timeout`] for large tables. If the call ends early, the
    /// next one continues. But entries of an index that the cluster does not have yet are dropped: a
    /// unique one would make transactions of this node fail. Transactions and snapshots that are
    /// active on this node delay the call.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use braid_cluster::{Cluster, ClusterOptions, Consistency, MemoryNetwork};
    /// use braiddb::{Database, IndexOptions, Options, Table, Transaction};
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let transport = MemoryNetwork::default().transport("first");
    ///     let cluster = Cluster::start(db, ClusterOptions::new("shop", 1), transport).await?;
    ///     cluster.init(BTreeMap::from([(1, "first".to_owned())])).await?;
    ///     let names: Table<u64, str> = cluster.open_or_create_table("names").await?;
    ///     // On every node.
    ///     let by_name = cluster
    ///         .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| keys.push(name))
    ///         .await?;
    ///     let put = async move |tx: &Transaction| tx.put(&names, &7, "Ada").await;
    ///     let token = cluster.run(put).await?.token;
    ///     let find = async move |tx: &Transaction| {
    ///         let mut scan = tx.scan_prefix_by(&by_name, "A")?;
    ///         Ok(scan.next().await?.map(|(_, number, _)| number))
    ///     };
    ///     assert_eq!(cluster.read(Consistency::Session(token), find).await?, Some(7));
    ///     cluster.shutdown().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`IndexError::Mismatch`](braiddb::IndexError) if the cluster has the index with other options,
    /// another version of the function, or another type of keys: drop the index, or start the node
    /// with the program that fits. [`IndexError::DuplicateKey`](braiddb::IndexError) if it is unique,
    /// and two records have one key. Then the cluster does not have the index, unless it had it before
    /// this call, perhaps by an earlier one that ended early. In that case the table cannot be written
    /// until [`Cluster::drop_index`] drops the index; then change one of the records, and create the
    /// index again. The errors of `Database::index` and of [`Cluster::run`].
    pub async fn index<S, K, V, F>(
        &self,
        table: &Table<K, V>,
        name: &str,
        options: IndexOptions,
        extract: F,
    ) -> Result<Index<S, K, V>>
    where
        S: Key + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        F: Fn(V::Ref<'_>, &mut IndexKeys<'_, S>) + Send + Sync + 'static,
    {
        let deadline = Instant::now() + self.timeout;
        let wanted = ClusterIndex::new(name, S::type_name(), options);
        self.require_version(2, deadline).await?;
        let (extract, mut has_created, mut is_current) = (Arc::new(extract), false, false);
        let storage = &self.inner.replica.storage;
        let mut created_entries = CreatedEntries::new(storage, table.encoded(), name);
        loop {
            let (table_name, created) = self.find_table(table, deadline).await?;
            let declared = storage.index_row(created, name).await?;
            match &declared {
                None => created_entries.table_name.clone_from(&table_name),
                Some(declared) if declared.is_same(&wanted) => {}
                // The node may not have applied the drop of that index yet.
                Some(_) if !is_current => {
                    self.wait_current(deadline).await?;
                    is_current = true;
                    continue;
                }
                Some(declared) => {
                    if storage.indexes.is_other(&table_name, name) {
                        storage.drop_entries(table.encoded(), &table_name, name);
                    }
                    return Err(mismatch(table_name, declared, &wanted));
                }
            }
            let begun = storage.indexes.begin_building(&table_name, name);
            let begun = self.within(deadline, begun).await?;
            // From here on, a rename stops this call. The table may have been renamed before.
            if self.find_table(table, deadline).await?.0 != table_name {
                continue;
            }
            let keys = extract.clone();
            let build = storage.db.index(table, name, options, move |value, keys_of_record| {
                keys(value, keys_of_record);
            });
            let built = tokio::select! {
                biased;
                built = self.within(deadline, build) => built?,
                () = begun.must_stop() => continue,
            };
            let index = match built {
                Ok(index) => index,
                // Another call changes an index of the table, or the entries are dropped.
                Err(error) if is_busy(&error) || is_missing(&error) => {
                    self.pause(deadline).await?;
                    continue;
                }
                Err(error) => {
                    let created = declared.filter(|_| has_created);
                    self.end_failed_build(table, table_name, name, error, created, deadline)
                        .await?;
                    continue;
                }
            };
            if !begun.end(&wanted) {
                continue;
            }
            if declared.is_none() {
                // Other nodes may have written records with the same key before that.
                has_created |= self.declare_index(table_name, created, &wanted, deadline).await?;
            } else if storage.indexes.is_ready(&table_name, &wanted) {
                return Ok(index);
            } else {
                self.pause(deadline).await?;
            }
        }
    }

    /// Adds an index to the cluster's catalog. Returns false if the table was renamed or dropped, or
    /// has another index of this name by now.
    async fn declare_index(
        &self,
        table: String,
        created: u64,
        index: &ClusterIndex,
        deadline: Instant,
    ) -> Result<bool> {
        let change = CatalogChange::CreateIndex { table, created, index: index.clone() };
        match self.change_catalog(change, deadline).await {
            Err(Error::Refused(_)) if Instant::now() < deadline => Ok(false),
            changed => changed.map(|()| true),
        }
    }

    /// Drops the entries of a build that failed, and the index from the catalog if the call has
    /// created it there and its keys are not unique.
    ///
    /// # Errors
    /// That of the build, unless another attempt may succeed.
    async fn end_failed_build<K, V>(
        &self,
        table: &Table<K, V>,
        table_name: String,
        name: &str,
        error: braiddb::Error,
        created: Option<ClusterIndex>,
        deadline: Instant,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        // Another function cannot complete them.
        if is_of_index(&error) {
            self.inner.replica.storage.drop_entries(table.encoded(), &table_name, name);
        }
        match index_error(&error) {
            // This node has another index of this name, which the cluster has no more.
            Some(IndexError::Mismatch { .. }) => return Ok(()),
            // Before this call created it, transactions did not check its keys. So no node can
            // complete it. Otherwise the function of this node may be wrong.
            Some(IndexError::DuplicateKey { .. }) => {
                if let Some(created) = created {
                    self.undeclare_index(table_name, created, deadline).await?;
                }
            }
            _ => {}
        }
        Err(error.into())
    }

    /// Waits a moment before another attempt, or returns the timeout.
    async fn pause(&self, deadline: Instant) -> Result<()> {
        if Instant::now() >= deadline {
            return Err(Error::Timeout(self.timeout));
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// Drops an index of a table on all nodes. Each node deletes its entries in the background, when
    /// the transactions and snapshots that are active on it have ended.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use braid_cluster::{Cluster, ClusterOptions, MemoryNetwork};
    /// use braiddb::{Database, IndexOptions, Options, Table};
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let transport = MemoryNetwork::default().transport("first");
    ///     let cluster = Cluster::start(db, ClusterOptions::new("shop", 1), transport).await?;
    ///     cluster.init(BTreeMap::from([(1, "first".to_owned())])).await?;
    ///     let names: Table<u64, str> = cluster.open_or_create_table("names").await?;
    ///     let extract = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
    ///     cluster.index(&names, "by_name", IndexOptions::default(), extract).await?;
    ///     cluster.drop_index("names", "by_name").await?;
    ///     cluster.shutdown().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster has no such table, or the table no such index; the errors of
    /// [`Cluster::run`].
    pub async fn drop_index(&self, table: &str, name: &str) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        let storage = &self.inner.replica.storage;
        // The node may not have applied the creation yet.
        self.wait_current(deadline).await?;
        let created = storage.table_row(table).await?.map(|table| table.created);
        let index = match created {
            Some(created) => storage.index_row(created, name).await?,
            None => return Err(Error::Refused(format!("the cluster has no table {table:?}"))),
        };
        let missing = || Error::Refused(format!("the table {table:?} has no index {name:?}"));
        self.undeclare_index(table.to_owned(), index.ok_or_else(missing)?, deadline).await
    }

    /// Waits until this node has applied all that was committed before the call.
    async fn wait_current(&self, deadline: Instant) -> Result<()> {
        let index = self.read_index(deadline).await?;
        self.within(deadline, self.inner.replica.wait_applied(index)).await
    }

    async fn within<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Result<T> {
        let done = tokio::time::timeout_at(deadline, future).await;
        done.map_err(|_| Error::Timeout(self.timeout))
    }

    async fn undeclare_index(
        &self,
        table: String,
        ClusterIndex { name: index, created, .. }: ClusterIndex,
        deadline: Instant,
    ) -> Result<()> {
        self.change_catalog(CatalogChange::DropIndex { table, index, created }, deadline).await
    }

    /// Returns the current name of a table, and the number of its creation.
    async fn find_table<K, V>(
        &self,
        table: &Table<K, V>,
        deadline: Instant,
    ) -> Result<(String, u64)>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.within(deadline, self.wait_for_table(table)).await?
    }

    async fn wait_for_table<K, V>(&self, table: &Table<K, V>) -> Result<(String, u64)>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let storage = &self.inner.replica.storage;
        loop {
            let encoded = table.encoded();
            let read = async move |tx: &Transaction| tx.first(&encoded).await.map(drop);
            let named = match storage.db.execute(read).await {
                // The handle has the name with which the table was opened.
                Ok(read) => {
                    let names = |space: KeySpace<'_>| space.table.to_owned();
                    let range = read.reads.ranges().next().map(|range| names(range.0));
                    range.or_else(|| read.reads.points().next().map(|point| names(point.0)))
                }
                Err(error) if is_busy(&error) => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(name) = named
                && let Some(row) = storage.table_row(&name).await?
            {
                return Ok((name, row.created));
            }
            // An entry that renames the table is being applied, or a snapshot is installed.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Drops the entries on this node that a call has created for an index which the cluster does not
/// have, when the call ends. Otherwise they would restrict the transactions of this node.
struct CreatedEntries {
    storage: Arc<Storage>,
    runtime: Handle,
    table: Table<[u8], [u8]>,
    /// Empty until the call creates entries.
    table_name: String,
    index: String,
}

impl CreatedEntries {
    fn new(storage: &Arc<Storage>, table: Table<[u8], [u8]>, index: &str) -> Self {
        let (storage, runtime) = (storage.clone(), Handle::current());
        Self { storage, runtime, table, table_name: String::new(), index: index.to_owned() }
    }
}

impl Drop for CreatedEntries {
    fn drop(&mut self) {
        if self.storage.indexes.is_undeclared(&self.table_name, &self.index) {
            // The future may be dropped outside of the runtime.
            let _runtime = self.runtime.enter();
            self.storage.drop_entries(self.table.clone(), &self.table_name, &self.index);
        }
    }
}

fn mismatch(table: String, declared: &ClusterIndex, wanted: &ClusterIndex) -> Error {
    let (index, stored, requested) =
        (wanted.name.clone(), declared.definition(), wanted.definition());
    braiddb::Error::from(IndexError::Mismatch { table, index, stored, requested }).into()
}

fn index_error(error: &braiddb::Error) -> Option<&IndexError> {
    match error {
        braiddb::Error::Index(error) => Some(error),
        _ => None,
    }
}

/// The error of a table that has an index which the program has not attached.
pub fn not_attached(error: &braiddb::Error) -> Option<Error> {
    match index_error(error)? {
        IndexError::Detached { table, index } => {
            let (table, index) = (table.clone(), index.clone());
            Some(Error::IndexNotAttached { table, index })
        }
        _ => None,
    }
}
