//! Staged tables: loads of any size, which become visible on all nodes at the same time.
//!
//! A staged table is a table of the cluster with a hidden name. Its rows are entries of the log of
//! bounded size, which are not certified, because no other transaction uses the table. The last
//! entry gives it its name. A staged table belongs to the call that fills it: the node discards
//! those of calls that have ended, and of its earlier runs. All nodes discard those of nodes that are
//! removed.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use braiddb::{ErrorKind, Key, KeyBuffer, Table, TableOptions, Transaction, Value};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalog::{PAUSE, repeat};
use crate::cluster::{Cluster, Inner, MAX_TIMEOUT};
use crate::command::{Action, CatalogChange, ClusterTable, Decision, StagedRows, SubmissionId};
use crate::error::{Error, Result};
use crate::raft::NodeId;
use crate::replica::Replica;
use crate::storage::staged_name;

/// Maximum bytes of keys and values in a part of a load of more than one row.
const PART_BYTES: usize = 256 << 10;
/// Maximum number of rows in a part of a load.
const PART_ROWS: usize = 4096;
/// Pause before a staged table is discarded again.
const DISCARD_PAUSE: Duration = Duration::from_secs(1);

/// Encoded keys and values.
type EncodedRows = Vec<(Bytes, Bytes)>;

/// The staged tables of the cluster, and those that calls of this node fill.
#[derive(Debug, Default)]
pub struct StagedTables {
    listed: watch::Sender<Vec<SubmissionId>>,
    filled: Mutex<BTreeSet<SubmissionId>>,
}

impl StagedTables {
    /// Replaces the list of all staged tables.
    pub fn list(&self, listed: Vec<SubmissionId>) {
        self.listed.send_if_modified(|before| {
            let is_changed = *before != listed;
            *before = listed;
            is_changed
        });
    }

    fn filled(&self) -> MutexGuard<'_, BTreeSet<SubmissionId>> {
        // No code that holds the lock can leave the state half changed.
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the staged tables of this node that no call fills.
    fn given_up(&self, node: NodeId) -> Vec<SubmissionId> {
        let filled = self.filled();
        let is_given_up = |id: &&SubmissionId| id.node == node && !filled.contains(id);
        self.listed.borrow().iter().filter(is_given_up).copied().collect()
    }
}

/// Keeps a staged table from being discarded.
#[derive(Debug)]
struct Filled {
    replica: Arc<Replica>,
    id: SubmissionId,
}

impl Filled {
    fn begin(replica: &Arc<Replica>, id: SubmissionId) -> Self {
        replica.staged.filled().insert(id);
        Self { replica: replica.clone(), id }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let staged = &self.replica.staged;
        staged.filled().remove(&self.id);
        // Wakes the task that discards it.
        staged.listed.send_modify(|_| {});
    }
}

/// A table that is invisible while it is filled, until it is published on all nodes at the same time.
/// It allows an atomic load of more data than fits into one transaction.
///
/// If this value is dropped without [`StagedTable::publish`], or its node ends, the cluster deletes
/// the records: when the node runs, or is removed from the cluster.
#[derive(Debug)]
#[must_use = "a staged table must be published or discarded"]
pub struct StagedTable<K: ?Sized, V: ?Sized> {
    cluster: Cluster,
    table: Table<K, V>,
    name: String,
    /// Number of the next part.
    next: u64,
    /// Rows that calls of `load` took and did not insert yet.
    waiting: EncodedRows,
    /// Number of rows and encoded writes of the next part, which begins with the first waiting row.
    /// The log may contain it.
    part: Option<(usize, Bytes)>,
    /// True if the last call of `load` ended early.
    is_interrupted: bool,
    filled: Filled,
}

impl Cluster {
    /// Creates a staged table, to be filled on this node and published under `name`.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use braid_cluster::{Cluster, ClusterOptions, Consistency, MemoryNetwork};
    /// use braiddb::{Database, Options, Table, Transaction};
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let transport = MemoryNetwork::default().transport("first");
    ///     let cluster = Cluster::start(db, ClusterOptions::new("shop", 1), transport).await?;
    ///     cluster.init(BTreeMap::from([(1, "first".to_owned())])).await?;
    ///     let mut squares = cluster.stage_table::<u64, u64>("squares").await?;
    ///     let rows = (0..10_000_u64).map(|number| (number, number * number));
    ///     assert_eq!(squares.load(rows, |loaded| println!("{loaded} rows")).await?, 10_000);
    ///     let squares = squares.publish().await?;
    ///     let read = async move |tx: &Transaction| tx.get(&squares, &12).await;
    ///     assert_eq!(cluster.read(Consistency::Linearizable, read).await?, Some(144));
    ///     cluster.shutdown().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster has a table of this name, or the name is reserved; the
    /// errors of [`Cluster::run`].
    pub async fn stage_table<K, V>(&self, name: &str) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized + 'static,
        V: Value + ?Sized,
    {
        self.stage_table_with(name, TableOptions::default()).await
    }

