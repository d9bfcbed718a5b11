//! Snapshots: a stream of the cluster's tables as of one moment, read from a live database.
//!
//! A snapshot is never stored by the node that sends it: its state machine is durable, so its
//! handle refers to the database, and the stream shows the state when it begins. It may be newer
//! than the metadata with which openraft asked for it. That is safe, because everything applied is
//! committed; the receiver installs the metadata of the stream.
//!
//! The stream contains the cluster's catalog, its lists of indexes and of staged tables, the
//! certification window, and every cluster table. It also contains records that have expired by the
//! clock of this node and were not deleted yet. Each node builds the entries of indexes itself. The
//! stream never contains the log, the vote, or another row of `raft.state`.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use braiddb::{Result, Table, Transaction};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::command::ClusterTable;
use crate::raft::SnapshotMeta;
use crate::received::CompleteSnapshot;
use crate::storage::{
    Applied, CATALOG_TABLE, INDEX_TABLE, STAGED_TABLE, Storage, WINDOW_TABLE, decode, row,
};

/// A chunk has about this many bytes of rows, or one larger row.
const CHUNK_BYTES: usize = 1 << 20;

/// A table whose types only the catalog names.
type EncodedTable = Table<[u8], [u8]>;

/// A snapshot as openraft passes it around.
#[derive(Debug)]
pub enum SnapshotData {
    /// The state of this node's database when the stream begins.
    Live(Arc<Storage>),
    /// All chunks of another node's stream.
    Received(CompleteSnapshot),
}

/// A message of a snapshot stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// First: the state that the stream copies.
    Begin(Applied),
    /// Begins a table. Its rows follow.
    Table(ClusterTable),
    /// In key order.
    Rows(Vec<CopiedRow>),
    /// Last.
    End,
}

/// Encoded key and value of a record, and its expiry in milliseconds since 1970 if it expires.
pub type CopiedRow = (Bytes, Bytes, Option<u64>);

/// Returns the metadata of a snapshot with this state.
pub fn snapshot_meta(applied: &Applied) -> SnapshotMeta {
    let id =
        applied.log_id.map_or("empty".to_owned(), |id| format!("{}-{}", id.leader_id, id.index));
    SnapshotMeta {
        last_log_id: applied.log_id,
        last_membership: applied.membership.clone(),
        snapshot_id: id,
    }
}

/// Reads the chunks of a snapshot.
#[derive(Debug)]
pub struct SnapshotReader {
    snapshot: braiddb::Snapshot,
    /// State of the snapshot.
    pub applied: Applied,
    state: ReaderState,
    tables: VecDeque<(ClusterTable, EncodedTable)>,
}

#[derive(Debug)]
enum ReaderState {
    Begin,
    Tables,
    /// In a table, behind a key.
    Rows {
        table: EncodedTable,
        expires: bool,
        after: Bound<Vec<u8>>,
    },
    Ended,
}

impl SnapshotReader {
    /// Takes a snapshot of the database.
    pub async fn begin(storage: &Storage) -> Result<Self> {
        // The clock of the receiver decides which records it hides.
        let snapshot = storage.db.snapshot_with_expired().await?;
        let (state, catalog) = (storage.state.clone(), storage.catalog.clone());
        let read = async move |tx: &Transaction| {
            let applied = tx.get(&state, row::APPLIED).await?.map(decode).unwrap_or_default();
            let mut tables = VecDeque::new();
            for name in [CATALOG_TABLE, WINDOW_TABLE, INDEX_TABLE, STAGED_TABLE] {
                tables.push_back(open(tx, name, 0).await?);
            }
            let mut rows = tx.scan(&catalog, ..)?;
            while let Some((name, row)) = rows.next().await? {
                let ClusterTable { created, .. } = decode(row);
                tables.push_back(open(tx, &name, created).await?);
            }
            Ok((applied, tables))
        };
        let (applied, tables) = snapshot.run(read).await?;
        Ok(Self { snapshot, applied, state: ReaderState::Begin, tables })
    }

    /// Returns the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            match std::mem::replace(&mut self.state, ReaderState::Ended) {
                ReaderState::Begin => {
                    self.state = ReaderState::Tables;
                    return Ok(Some(Chunk::Begin(self.applied.clone())));
                }
                ReaderState::Tables => {
                    let Some((description, table)) = self.tables.pop_front() else {
                        return Ok(Some(Chunk::End));
                    };
                    let expires = description.ttl_ms.is_some();
                    self.state = ReaderState::Rows { table, expires, after: Bound::Unbounded };
                    return Ok(Some(Chunk::Table(description)));
                }
                ReaderState::Rows { table, expires, after } => {
                    let rows = self.rows(table.clone(), expires, after).await?;
                    let Some((last, ..)) = rows.last() else {
                        self.state = ReaderState::Tables;
                        continue;
                    };
                    let after = Bound::Excluded(last.to_vec());
                    self.state = ReaderState::Rows { table, expires, after };
                    return Ok(Some(Chunk::Rows(rows)));
                }
                ReaderState::Ended => return Ok(None),
            }
        }
    }

    /// Returns the next rows of a table.
    async fn rows(
        &self,
        table: EncodedTable,
        expires: bool,
        after: Bound<Vec<u8>>,
    ) -> Result<Vec<CopiedRow>> {
        let read = async move |tx: &Transaction| {
            let mut scan = tx.scan(&table, (after, Bound::Unbounded))?;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while bytes < CHUNK_BYTES
                && let Some((key, value)) = scan.next().await?
            {
                bytes += key.len() + value.len();
                rows.push((Bytes::from(key), Bytes::copy_from_slice(value), None));
            }
            drop(scan);
            if expires {
                for (key, _, expires_at_ms) in &mut rows {
                    *expires_at_ms = tx.expires_at_ms(&table, &key[..]).await?;
                }
            }
            Ok(rows)
        };
        self.snapshot.run(read).await
    }
}

/// Opens a table, whatever its types are.
async fn open(tx: &Transaction, name: &str, created: u64) -> Result<(ClusterTable, EncodedTable)> {
    let (table, description) = tx.open_encoded_table(name).await?;
    let braiddb::tables::TableDescription { name, key_type, value_type, options, .. } = description;
    let description = ClusterTable::new(&name, key_type, value_type, options);
    Ok((ClusterTable { created, ..description }, table))
}
