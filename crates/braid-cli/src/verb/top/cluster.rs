//! The line about a node of a cluster.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

/// The part of a node's status that the screen shows.
#[derive(Deserialize)]
struct Status {
    node: u64,
    role: String,
    term: u64,
    leader: Option<u64>,
    last_log_index: u64,
    committed_index: u64,
    applied_index: u64,
    /// Entries that each member has, on the leader.
    #[serde(default)]
    replicated: BTreeMap<u64, u64>,
    failure: Option<String>,
}

/// Describes a node; `None` if the status is of another version.
pub fn line(status: &Value) -> Option<String> {
    let status = Status::deserialize(status).ok()?;
    let Status { node, role, term, committed_index, applied_index, .. } = &status;
    if let Some(failure) = &status.failure {
        return Some(format!("node {node} has stopped: {failure}"));
    }
    let leader = status.leader.map_or("none".to_owned(), |leader| leader.to_string());
    let lag = committed_index.saturating_sub(*applied_index);
    let mut line = format!(
        "node {node} {role}  leader {leader}  term {term}  committed {committed_index}  applied \
         {applied_index}  lag {lag}"
    );
    for (member, has) in status.replicated.iter().filter(|(member, _)| *member != node) {
        // Writing to text cannot fail.
        _ = write!(line, "  lag of {member}: {}", status.last_log_index.saturating_sub(*has));
    }
    Some(line)
}
