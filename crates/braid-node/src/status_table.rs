//! Text of `braid cluster status`.

use std::fmt::Write;

use braid_cluster::{NodeId, Status};

/// Describes the called node, and all members as the leader knows them.
pub fn text(status: &Status, leader: Option<&Status>) -> String {
    let mut text = format!(
        "node {}, {}, term {}, leader {}\n\
         cluster {}, version {}\n\
         log up to {}, committed {}, applied {}, purged {}\n",
        status.node,
        status.role,
        status.term,
        status.leader.map_or("unknown".to_owned(), |leader| leader.to_string()),
        status.cluster_id.as_deref().unwrap_or("none"),
        status.version,
        status.last_log_index,
        status.committed_index,
        status.applied_index,
        status.purged_index,
    );
    let counts = status.counts;
    let transactions = counts.committed + counts.conflicts + counts.refused;
    let batch = transactions as f64 / counts.entries.max(1) as f64;
    text += &format!(
        "since its start: {} entries of {batch:.1} transactions, {} committed, {} conflicts, {} \
         refused; snapshots: {} sent, {} installed\n",
        counts.entries,
        counts.committed,
        counts.conflicts,
        counts.refused,
        counts.snapshots_sent,
        counts.snapshots_installed,
    );
    if let Some(failure) = &status.failure {
        text += &format!("stopped: {failure}\n");
    }
    text += &format!("\n{:>6}  {:<8}  {:>8}  address", "node", "role", "lag");
    let source = leader.unwrap_or(status);
    let lag = |node: NodeId| {
        let entries = source.lag(node);
        entries.map_or("-".to_owned(), |entries| entries.to_string())
    };
    let members = source.voters.iter().map(|member| (member, "voter"));
    let learners = source.learners.iter().map(|member| (member, "learner"));
    for ((node, address), kind) in members.chain(learners) {
        let kind = if source.leader == Some(*node) { "leader" } else { kind };
        // Writing to text cannot fail.
        _ = write!(text, "\n{node:>6}  {kind:<8}  {:>8}  {address}", lag(*node));
    }
    text
}
