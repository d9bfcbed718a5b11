//! Tables of a node: Raft's log and state, the cluster's catalog, the certification window, and
//! received snapshot chunks.
//!
//! They are tables of the user's database, so that one flush serves them and the user's records.
//! Names that start with `raft.` are reserved for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braiddb::{Database, Result, Table, Ticket, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalog::repeat;
use crate::command::{ClusterIndex, ClusterStagedTable, ClusterTable, SubmissionId};
use crate::identity::FIRST_VERSION;
use crate::local_indexes::LocalIndexes;
use crate::raft::{LogId, Membership};

/// Prefix of the names of the cluster's own tables.
pub const RESERVED_PREFIX: &str = "raft.";
/// Name of the table of Raft's state.
pub const STATE_TABLE: &str = "raft.state";
/// Name of the cluster's catalog, which snapshots contain.
pub const CATALOG_TABLE: &str = "raft.catalog";
/// Name of the certification window, which snapshots contain.
pub const WINDOW_TABLE: &str = "raft.window";
/// Name of the list of the cluster's indexes, which snapshots contain.
pub const INDEX_TABLE: &str = "raft.indexes";
/// Name of the list of staged tables, which snapshots contain.
pub const STAGED_TABLE: &str = "raft.staged";
/// Prefix of the names of staged tables.
const STAGED_PREFIX: &str = "raft.staged.";

/// The call through which programs write, for errors of other writes.
const WRITER: &str = "cluster.run (Cluster::run of braid-cluster)";

/// Pause before a transaction is repeated that found the database overloaded.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Rows of the table `raft.state`.
pub mod row {
    /// The vote: term and candidate. It never leaves the node.
    pub const VOTE: &str = "vote";
    /// Log id up to which the log is purged.
    pub const PURGED: &str = "purged";
    /// [`Applied`](super::Applied).
    pub const APPLIED: &str = "applied";
    /// Metadata of the current snapshot.
    pub const SNAPSHOT: &str = "snapshot";
    /// State of which a complete copy is received and being installed.
    pub const INSTALLING: &str = "installing";
    /// Cluster and node to which the database belongs.
    pub const IDENTITY: &str = "identity";
}

/// The state machine's position: the last applied entry and the last applied membership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Applied {
    pub log_id: Option<LogId>,
    pub membership: Membership,
    /// Version that all members understand and use; 0 means [`FIRST_VERSION`].
    version: u32,
    /// Number of tables and indexes that the cluster has created.
    created_tables: u64,
    /// Index of the last entry that has left the certification window.
    window_start: u64,
}

impl Applied {
    /// Returns the index of the last applied entry; 0 if none is.
    pub fn index(&self) -> u64 {
        self.log_id.map_or(0, |log_id| log_id.index)
    }

    /// Returns the version that all members understand and use.
    pub fn version(&self) -> u32 {
        self.version.max(FIRST_VERSION)
    }

    /// Counts a table or an index that is created, and returns its number.
    pub fn count_table(&mut self) -> u64 {
        self.created_tables += 1;
        self.created_tables
    }

    /// Returns the index of the last entry that has left the certification window.
    pub fn window_start(&self) -> u64 {
        self.window_start
    }

    /// Sets the index of the last entry that has left the certification window.
    pub fn set_window_start(&mut self, index: u64) {
        self.window_start = index;
    }

    /// Raises the version.
    pub fn raise_version(&mut self, version: u32) {
        self.version = self.version.max(version);
    }
}

/// The database and the handles of the cluster's own tables.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The only handle through which the database accepts writes.
    pub db: Database,
    /// Log index to encoded entry.
    pub log: Table<u64, [u8]>,
    /// Row name to encoded value.
    pub state: Table<str, [u8]>,
    /// Name to encoded [`ClusterTable`](crate::command::ClusterTable): the cluster's catalog.
    pub catalog: Table<str, [u8]>,
    /// Log index to the encoded sets of keys that the committed transactions of the entry wrote.
    pub window: Table<u64, [u8]>,
    /// Number to chunk of the snapshot that is being received or installed.
    pub received: Table<u64, [u8]>,
    /// Number of a table's creation and name of an index to encoded
    /// [`ClusterIndex`](crate::command::ClusterIndex).
    pub index_rows: Table<(u64, String), [u8]>,
    /// Name of a staged table to encoded
    /// [`ClusterStagedTable`](crate::command::ClusterStagedTable).
    pub staged_rows: Table<str, [u8]>,
    /// The indexes on this node.
    pub indexes: Arc<LocalIndexes>,
}

