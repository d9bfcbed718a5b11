//! Export of [`Status`] to the facade crate `metrics`, as the engine exports its statistics.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::cluster::Cluster;
use crate::counters::AppliedCounts;
use crate::status::{Role, Status};

impl Cluster {
    /// Records the figures of [`Cluster::status`] with the recorder of the crate `metrics`. Call it
    /// when metrics are collected, like [`Database::record_metrics`](braiddb::Database), which
    /// records those of the node's database.
    ///
    /// Names of counters end in `_total`. Every figure has the labels `cluster` and `node`.
    ///
    /// Requires the feature `metrics`.
    pub fn record_metrics(&self) {
        let options = &self.inner.options;
        let labels = vec![
            Label::new("cluster", options.cluster.clone()),
            Label::new("node", options.node.to_string()),
        ];
        Recorder { labels }.status(&self.status());
    }
}

/// Records the figures of one node.
struct Recorder {
    labels: Vec<Label>,
}

impl Recorder {
    /// Every figure is named here and below, so a new figure without a metric does not compile.
    fn status(&self, status: &Status) {
        let Status {
            node: _,
            role,
            leader,
            cluster_id: _,
            version,
            term,
            last_log_index,
            purged_index,
            committed_index,
            applied_index,
            voters,
            learners,
            replicated: _,
            counts,
            failure,
        } = status;
        let flag = |is_set: bool| u64::from(is_set) as f64;
        let help = "1 if the node leads.";
        self.measure("braid_cluster_is_leader", help, &[], flag(*role == Role::Leader));
        let help = "1 if the node knows a leader.";
        self.measure("braid_cluster_has_leader", help, &[], flag(leader.is_some()));
        let help = "1 if the node has stopped because of a failure.";
        self.measure("braid_cluster_has_failed", help, &[], flag(failure.is_some()));
        self.measure("braid_cluster_term", "Raft's term.", &[], *term as f64);
        let help = "Version of the protocol that the cluster uses.";
        self.measure("braid_cluster_version", help, &[], f64::from(*version));
        let help = "Positions in the log, in entries.";
        for (position, index) in [
            ("last", last_log_index),
            ("committed", committed_index),
            ("applied", applied_index),
            ("purged", purged_index),
        ] {
            let labels = [("position", position)];
            self.measure("braid_cluster_log_index", help, &labels, *index as f64);
        }
        let help = "Members of the cluster, by kind.";
        for (kind, members) in [("voter", voters), ("learner", learners)] {
            self.measure("braid_cluster_members", help, &[("kind", kind)], members.len() as f64);
        }
        let help = "Entries that a member lacks; not a number on nodes that do not lead.";
        for member in voters.keys().chain(learners.keys()) {
            let lag = status.lag(*member).map_or(f64::NAN, |entries| entries as f64);
            let member = member.to_string();
            self.measure("braid_cluster_lag_entries", help, &[("member", &member)], lag);
        }
        self.counts(*counts);
    }

    fn counts(&self, counts: AppliedCounts) {
        let AppliedCounts {
            entries,
            committed,
            conflicts,
            refused,
            snapshots_sent,
            snapshots_installed,
        } = counts;
        let help = "Entries with transactions applied.";
        self.count("braid_cluster_entries_total", help, &[], entries);
        let help = "Attempts of transactions of all nodes, by decision. Divided by the entries, \
                    this is the size of batches.";
        for (decision, value) in
            [("committed", committed), ("conflict", conflicts), ("refused", refused)]
        {
            let labels = [("decision", decision)];
            self.count("braid_cluster_decisions_total", help, &labels, value);
        }
        let help = "Snapshots sent to other nodes, and installed.";
        for (direction, value) in [("sent", snapshots_sent), ("installed", snapshots_installed)] {
            let labels = [("direction", direction)];
            self.count("braid_cluster_snapshots_total", help, &labels, value);
        }
    }

    fn labels(&self, more: &[(&'static str, &str)]) -> Vec<Label> {
        let more = more.iter().map(|(name, value)| Label::new(*name, (*value).to_owned()));
        self.labels.iter().cloned().chain(more).collect()
    }

    fn count(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: u64,
    ) {
        describe_counter!(name, Unit::Count, help);
        counter!(name, self.labels(labels)).absolute(value);
    }

    fn measure(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        describe_gauge!(name, Unit::Count, help);
        gauge!(name, self.labels(labels)).set(value);
    }
}
