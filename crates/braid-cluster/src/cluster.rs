//! A running node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braiddb::Database;
use openraft::BasicNode;
use openraft::error::{Fatal, InitializeError, RaftError};
use tokio::sync::{Mutex, Semaphore};

use crate::command::SubmissionId;
use crate::error::{Error, Result};
use crate::identity::{ClusterId, Identity, LocalNode};
use crate::intake::Intake;
use crate::leader::Leader;
use crate::log_store::LogStore;
use crate::message::{MemberChange, NodeDescription, Request};
use crate::network::{CallFailure, Peers};
use crate::options::ClusterOptions;
use crate::proposer::Proposer;
use crate::raft::{NodeId, Raft, Vote};
use crate::read_index::ReadIndices;
use crate::replica::Replica;
use crate::service::{ReadFloor, Service};
use crate::staged::discard_all_given_up;
use crate::state_machine::StateMachine;
use crate::status::{Status, StatusSource};
use crate::storage::{CATALOG_TABLE, RESERVED_PREFIX, Storage, row};
use crate::transport::Transport;
use crate::version::{describe_all, other_member};

/// Longest deadline of a call. Longer ones have the same effect, and clocks cannot express some.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// A node of a cluster. Handles are cheap to clone and work from any task.
///
/// The database of a node is written only through [`Cluster::run`]. A write through the
/// [`Database`] itself would be missing on the other nodes. It fails with
/// [`Misuse::RestrictedWrite`](braiddb::Misuse), also when the database is opened without the
/// cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
    pub(crate) timeout: Duration,
}

pub(crate) struct Inner {
    /// For reads: it accepts no writes.
    pub(crate) db: Database,
    pub(crate) options: ClusterOptions,
    pub(crate) replica: Arc<Replica>,
    pub(crate) raft: Raft,
    pub(crate) leader: Leader,
    pub(crate) proposer: Proposer,
    pub(crate) reads: ReadIndices,
    pub(crate) requests: Semaphore,
    transport: Arc<dyn Transport>,
    /// Random number of this run of the node.
    run: u64,
    next_number: AtomicU64,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({:?}, node {})", self.inner.options.cluster, self.inner.options.node)
    }
}

