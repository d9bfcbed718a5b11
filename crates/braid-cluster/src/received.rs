//! Received snapshots: chunks are collected in a table, and replace the node's contents when all
//! are there.
//!
//! An interrupted installation is resumed when the node starts: from the first changed row on, the
//! row `installing` marks the contents as incomplete, and the complete chunks are on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braiddb::{Result, Table, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::catalog::{self, repeat};
use crate::command::ClusterTable;
use crate::error;
use crate::snapshot::{Chunk, CopiedRow, SnapshotReader, snapshot_meta};
use crate::storage::{Applied, Storage, decode, encode, is_own_table, row};

/// Rows that one transaction of an installation writes.
const INSTALL_STEP: usize = 1024;

/// Place for the chunks of one snapshot. Its lock is held from the first chunk until the
/// installation ends, so no second stream overwrites them.
#[derive(Clone, Debug, Default)]
pub struct ReceiveSlot(Arc<Mutex<()>>);

/// A snapshot of which some chunks may be missing.
#[derive(Debug)]
pub struct IncomingSnapshot {
    storage: Arc<Storage>,
    applied: Option<Applied>,
    chunks: u64,
    is_complete: bool,
    guard: OwnedMutexGuard<()>,
}

/// A snapshot whose chunks are all on disk.
#[derive(Debug)]
pub struct CompleteSnapshot {
    pub applied: Applied,
    _guard: OwnedMutexGuard<()>,
}

impl ReceiveSlot {
    /// Begins to receive a snapshot; `None` while another one is received or installed.
    pub async fn begin(&self, storage: Arc<Storage>) -> Result<Option<IncomingSnapshot>> {
        let Ok(guard) = self.0.clone().try_lock_owned() else { return Ok(None) };
        // The chunks on disk are those of an installation that failed, which the next start resumes.
        if storage.state_row::<Applied>(row::INSTALLING).await?.is_some() {
            return Ok(None);
        }
        repeat(|| storage.db.clear(&storage.received)).await?;
        Ok(Some(IncomingSnapshot { storage, applied: None, chunks: 0, is_complete: false, guard }))
    }
}

impl IncomingSnapshot {
    /// Returns the number of chunks received, which is the number of the next one.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Stores the next chunk. Returns when it is durable.
    pub async fn push(&mut self, chunk: Chunk) -> Result<()> {
        let (storage, bytes) = (&self.storage, encode(&chunk));
        repeat(|| storage.db.put(&storage.received, &self.chunks, &bytes)).await?;
        self.chunks += 1;
        match chunk {
            Chunk::Begin(applied) => self.applied = Some(applied),
            Chunk::End => self.is_complete = true,
            Chunk::Table(_) | Chunk::Rows(_) => {}
        }
        Ok(())
    }

    /// Returns the snapshot if all its chunks have arrived.
    pub fn complete(self) -> Option<CompleteSnapshot> {
        let applied = self.applied.filter(|_| self.is_complete)?;
        Some(CompleteSnapshot { applied, _guard: self.guard })
    }

    /// Copies a snapshot of another database.
    pub async fn copy(mut self, from: &Storage) -> Result<CompleteSnapshot> {
        let mut reader = SnapshotReader::begin(from).await?;
        while let Some(chunk) = reader.next().await? {
            self.push(chunk).await?;
        }
        Ok(self.complete().expect("a stream ends with its last chunk"))
    }
}

/// Marks the received snapshot as one to install. Precedes Raft's installation, which purges the
/// log: a node that stops in between has neither the entries nor the contents otherwise.
pub async fn mark(storage: &Storage, snapshot: &CompleteSnapshot) -> Result<()> {
    storage.set_state_row(row::INSTALLING, &snapshot.applied).await
}

/// Removes the mark of a snapshot that Raft has not accepted. Another one stays.
pub async fn unmark(storage: &Storage, applied: &Applied) -> Result<()> {
    let (state, marked) = (storage.state.clone(), encode(applied));
    let remove = async move |tx: &Transaction| {
        if tx.get(&state, row::INSTALLING).await?.is_some_and(|found| found == marked) {
            tx.delete(&state, row::INSTALLING).await?;
        }
        Ok(())
    };
    storage.run(remove).await
}

/// Replaces the contents of the node by a received snapshot.
pub async fn install(storage: &Storage, snapshot: CompleteSnapshot) -> error::Result<()> {
    mark(storage, &snapshot).await?;
    resume_installation(storage).await
}

