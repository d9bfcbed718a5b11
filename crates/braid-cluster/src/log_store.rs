//! Raft's log and vote in tables of the database.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};

use crate::counters::Counters;
use crate::raft::{Entry, LogId, NodeId, StorageResult, TypeConfig, Vote, storage_error};
use crate::storage::{Storage, decode, encode, row};

/// A message of the leader carries at most this many bytes of entries, or one larger entry. It must
/// arrive within one heartbeat, or it is sent again.
const MAX_READ_BYTES: usize = 1 << 20;

/// Raft's log. Clones read the same log.
#[derive(Clone, Debug)]
pub struct LogStore {
    storage: Arc<Storage>,
    counters: Arc<Counters>,
}

impl LogStore {
    pub fn new(storage: Arc<Storage>, counters: Arc<Counters>) -> Self {
        Self { storage, counters }
    }

    /// Returns the entries of a range, up to `max_bytes` but at least one.
    async fn entries(
        &self,
        range: impl RangeBounds<u64>,
        max_bytes: usize,
    ) -> braiddb::Result<Vec<Entry>> {
        let bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        let log = self.storage.log.clone();
        let read = async move |tx: &braiddb::Transaction| {
            let (mut scan, mut entries, mut bytes) = (tx.scan(&log, bounds)?, Vec::new(), 0);
            while bytes < max_bytes
                && let Some((_, entry)) = scan.next().await?
            {
                bytes += entry.len();
                entries.push(decode(entry));
            }
            Ok(entries)
        };
        Ok(self.storage.db.transaction().read_only(true).run(read).await?.value)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> StorageResult<Vec<Entry>> {
        self.entries(range, usize::MAX).await.map_err(storage_error)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> StorageResult<Vec<Entry>> {
        self.entries(start..end, MAX_READ_BYTES).await.map_err(storage_error)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> StorageResult<LogState<TypeConfig>> {
        let purged: Option<LogId> =
            self.storage.state_row(row::PURGED).await.map_err(storage_error)?;
        let last = self.storage.db.last(&self.storage.log).await.map_err(storage_error)?;
        let last = last.map(|(_, entry)| decode::<Entry>(&entry).log_id);
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> StorageResult<()> {
        self.storage.set_state_row(row::VOTE, vote).await.map_err(storage_error)
    }

    /// Publishes the position. It is not stored: after a restart, the leader sends it again.
    async fn save_committed(&mut self, committed: Option<LogId>) -> StorageResult<()> {
        let index = committed.map_or(0, |log_id| log_id.index);
        // Relaxed: readers of the figure read nothing that depends on it.
        self.counters.committed_index.store(index, Ordering::Relaxed);
        Ok(())
    }

    async fn read_vote(&mut self) -> StorageResult<Option<Vote>> {
        self.storage.state_row(row::VOTE).await.map_err(storage_error)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), openraft::StorageError<NodeId>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Arc<[(u64, Vec<u8>)]> =
            entries.into_iter().map(|entry| (entry.log_id.index, encode(&entry))).collect();
        let log = self.storage.log.clone();
        let write = async move |tx: &braiddb::Transaction| {
            for (index, entry) in &*entries {
                tx.put(&log, index, entry).await?;
            }
            Ok(())
        };
        // Returns when the entries are durable. openraft 0.9 waits for that before it continues.
        self.storage.run(write).await.map_err(storage_error)?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> StorageResult<()> {
        let log = self.storage.log.clone();
        let truncate = async move |tx: &braiddb::Transaction| {
            tx.delete_range(&log, log_id.index..).await.map(drop)
        };
        self.storage.run(truncate).await.map_err(storage_error)
    }

    async fn purge(&mut self, log_id: LogId) -> StorageResult<()> {
        let (log, state, purged) =
            (self.storage.log.clone(), self.storage.state.clone(), encode(&log_id));
        let purge = async move |tx: &braiddb::Transaction| {
            tx.delete_range(&log, ..=log_id.index).await?;
            tx.put(&state, row::PURGED, &purged).await
        };
        self.storage.run(purge).await.map_err(storage_error)
    }
}