impl Cluster {
    /// Starts a node. The database is new, or was this node's before.
    ///
    /// # Errors
    /// [`Error::Options`] if the database belongs to another node or holds tables that are not the
    /// cluster's; errors of the database.
    pub async fn start(
        db: Database,
        options: ClusterOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Self> {
        let config = Arc::new(options.raft_config().map_err(Error::Options)?);
        // Before anything is written.
        if db.tables().await?.iter().all(|table| table.name != CATALOG_TABLE) {
            check_is_empty(&db).await?;
        }
        let storage = Arc::new(Storage::open(&db).await?);
        let identity = claim(&storage, &options).await?;
        let understood = options.oldest_version..=options.newest_version;
        let local = Arc::new(LocalNode::new(identity, understood));
        let replica = Replica::new(storage.clone(), local.clone());
        let machine = StateMachine::open(replica.clone()).await?;
        let peers =
            Peers { local: local.clone(), replica: replica.clone(), transport: transport.clone() };
        let last = storage.db.last(&storage.log).await?;
        let vote: Option<Vote> = storage.state_row(row::VOTE).await?;
        let read_floor = ReadFloor {
            term: vote.map_or(0, |vote| vote.leader_id.term),
            index: last.map_or(0, |(index, _)| index),
        };
        let log = LogStore::new(storage, replica.counters.clone());
        let raft = Raft::new(options.node, config, peers.clone(), log, machine).await;
        let raft = raft.map_err(|error| Error::Stopped(error.to_string()))?;
        let source = StatusSource::new(&raft, &replica);
        db.describe_layer("cluster", move || {
            serde_json::to_string(&Status::of(&source)).expect("a status has an encoding")
        });
        let inner = Arc::new_cyclic(|inner| {
            let service = Arc::new(Service {
                local,
                raft: raft.clone(),
                replica: replica.clone(),
                intake: Intake::start(raft.clone()),
                read_floor,
                inner: inner.clone(),
                incoming: Mutex::default(),
                changing_members: Mutex::default(),
            });
            let retry_pause = options.heartbeat;
            let leader = Leader { raft: raft.clone(), peers, service, retry_pause };
            Inner {
                db,
                raft,
                reads: ReadIndices::start(leader.clone()),
                proposer: Proposer::start(replica.clone(), leader.clone(), options.max_requests),
                replica,
                leader,
                requests: Semaphore::new(options.max_requests),
                transport,
                run: fastrand::u64(..),
                next_number: AtomicU64::new(0),
                options,
            }
        });
        inner.transport.serve(inner.leader.service.clone())?;
        tokio::spawn(discard_all_given_up(Arc::downgrade(&inner)));
        let timeout = inner.options.timeout.min(MAX_TIMEOUT);
        Ok(Self { inner, timeout })
    }

    /// Returns a handle with another deadline of calls than [`ClusterOptions::timeout`].
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: timeout.min(MAX_TIMEOUT), ..self.clone() }
    }

    /// Returns the node's database, for reads and statistics.
    pub fn database(&self) -> &Database {
        &self.inner.db
    }

    /// Makes this node and the others named here a new cluster. The member with the lowest number
    /// makes it, also if another one is called; so calls on several nodes make one cluster. The
    /// other members are running and learn it from that one. Has no effect if the node is a member
    /// already.
    ///
    /// # Errors
    /// [`Error::Options`] if `members` does not contain this node; [`Error::OtherCluster`] if one of
    /// the others is a member of a cluster; [`Error::NoFounder`] if the member with the lowest number
    /// does not answer; [`Error::NotMember`] if it made a cluster without this node.
    pub async fn init(&self, members: BTreeMap<NodeId, String>) -> Result<()> {
        let Inner { raft, replica, leader, .. } = &*self.inner;
        let local = &replica.local;
        if !members.contains_key(&local.number) {
            let number = local.number;
            return Err(Error::Options(format!("the members do not contain this node, {number}")));
        }
        let stopped = |error: Fatal<NodeId>| Error::Stopped(error.to_string());
        if raft.is_initialized().await.map_err(stopped)? {
            return Ok(());
        }
        // A node that does not answer learns the cluster later, if it is not a member of another.
        for (node, asked) in describe_all(&leader.peers, members.clone()).await {
            match asked {
                Ok(NodeDescription { id: Some(id), .. }) => {
                    // The call may have been made on that node too, with this one as a member.
                    if self.is_admitted().await {
                        return Ok(());
                    }
                    let own = local.id().filter(|_| leader.is_member());
                    return Err(CallFailure::from(other_member(node, id, own)).into_error());
                }
                Err(failure @ CallFailure::Refused(_)) => return Err(failure.into_error()),
                Ok(_) | Err(CallFailure::NoAnswer(_)) => {}
            }
        }
        match members.first_key_value() {
            Some((&founder, address)) if founder != local.number => {
                let address = address.clone();
                return self.ask_founder(founder, &address, members).await;
            }
            _ => {}
        }
        let _changing = local.changing_id.lock().await;
        if raft.is_initialized().await.map_err(stopped)? {
            return Ok(());
        }
        // Before this node sends a message as a member. Until then, another id may replace it.
        local.set_id(&replica.storage, ClusterId::random()).await?;
        let nodes: BTreeMap<NodeId, BasicNode> =
            members.into_iter().map(|(node, address)| (node, BasicNode::new(address))).collect();
        match raft.initialize(nodes).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(error)) => Err(Error::Options(error.to_string())),
            Err(RaftError::Fatal(error)) => Err(stopped(error)),
        }
    }

    /// Lets another node make the cluster, and waits until this one is a member.
    async fn ask_founder(
        &self,
        founder: NodeId,
        address: &str,
        members: BTreeMap<NodeId, String>,
    ) -> Result<()> {
        let request = Request::Found { members, timeout: self.timeout };
        let asked = self.inner.leader.peers.call(founder, address, request, self.timeout).await;
        if let Err(failure @ CallFailure::Refused(_)) = asked {
            return Err(failure.into_error());
        }
        if self.is_admitted().await {
            return Ok(());
        }
        Err(match asked {
            Ok(_) => Error::NotMember(self.inner.options.node),
            Err(failure) => Error::NoFounder { node: founder, reason: failure.to_string() },
        })
    }

    /// Waits for a while until this node is a member. Returns whether it is.
    async fn is_admitted(&self) -> bool {
        let mut metrics = self.inner.raft.metrics();
        let limit = self.timeout.min(self.inner.options.heartbeat.saturating_mul(10));
        let is_member = metrics.wait_for(|_| self.inner.leader.is_member());
        matches!(tokio::time::timeout(limit, is_member).await, Ok(Ok(_)))
    }

    /// Adds a running node to the cluster. It copies the contents first, and then votes. If it has
    /// not copied them before the deadline, it is not added.
    ///
    /// # Errors
    /// [`Error::NoQuorum`]; [`Error::Refused`] with the reason.
    pub async fn add_node(&self, node: NodeId, address: impl Into<String>) -> Result<()> {
        // The leader gives up before this call does.
        let timeout = self.timeout.mul_f64(0.8);
        self.change_members(MemberChange::Add { node, address: address.into(), timeout }).await
    }

    /// Removes a node from the cluster.
    ///
    /// # Errors
    /// [`Error::NoQuorum`]; [`Error::Refused`] with the reason.
    pub async fn remove_node(&self, node: NodeId) -> Result<()> {
        self.change_members(MemberChange::Remove { node }).await
    }

    async fn change_members(&self, change: MemberChange) -> Result<()> {
        let Some(leader) = self.inner.leader.wait_known(self.timeout).await else {
            return Err(self.no_leader());
        };
        let request = Request::Members(change);
        let answer = self.inner.leader.call(leader, request, self.timeout).await;
        answer.map(drop).map_err(CallFailure::into_error)
    }

    /// Returns the state of the cluster as this node knows it.
    pub fn status(&self) -> Status {
        Status::of(&StatusSource::new(&self.inner.raft, &self.inner.replica))
    }

    /// Waits until the node fails, for example because its disk is full, and returns the reason.
    /// The other nodes continue.
    pub async fn failure(&self) -> String {
        let mut metrics = self.inner.raft.metrics();
        let failed = metrics.wait_for(|metrics| metrics.running_state.is_err()).await;
        let failure = failed.ok().and_then(|metrics| metrics.running_state.clone().err());
        failure.map_or("its task has ended".to_owned(), |failure| failure.to_string())
    }

    /// Stops the node: it answers no requests anymore. The database stays open.
    pub async fn shutdown(&self) {
        self.inner.transport.stop();
        // It fails only if Raft's task has panicked, and then it has stopped.
        _ = self.inner.raft.shutdown().await;
        // Until the state machine has applied what it had begun.
        drop(self.inner.replica.machine.lock().await);
    }

    /// Returns the error for a call that found no leader.
    pub(crate) fn no_leader(&self) -> Error {
        match self.status().failure {
            Some(failure) => Error::Stopped(failure),
            None if self.inner.leader.is_member() => Error::NoQuorum(self.timeout),
            None => Error::NotMember(self.inner.options.node),
        }
    }

    /// Returns an identity for a submission.
    pub(crate) fn new_id(&self) -> SubmissionId {
        // Relaxed: only uniqueness matters, and no other access depends on it.
        let number = self.inner.next_number.fetch_add(1, Ordering::Relaxed);
        SubmissionId { node: self.inner.options.node, run: self.inner.run, number }
    }
}

