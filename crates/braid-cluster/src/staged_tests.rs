//! The state machine with staged tables, without a network.

use std::collections::{BTreeMap, BTreeSet};

use braiddb::{Table, TableOptions, Transaction};
use openraft::storage::RaftStateMachine;
use openraft::{BasicNode, CommittedLeaderId, EntryPayload, LogId};

use crate::command::{
    Action, CatalogChange, ClusterTable, Decision, StagedRows, Submission, SubmissionId,
};
use crate::machine_tests::{Node, change, raise_to_2, submission};
use crate::raft::Entry;
use crate::storage::staged_name;

const ID: SubmissionId = SubmissionId { node: 1, run: 1, number: 100 };

fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

/// Lets these nodes be the members.
async fn members(node: &mut Node, index: u64, members: &[u64]) {
    let nodes: BTreeMap<u64, BasicNode> =
        members.iter().map(|&node| (node, BasicNode::new("x"))).collect();
    let voters: BTreeSet<u64> = members.iter().copied().collect();
    let payload = EntryPayload::Membership(openraft::Membership::new(vec![voters], nodes));
    node.machine.apply([Entry { log_id: log_id(index), payload }]).await.unwrap();
}

fn stage(id: SubmissionId, base: u64) -> Action {
    let (key_type, value_type) = ("u64".to_owned(), "u64".to_owned());
    let table = ClusterTable::new("a", key_type, value_type, TableOptions::default());
    change(base, CatalogChange::Stage { id, table })
}

/// Returns the part of the load that gives the key 1 a value.
async fn part(node: &Node, number: u64, value: u64) -> Submission {
    let db = &node.replica.storage.db;
    let table: Table<u64, u64> = db.open_table(&staged_name(ID)).await.unwrap();
    let put = async move |tx: &Transaction| tx.put(&table, &1, &value).await;
    let writes = db.execute(put).await.unwrap().writes.as_bytes().to_vec().into();
    submission(number + 10, Action::Load(StagedRows { table: ID, number, writes }))
}

/// A node sends a submission again after a lost answer, so the log may contain it twice, and later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_load_are_added_once_and_in_order() {
    let mut node = Node::new().await;
    members(&mut node, 1, &[1, 2]).await;
    node.apply(2, &[raise_to_2(Some(log_id(1))), submission(1, stage(ID, 1))]).await;
    let parts = [part(&node, 0, 7).await, part(&node, 1, 8).await, part(&node, 2, 9).await];
    let [first, second, third] = parts;
    let told = node.apply(3, &[first.clone(), third.clone()]).await;
    assert_eq!(told, [Decision::Committed, Decision::Conflict]);
    let told = node.apply(4, &[second, first.clone()]).await;
    assert_eq!(told, [Decision::Committed, Decision::Committed]);
    assert_eq!(node.rows(&staged_name(ID)).await[0].1, 8_u64.to_le_bytes());
    // The log has no other transactions of the table.
    assert_eq!(node.rows("raft.window").await.len(), 1);
    let publish = submission(3, change(4, CatalogChange::Publish(ID)));
    // The entry's transaction is lost, and the change outside of that is not.
    let mut node = node.restart().await;
    node.replica.storage.db.rename_table(&staged_name(ID), "a").await.unwrap();
    let mut node = {
        assert_eq!(node.apply(5, std::slice::from_ref(&publish)).await, [Decision::Committed]);
        node.restart().await
    };
    assert_eq!(node.apply(6, &[publish]).await, [Decision::Conflict]);
    let late = node.apply(7, &[first, third]).await;
    assert!(matches!(late[..], [Decision::Refused(_), Decision::Refused(_)]), "{late:?}");
    // A second submission of the creation conflicts with the publication.
    assert_eq!(node.apply(8, &[submission(4, stage(ID, 1))]).await, [Decision::Conflict]);
    assert!(node.rows("raft.staged").await.is_empty());
    assert_eq!(node.rows("a").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_tables_of_removed_nodes_are_discarded() {
    let mut node = Node::new().await;
    members(&mut node, 1, &[1, 2]).await;
    let other = SubmissionId { node: 2, ..ID };
    let both =
        [raise_to_2(Some(log_id(1))), submission(1, stage(ID, 1)), submission(2, stage(other, 1))];
    // The second one conflicts with the first.
    assert_eq!(node.apply(2, &both).await[2], Decision::Conflict);
    node.apply(3, &[submission(3, stage(other, 2))]).await;
    assert_eq!(node.rows("raft.staged").await.len(), 2);
    members(&mut node, 4, &[1]).await;
    assert_eq!(node.rows("raft.staged").await.len(), 1);
    assert_eq!(node.rows("raft.catalog").await.len(), 1);
    // The entry was under way when its node was removed.
    let late = node.apply(5, &[submission(4, stage(other, 4))]).await;
    assert!(matches!(late[..], [Decision::Refused(_)]), "{late:?}");
}