    /// Works like [`Cluster::stage_table`], with options.
    ///
    /// # Errors
    /// As [`Cluster::stage_table`].
    pub async fn stage_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized + 'static,
        V: Value + ?Sized,
    {
        let deadline = Instant::now() + self.timeout;
        let (replica, id) = (&self.inner.replica, self.new_id());
        // First, so that the table is discarded if this call ends early.
        let filled = Filled::begin(replica, id);
        let table = ClusterTable::new(name, K::type_name(), V::type_name(), options);
        self.change_catalog(CatalogChange::Stage { id, table }, deadline).await?;
        let table = replica.storage.db.open_table(&staged_name(id)).await?;
        let (cluster, name) = (self.clone(), name.to_owned());
        let (waiting, part) = (EncodedRows::new(), None);
        Ok(StagedTable {
            cluster,
            table,
            name,
            next: 0,
            waiting,
            part,
            is_interrupted: false,
            filled,
        })
    }

    /// Discards the staged tables of this node that no call fills. Returns whether all are discarded.
    async fn discard_given_up(&self) -> Result<bool> {
        let mut are_discarded = true;
        for id in self.inner.replica.staged.given_up(self.inner.options.node) {
            let deadline = Instant::now() + self.timeout;
            match self.change_catalog(CatalogChange::Discard(id), deadline).await {
                // It was published or discarded.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error @ Error::Stopped(_)) => return Err(error),
                Err(error) => {
                    tracing::debug!("the staged table {id} is discarded later: {error}");
                    are_discarded = false;
                }
            }
        }
        Ok(are_discarded)
    }
}