/// Finishes an installation that an earlier run of the node began.
///
/// # Errors
/// [`Error::Stopped`](error::Error) if chunks are missing.
pub async fn resume_installation(storage: &Storage) -> error::Result<()> {
    let Some(applied) = storage.state_row::<Applied>(row::INSTALLING).await? else { return Ok(()) };
    if applied.index() <= storage.applied().await?.index() {
        // Raft would not have accepted it.
        return Ok(unmark(storage, &applied).await?);
    }
    let received = check_chunks(storage, &applied).await?;
    drop_other_tables(storage, &received).await?;
    let mut table = None;
    for number in 0.. {
        let chunk = repeat(|| storage.db.get(&storage.received, &number)).await?;
        let Some(chunk) = chunk else { break };
        match decode(&chunk) {
            Chunk::Table(description) => {
                table = Some(empty_table(storage, &description).await?);
            }
            Chunk::Rows(rows) => {
                let table = table.as_ref().expect("rows follow their table");
                write_rows(storage, table, rows).await?;
            }
            Chunk::Begin(_) => {}
            Chunk::End => break,
        }
    }
    let (state, meta) = (storage.state.clone(), encode(&snapshot_meta(&applied)));
    let end = async move |tx: &Transaction| {
        tx.put(&state, row::APPLIED, &encode(&applied)).await?;
        tx.put(&state, row::SNAPSHOT, &meta).await?;
        tx.delete(&state, row::INSTALLING).await.map(drop)
    };
    storage.run(end).await?;
    repeat(|| storage.db.clear(&storage.received)).await.map(drop)?;
    Ok(())
}

/// Checks that all chunks of a snapshot are there, before anything is replaced. Returns the names of
/// its tables, and the numbers of their creation.
async fn check_chunks(
    storage: &Storage,
    applied: &Applied,
) -> error::Result<BTreeMap<String, u64>> {
    let damaged = || {
        let reason = "an installation of the cluster's contents cannot be resumed, because parts of \
                      them are missing; add the node again with an empty database and a new number";
        error::Error::Stopped(reason.to_owned())
    };
    let mut tables = BTreeMap::new();
    for number in 0.. {
        let chunk = repeat(|| storage.db.get(&storage.received, &number)).await?;
        let chunk = chunk.ok_or_else(damaged)?;
        match decode(&chunk) {
            Chunk::Begin(found) if number == 0 && found == *applied => {}
            Chunk::Table(table) if number > 0 => _ = tables.insert(table.name, table.created),
            Chunk::Rows(_) if number > 0 => {}
            Chunk::End if number > 0 => break,
            _ => return Err(damaged()),
        }
    }
    Ok(tables)
}

/// Drops the tables that the snapshot lacks. A table that was dropped or renamed and has another one
/// of its name in the snapshot is a different one, and its handles must not reach that one.
///
/// Precedes all other changes, because it compares the catalog of this node. An installation that is
/// resumed finds the tables dropped, or the catalog of the snapshot.
async fn drop_other_tables(storage: &Storage, received: &BTreeMap<String, u64>) -> Result<()> {
    let own = storage.cluster_tables().await?.into_iter();
    let own: BTreeMap<String, u64> = own.map(|table| (table.name, table.created)).collect();
    for table in catalog::tables(&storage.db).await? {
        let is_kept =
            own.get(&table.name).is_some_and(|own| received.get(&table.name) == Some(own));
        if !is_own_table(&table.name) && !is_kept {
            let _no_build = storage.indexes.block(&table.name);
            catalog::drop_table(&storage.db, &table.name).await?;
            storage.indexes.remove_table(&table.name);
        }
    }
    Ok(())
}

/// Returns the table without its records. Handles of an existing table stay valid.
async fn empty_table(storage: &Storage, wanted: &ClusterTable) -> Result<Table<[u8], [u8]>> {
    let name = wanted.name.clone();
    let find = async move |tx: &Transaction| {
        let found = tx.tables().await?.into_iter().any(|table| table.name == name);
        Ok(if found { Some(tx.open_encoded_table(&name).await?) } else { None })
    };
    if let Some((table, _)) = repeat(|| storage.db.run(find.clone())).await? {
        let names = || BTreeSet::from([wanted.name.clone()]);
        storage.write_indexed(names, || repeat(|| storage.db.clear(&table))).await?;
        return Ok(table);
    }
    let wanted = wanted.clone();
    let create = async move |tx: &Transaction| create_table(tx, &wanted).await;
    repeat(|| storage.db.run(create.clone())).await
}

/// Creates a table from the names of its types.
pub async fn create_table(tx: &Transaction, table: &ClusterTable) -> Result<Table<[u8], [u8]>> {
    let ClusterTable { name, key_type, value_type, .. } = table;
    tx.create_encoded_table(name, key_type, value_type, table.options()).await
}

async fn write_rows(
    storage: &Storage,
    table: &Table<[u8], [u8]>,
    rows: Vec<CopiedRow>,
) -> Result<()> {
    let (rows, names) = (Arc::new(rows), || BTreeSet::from([table.name().to_owned()]));
    for start in (0..rows.len()).step_by(INSTALL_STEP) {
        let (rows, table) = (rows.clone(), table.clone());
        let write = async move |tx: &Transaction| {
            for (key, value, expires_at_ms) in rows[start..].iter().take(INSTALL_STEP) {
                match expires_at_ms {
                    Some(at) => tx.put_until(&table, &key[..], &value[..], *at).await?,
                    None => tx.put(&table, &key[..], &value[..]).await?,
                }
            }
            Ok(())
        };
        storage.write_indexed(names, || storage.run(write.clone())).await?;
    }
    Ok(())
}
