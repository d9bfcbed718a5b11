//! Options of a node.

use std::time::Duration;

use crate::identity::{NEWEST_VERSION, OLDEST_VERSION};
use crate::raft::NodeId;

/// Options of a node. All nodes of a cluster should use the same, except `node`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Name of the cluster. Nodes with another name are refused.
    pub cluster: String,
    /// Number of this node, unique in the cluster for ever: a node that lost its database joins
    /// with a new number.
    pub node: NodeId,
    /// Interval of the leader's heartbeats. Followers begin an election after 15 to 20 intervals
    /// without one: the lease of the leader, and then a random time. Default: 100 ms.
    pub heartbeat: Duration,
    /// Deadline of calls, which [`Cluster::with_timeout`](crate::Cluster::with_timeout) changes.
    /// Default: 5 s.
    pub timeout: Duration,
    /// Calls that may be under way at the same time on this node. It should be
    /// less than `max_open` of the database. Default: 8 192.
    pub max_requests: usize,
    /// A follower that lacks more entries than this receives a snapshot. The log keeps at least as
    /// many. At most 2<sup>40</sup>. Default: 8 192.
    pub kept_entries: u64,
    /// Newest version of the protocol that this node uses.
    pub(crate) newest_version: u32,
    /// Oldest version of the protocol that this node understands.
    pub(crate) oldest_version: u32,
}

impl ClusterOptions {
    const MAX_REQUESTS: usize = 1 << 20;
    const MAX_KEPT_ENTRIES: u64 = 1 << 40;

    /// Returns the default options of a node.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let options = braid_cluster::ClusterOptions::new("shop", 1).heartbeat(Duration::from_millis(50));
    /// assert_eq!(options.node, 1);
    /// ```
    pub fn new(cluster: impl Into<String>, node: NodeId) -> Self {
        Self {
            cluster: cluster.into(),
            node,
            heartbeat: Duration::from_millis(100),
            timeout: Duration::from_secs(5),
            max_requests: 8_192,
            kept_entries: 8_192,
            newest_version: NEWEST_VERSION,
            oldest_version: OLDEST_VERSION,
        }
    }

    /// Lets the node understand only versions of the protocol up to this one, as an older program
    /// does. For tests of upgrades.
    #[doc(hidden)]
    #[must_use]
    pub fn newest_version(mut self, version: u32) -> Self {
        self.newest_version = version.clamp(OLDEST_VERSION, NEWEST_VERSION);
        self
    }

    /// Lets the node understand only versions of the protocol from this one on, as a newer program
    /// does. For tests of upgrades.
    #[doc(hidden)]
    #[must_use]
    pub fn oldest_version(mut self, version: u32) -> Self {
        self.oldest_version = version.clamp(OLDEST_VERSION, NEWEST_VERSION);
        self
    }

    /// Sets [`heartbeat`](Self::heartbeat).
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`max_requests`](Self::max_requests).
    #[must_use]
    pub fn max_requests(mut self, max_requests: usize) -> Self {
        self.max_requests = max_requests;
        self
    }

    /// Sets [`kept_entries`](Self::kept_entries).
    #[must_use]
    pub fn kept_entries(mut self, kept_entries: u64) -> Self {
        self.kept_entries = kept_entries;
        self
    }

    /// Returns the configuration of openraft.
    pub(crate) fn raft_config(&self) -> Result<openraft::Config, String> {
        if !(1..=Self::MAX_REQUESTS).contains(&self.max_requests) {
            return Err(format!(
                "max_requests is {}; choose a number from 1 to {}",
                self.max_requests,
                Self::MAX_REQUESTS
            ));
        }
        if self.kept_entries > Self::MAX_KEPT_ENTRIES {
            return Err(format!(
                "kept_entries is {}; choose a number up to {}",
                self.kept_entries,
                Self::MAX_KEPT_ENTRIES
            ));
        }
        let heartbeat = u64::try_from(self.heartbeat.as_millis()).unwrap_or(u64::MAX).max(1);
        let config = openraft::Config {
            cluster_name: self.cluster.clone(),
            heartbeat_interval: heartbeat,
            election_timeout_min: heartbeat.saturating_mul(5),
            election_timeout_max: heartbeat.saturating_mul(10),
            // The last message of a transfer waits for the installation.
            install_snapshot_timeout: 600_000,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(self.kept_entries.max(1)),
            max_in_snapshot_log_to_keep: self.kept_entries,
            replication_lag_threshold: self.kept_entries.max(1),
            purge_batch_size: self.kept_entries.clamp(1, 64),
            ..openraft::Config::default()
        };
        config.validate().map_err(|error| error.to_string())
    }
}