/// Discards the staged tables of calls that have ended, and of earlier runs of the node, until the
/// node stops.
pub async fn discard_all_given_up(node: Weak<Inner>) {
    let staged = |inner: Arc<Inner>| inner.replica.staged.listed.subscribe();
    let Some(mut listed) = node.upgrade().map(staged) else { return };
    loop {
        listed.mark_unchanged();
        let Some(inner) = node.upgrade() else { return };
        let cluster = Cluster { timeout: inner.options.timeout.min(MAX_TIMEOUT), inner };
        let discarded = cluster.discard_given_up().await;
        drop(cluster);
        match discarded {
            Ok(true) if listed.changed().await.is_ok() => {}
            Ok(false) => tokio::time::sleep(DISCARD_PAUSE).await,
            _ => return,
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// Inserts rows, in parts of at most 256 KiB and 4 096 rows, or one larger row. Each part is
    /// an entry of the log, and the next one begins when this node has applied it. Transactions of all
    /// nodes continue during the load. Returns the number of rows. `progress` receives it after each part.
    ///
    /// The deadline of the cluster is that of each part. If the call ends early, it keeps the rows that
    /// it took and did not insert, unless they were the reason. The next call inserts them once, before
    /// its own rows. So pass `rows.by_ref()`, and call again with the same iterator. Until then the
    /// table cannot be published.
    ///
    /// For an example see [`Cluster::stage_table`].
    ///
    /// # Errors
    /// [`KeyExists`](braiddb::Error) if the table already has a key, or the key occurs twice, and
    /// [`Error::TooLarge`] for a larger row than an entry may hold: then no row is inserted that the
    /// call took after the last report of `progress`, and the load may continue with other rows.
    /// [`Error::Refused`] if the table was discarded, because its node restarted or was removed; the
    /// errors of [`Cluster::run`].
    pub async fn load<R, KeyOf, ValueOf>(
        &mut self,
        rows: R,
        progress: impl FnMut(u64),
    ) -> Result<u64>
    where
        R: IntoIterator<Item = (KeyOf, ValueOf)>,
        KeyOf: Borrow<K>,
        ValueOf: Borrow<V::Input>,
    {
        // Also if the future is dropped.
        self.is_interrupted = true;
        let loaded = self.load_rows(rows, progress).await;
        match &loaded {
            Ok(_) => self.is_interrupted = false,
            Err(error) if is_of_rows(error) => {
                // The log may contain a part of an earlier call.
                let sent = self.part.as_ref().map_or(0, |(count, _)| *count);
                self.waiting.truncate(sent);
                self.is_interrupted = sent > 0;
            }
            Err(_) => {}
        }
        loaded
    }

    async fn load_rows<R, KeyOf, ValueOf>(
        &mut self,
        rows: R,
        mut progress: impl FnMut(u64),
    ) -> Result<u64>
    where
        R: IntoIterator<Item = (KeyOf, ValueOf)>,
        KeyOf: Borrow<K>,
        ValueOf: Borrow<V::Input>,
    {
        let (mut loaded, mut bytes) = (0, size(&self.waiting));
        let mut rows = rows.into_iter();
        loop {
            let row = rows.next();
            let is_last = row.is_none();
            if let Some((key, value)) = row {
                let mut encoded = KeyBuffer::new();
                key.borrow().encode(&mut encoded);
                let value = V::encode(value.borrow()).map_err(braiddb::Error::from)?;
                let row = (encoded.to_vec().into(), value.to_vec().into());
                bytes += size(std::slice::from_ref(&row));
                self.waiting.push(row);
            }
            while !self.waiting.is_empty()
                && (is_last || bytes >= PART_BYTES || self.waiting.len() >= PART_ROWS)
            {
                loaded += self.send().await?;
                bytes = size(&self.waiting);
                progress(loaded);
            }
            if is_last {
                return Ok(loaded);
            }
        }
    }

    /// Inserts the next part by one entry, and waits until this node has applied it. Returns the
    /// number of its rows.
    async fn send(&mut self) -> Result<u64> {
        let Inner { options, requests, .. } = &*self.cluster.inner.clone();
        let overloaded = |_| Error::Overloaded(options.max_requests);
        let _request = requests.try_acquire().map_err(overloaded)?;
        let deadline = Instant::now() + self.cluster.timeout;
        let (count, writes) = match &self.part {
            Some(part) => part.clone(),
            None => self.execute(deadline).await?,
        };
        self.part = Some((count, writes.clone()));
        loop {
            let (table, number) = (self.filled.id, self.next);
            let rows = StagedRows { table, number, writes: writes.clone() };
            match self.cluster.submit(Action::Load(rows), deadline).await {
                Ok((Decision::Committed, _)) => break,
                Ok(_) => return Err(Error::Conflict { attempts: 1 }),
                // A part with this number is applied once.
                Err(Error::CommitUnknown { .. } | Error::Overloaded(_))
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error @ Error::TooLarge { .. }) => {
                    self.part = None;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.waiting.drain(..count);
        (self.part, self.next) = (None, self.next + 1);
        Ok(count as u64)
    }

    /// Executes the next part. Returns the number of its rows, and the encoded writes.
    async fn execute(&self, deadline: Instant) -> Result<(usize, Bytes)> {
        let mut bytes = 0;
        let fits = |row: &&(Bytes, Bytes)| {
            bytes += size(std::slice::from_ref(*row));
            bytes <= PART_BYTES
        };
        let count = self.waiting.iter().take(PART_ROWS).take_while(fits).count().max(1);
        let rows: Arc<[_]> = self.waiting[..count].into();
        let Inner { replica, db, .. } = &*self.cluster.inner;
        let table = self.table.encoded();
        let insert = async move |tx: &Transaction| {
            for (key, value) in &*rows {
                tx.insert(&table, &key[..], &value[..]).await?;
            }
            Ok(())
        };
        let execute = async {
            let _contents = replica.contents.read().await;
            repeat(|| db.execute(insert.clone())).await
        };
        let executed = tokio::time::timeout_at(deadline, execute).await;
        let proposal = executed.map_err(|_| Error::Timeout(self.cluster.timeout))?;
        let proposal = proposal.map_err(|error| self.with_name(error))?;
        Ok((count, proposal.writes.as_bytes().to_vec().into()))
    }

    /// Names the table in an error as the caller does.
    fn with_name(&self, mut error: braiddb::Error) -> Error {
        if let braiddb::Error::KeyExists(record) = &mut error {
            record.table.clone_from(&self.name);
        }
        error.into()
    }

    /// Publishes the table under its name on all nodes. After an error, the table is discarded,
    /// except after [`Error::CommitUnknown`]: it may be published or discarded.
    ///
    /// For an example see [`Cluster::stage_table`].
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster has a table of this name by now, or the last call of
    /// [`StagedTable::load`] ended early; the errors of [`Cluster::run`].
    pub async fn publish(self) -> Result<Table<K, V>> {
        if self.is_interrupted {
            return Err(Error::Refused(format!(
                "a load of {:?} ended early, so rows may be missing; stage another table, and call \
                 load with the remaining rows until it succeeds",
                self.name
            )));
        }
        let deadline = Instant::now() + self.cluster.timeout;
        let publish = CatalogChange::Publish(self.filled.id);
        self.cluster.change_catalog(publish, deadline).await?;
        Ok(self.cluster.inner.replica.storage.db.open_table(&self.name).await?)
    }

    /// Drops the table on all nodes.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use braid_cluster::{Cluster, ClusterOptions, MemoryNetwork};
    /// use braiddb::{Database, Options};
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let transport = MemoryNetwork::default().transport("first");
    ///     let cluster = Cluster::start(db, ClusterOptions::new("shop", 1), transport).await?;
    ///     cluster.init(BTreeMap::from([(1, "first".to_owned())])).await?;
    ///     let mut names = cluster.stage_table::<u64, str>("names").await?;
    ///     names.load([(1, "Ada"), (2, "Grace")], |_| {}).await?;
    ///     names.discard().await?;
    ///     cluster.shutdown().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Cluster::run`]. Then the node discards the table later.
    pub async fn discard(self) -> Result<()> {
        let deadline = Instant::now() + self.cluster.timeout;
        let discard = CatalogChange::Discard(self.filled.id);
        self.cluster.change_catalog(discard, deadline).await
    }
}

/// Returns the bytes of keys and values.
fn size(rows: &[(Bytes, Bytes)]) -> usize {
    rows.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Returns whether rows are the reason of an error of a load.
fn is_of_rows(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } => true,
        Error::Database(error) => error.kind() == ErrorKind::Call,
        _ => false,
    }
}
