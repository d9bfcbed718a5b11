//! The state machine: applies committed entries to the database, in log order.

use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{BasicNode, EntryPayload, OptionalSend, RaftSnapshotBuilder};
use tokio::sync::OwnedMutexGuard;

use crate::applier::Applier;
use crate::counters::count;
use crate::error::{Error, Result};
use crate::raft::{
    Entry, LogId, Membership, NodeId, Snapshot, SnapshotMeta, StorageResult, TypeConfig,
    storage_error,
};
use crate::received::{self, CompleteSnapshot, ReceiveSlot};
use crate::replica::Replica;
use crate::snapshot::{SnapshotData, snapshot_meta};
use crate::storage::{Storage, row};

/// Applies entries and installs snapshots.
#[derive(Debug)]
pub struct StateMachine {
    replica: Arc<Replica>,
    applier: Applier,
    _running: OwnedMutexGuard<()>,
}

impl StateMachine {
    /// Reads the state of the node, after finishing an interrupted installation of a snapshot.
    ///
    /// # Errors
    /// Those of the database; [`Error::Stopped`] if entries are missing.
    pub async fn open(replica: Arc<Replica>) -> Result<Self> {
        let running = replica.machine.clone().lock_owned().await;
        received::resume_installation(&replica.storage).await?;
        let applier = Applier::open(replica.clone()).await?;
        let purged: Option<LogId> = replica.storage.state_row(row::PURGED).await?;
        if purged.is_some_and(|purged| purged.index > applier.applied().index()) {
            let reason = "entries that it has not applied are missing from its log; add the node \
                          again with an empty database and a new number";
            return Err(Error::Stopped(reason.to_owned()));
        }
        Ok(Self { replica, applier, _running: running })
    }

    async fn install(&mut self, snapshot: CompleteSnapshot) -> Result<()> {
        // Waits for closures that read the contents which are about to be replaced.
        let _contents = self.replica.contents.write().await;
        received::install(&self.replica.storage, snapshot).await?;
        self.applier = Applier::open(self.replica.clone()).await?;
        count(&self.replica.counters.snapshots_installed);
        // Their entries were skipped, so their decisions are not known here.
        self.replica.forget_submissions();
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> StorageResult<(Option<LogId>, Membership)> {
        let applied = self.applier.applied();
        Ok((applied.log_id, applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> StorageResult<Vec<()>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut replies = Vec::new();
        for entry in entries {
            let applied = match entry.payload {
                EntryPayload::Blank => {
                    Ok(self.applier.apply_blank(entry.log_id).await.map_err(storage_error)?)
                }
                EntryPayload::Membership(members) => {
                    let members = openraft::StoredMembership::new(Some(entry.log_id), members);
                    Ok(self
                        .applier
                        .apply_membership(entry.log_id, members)
                        .await
                        .map_err(storage_error)?)
                }
                EntryPayload::Normal(command) => {
                    self.applier.apply_command(entry.log_id, &command).await
                }
            };
            applied.map_err(storage_error)?;
            replies.push(());
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder(self.replica.storage.clone())
    }

    async fn begin_receiving_snapshot(&mut self) -> StorageResult<Box<SnapshotData>> {
        Ok(Box::new(SnapshotData::Live(self.replica.storage.clone())))
    }

    async fn install_snapshot(
        &mut self,
        _meta: &openraft::SnapshotMeta<NodeId, BasicNode>,
        snapshot: Box<SnapshotData>,
    ) -> StorageResult<()> {
        let complete = match *snapshot {
            SnapshotData::Received(complete) => complete,
            SnapshotData::Live(from) => {
                copy(&self.replica.receiving, &self.replica.storage, &from).await?
            }
        };
        self.install(complete).await.map_err(storage_error)
    }

    async fn get_current_snapshot(&mut self) -> StorageResult<Option<Snapshot>> {
        let meta = self.replica.storage.state_row(row::SNAPSHOT).await.map_err(storage_error)?;
        Ok(meta.map(|meta| live(meta, self.replica.storage.clone())))
    }
}

/// Copies the contents of another open database.
async fn copy(
    slot: &ReceiveSlot,
    to: &Arc<Storage>,
    from: &Storage,
) -> StorageResult<CompleteSnapshot> {
    let incoming = slot.begin(to.clone()).await.map_err(storage_error)?;
    let incoming = incoming.ok_or_else(|| {
        storage_error(std::io::Error::other("another snapshot is being installed"))
    })?;
    incoming.copy(from).await.map_err(storage_error)
}

/// Notes the position of a snapshot. The contents stay in the database.
#[derive(Debug)]
pub struct SnapshotBuilder(Arc<Storage>);

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> StorageResult<Snapshot> {
        let applied = self.0.applied().await.map_err(storage_error)?;
        let meta = snapshot_meta(&applied);
        self.0.set_state_row(row::SNAPSHOT, &meta).await.map_err(storage_error)?;
        Ok(live(meta, self.0.clone()))
    }
}

fn live(meta: SnapshotMeta, storage: Arc<Storage>) -> Snapshot {
    Snapshot { meta, snapshot: Box::new(SnapshotData::Live(storage)) }
}