impl Storage {
    /// Opens or creates the tables, and restricts writes to the cluster.
    pub async fn open(db: &Database) -> Result<Self> {
        let db = db.restrict_writes(WRITER).await?;
        let indexes = LocalIndexes::new(db.indexes().await?);
        Ok(Self {
            log: db.open_or_create_table("raft.log").await?,
            state: db.open_or_create_table(STATE_TABLE).await?,
            catalog: db.open_or_create_table(CATALOG_TABLE).await?,
            window: db.open_or_create_table(WINDOW_TABLE).await?,
            received: db.open_or_create_table("raft.received").await?,
            index_rows: db.open_or_create_table(INDEX_TABLE).await?,
            staged_rows: db.open_or_create_table(STAGED_TABLE).await?,
            indexes,
            db,
        })
    }

    /// Returns the decoded value of a row of `raft.state`.
    pub async fn state_row<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        Ok(repeat(|| self.db.get(&self.state, name)).await?.map(|bytes| decode(&bytes)))
    }

    /// Writes a row of `raft.state`, and returns when it is durable.
    pub async fn set_state_row(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let (state, name, value) = (self.state.clone(), name.to_owned(), encode(value));
        self.run(async move |tx: &Transaction| tx.put(&state, &name, &value).await).await
    }

    /// Runs a transaction of the cluster, and returns when it is visible. Executing closures may
    /// hold its records or all places of a worker for a moment; it waits for them.
    pub async fn run_visible<F>(&self, body: F) -> Result<(u64, Ticket)>
    where
        F: AsyncFn(&Transaction) -> Result<()> + Clone + Send + 'static,
    {
        loop {
            let transaction = self.db.transaction().max_attempts(u32::MAX);
            match transaction.run_visible(body.clone()).await {
                Ok((outcome, ticket)) => return Ok((outcome.commit_lsn, ticket)),
                Err(error) if error.is_retryable() => {
                    tracing::debug!("a transaction of the cluster is repeated: {error}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a transaction of the cluster, and returns when it is durable.
    pub async fn run<F>(&self, body: F) -> Result<()>
    where
        F: AsyncFn(&Transaction) -> Result<()> + Clone + Send + 'static,
    {
        let (_, ticket) = self.run_visible(body).await?;
        ticket.durable().await
    }

    /// Returns the tables of the cluster, by name.
    pub async fn cluster_tables(&self) -> Result<Vec<ClusterTable>> {
        let rows = repeat(|| self.db.scan(&self.catalog, ..)).await?;
        Ok(rows.into_iter().map(|(_, row)| decode(&row)).collect())
    }

    /// Returns a table of the cluster.
    pub async fn table_row(&self, name: &str) -> Result<Option<ClusterTable>> {
        Ok(repeat(|| self.db.get(&self.catalog, name)).await?.map(|row| decode(&row)))
    }

    /// Returns an index of the table with this number.
    pub async fn index_row(&self, table: u64, name: &str) -> Result<Option<ClusterIndex>> {
        let key = (table, name.to_owned());
        let row = repeat(|| self.db.get(&self.index_rows, &key)).await?;
        Ok(row.map(|row| decode(&row)))
    }

    /// Returns the indexes of the cluster, by the numbers of their tables and by name.
    pub async fn cluster_indexes(&self) -> Result<BTreeMap<(u64, String), ClusterIndex>> {
        let rows = repeat(|| self.db.scan(&self.index_rows, ..)).await?;
        Ok(rows.into_iter().map(|(key, row)| (key, decode(&row))).collect())
    }

    /// Returns the staged tables, by their hidden names.
    pub async fn staged_tables(&self) -> Result<BTreeMap<String, ClusterStagedTable>> {
        let rows = repeat(|| self.db.scan(&self.staged_rows, ..)).await?;
        Ok(rows.into_iter().map(|(name, row)| (name, decode(&row))).collect())
    }

    /// Returns the state machine's position.
    pub async fn applied(&self) -> Result<Applied> {
        Ok(self.state_row(row::APPLIED).await?.unwrap_or_default())
    }
}

/// Returns the hidden name of a staged table.
pub fn staged_name(id: SubmissionId) -> String {
    format!("{STAGED_PREFIX}{id}")
}

/// Returns whether a table of the database is one of the node's own, and not of the cluster.
pub fn is_own_table(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX) && !name.starts_with(STAGED_PREFIX)
}

/// Encodes a value of the cluster's own tables and messages.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("values of the cluster have encodings")
}

/// Decodes a value of the cluster's own tables, which checksums of the database protect.
///
/// # Panics
/// If another version of this crate wrote the value.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> T {
    postcard::from_bytes(bytes).expect("the cluster's own tables hold values of this version")
}
