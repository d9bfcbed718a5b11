//! A new cluster from the database of one node: after the loss of a majority, or from a backup.

use std::collections::{BTreeMap, BTreeSet};

use braiddb::{Database, Transaction};
use openraft::{BasicNode, CommittedLeaderId, EntryPayload};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::identity::{ClusterId, Identity};
use crate::raft::{Entry, LogId, NodeId, Vote};
use crate::received;
use crate::storage::{STATE_TABLE, Storage, decode, encode, row};

impl Cluster {
    /// Makes the database of a node, or its backup, the only node of a new cluster, which has all
    /// entries of the node's log. Then start it, and add nodes with empty databases.
    ///
    /// Use it only if no majority of the old cluster can run again: transactions that only other
    /// nodes have are lost. The new cluster has another name, so it refuses nodes of the old one.
    /// Call it for one database only, with a name that no cluster had, and while no [`Cluster`] of
    /// this process uses the database.
    ///
    /// # Errors
    /// [`Error::Options`] if the database is not of a cluster, or of one with this name.
    pub async fn recover(db: &Database, cluster: &str, node: NodeId, address: &str) -> Result<()> {
        let no_node = || Error::Options("the database is not of a node of a cluster".to_owned());
        if db.tables().await?.iter().all(|table| table.name != STATE_TABLE) {
            return Err(no_node());
        }
        let storage = Storage::open(db).await?;
        let old: Option<Identity> = storage.state_row(row::IDENTITY).await?;
        if old.is_some_and(|old| old.cluster == cluster) {
            return Err(Error::Options(format!(
                "the new cluster needs another name than {cluster:?}, because nodes of the old \
                 cluster may still run"
            )));
        }
        received::resume_installation(&storage).await?;
        let purged: Option<LogId> = storage.state_row(row::PURGED).await?;
        let applied = storage.applied().await?.log_id;
        let in_log = db.last(&storage.log).await?;
        let in_log = in_log.map(|(_, entry)| decode::<Entry>(&entry).log_id);
        let last = [in_log, purged, applied].into_iter().flatten().max_by_key(|id| id.index);
        let last = last.ok_or_else(no_node)?;
        // A snapshot was installed, and the log lacks entries before its end.
        let restarts_log = in_log.is_none_or(|id| id.index < last.index);
        let vote: Option<Vote> = storage.state_row(row::VOTE).await?;
        // A new term, in which this node has not voted for another one.
        let term = vote.map_or(0, |vote| vote.leader_id.term).max(last.leader_id.term) + 1;
        let nodes = BTreeMap::from([(node, BasicNode::new(address))]);
        let members = openraft::Membership::new(vec![BTreeSet::from([node])], nodes);
        let log_id = LogId::new(CommittedLeaderId::new(term, node), last.index + 1);
        let entry = encode(&Entry { log_id, payload: EntryPayload::Membership(members) });
        let vote = encode(&Vote::new(term, node));
        let (cluster, id) = (cluster.to_owned(), Some(ClusterId::random()));
        let identity = encode(&Identity { cluster, node, id });
        let (log, state) = (storage.log.clone(), storage.state.clone());
        let purged = encode(&last);
        let write = async move |tx: &Transaction| {
            if restarts_log {
                tx.delete_range(&log, ..).await?;
                tx.put(&state, row::PURGED, &purged).await?;
            }
            tx.put(&log, &log_id.index, &entry).await?;
            tx.put(&state, row::VOTE, &vote).await?;
            tx.put(&state, row::IDENTITY, &identity).await
        };
        Ok(storage.run(write).await?)
    }
}