/// Notes to which node the database belongs, or checks it.
async fn claim(storage: &Storage, options: &ClusterOptions) -> Result<Identity> {
    let identity = Identity { cluster: options.cluster.clone(), node: options.node, id: None };
    match storage.state_row::<Identity>(row::IDENTITY).await? {
        Some(found) if (&found.cluster, found.node) == (&identity.cluster, identity.node) => {
            Ok(found)
        }
        Some(Identity { cluster, node, .. }) => Err(Error::Options(format!(
            "the database belongs to node {node} of {cluster:?}, and is opened as node {} of {:?}",
            identity.node, identity.cluster
        ))),
        None => {
            // Since the first check, and until the cluster restricted writes, others may have
            // created tables.
            check_is_empty(&storage.db).await?;
            storage.set_state_row(row::IDENTITY, &identity).await?;
            Ok(identity)
        }
    }
}

/// Checks that a database has no other tables than the cluster's own.
async fn check_is_empty(db: &Database) -> Result<()> {
    let tables = db.tables().await?;
    match tables.iter().find(|table| !table.name.starts_with(RESERVED_PREFIX)) {
        Some(table) => Err(Error::Options(format!(
            "the database has the table {:?}, which the other nodes lack; begin with an empty \
             database",
            table.name
        ))),
        None => Ok(()),
    }
}
