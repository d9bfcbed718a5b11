//! Running nodes, with looks inside: leaders that lose their role, versions that are raised and nodes
//! that are added by several leaders, and entries that no leader appends.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use braiddb::Table;
use bytes::Bytes;
use openraft::BasicNode;

use crate::command::{Action, ExecutedTransaction, Submission};
use crate::error::Error;
use crate::memory::MemoryNetwork;
use crate::message::{Refusal, Request};
use crate::node_tests::{LIMIT, Node, assert_waits, cluster, put, start, until};
use crate::options::ClusterOptions;
use crate::status::Role;
use crate::storage::encode;

fn leads(node: &Node) -> bool {
    node.status().role == Role::Leader
}

/// openraft answers no write whose entry the node did not apply and no other leader replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_received_a_snapshot_in_between_writes_again() {
    let network = MemoryNetwork::default();
    let (mut nodes, mut members) = (Vec::new(), BTreeMap::new());
    for number in 1..=3 {
        let options = ClusterOptions::new("test", number).heartbeat(Duration::from_millis(60));
        nodes.push(start(&network, options.kept_entries(5)).await.unwrap());
        members.insert(number, number.to_string());
    }
    nodes[0].init(members).await.unwrap();
    let table: Table<u64, u64> = nodes[0].open_or_create_table("a").await.unwrap();
    until(|| leads(&nodes[0])).await;
    put(&nodes[0], &table, 1).await.unwrap();
    network.cut(&["1"], &["2", "3"]);
    // The limit of entries that may be under way.
    for value in 2..4 {
        let impatient = nodes[0].with_timeout(Duration::from_millis(200));
        let unknown = put(&impatient, &table, value).await;
        assert!(matches!(unknown, Err(Error::CommitUnknown { .. })), "{unknown:?}");
    }
    let last = nodes[0].status().last_log_index;
    until(|| nodes[1..].iter().any(leads)).await;
    let there: Table<u64, u64> = nodes[1].open_or_create_table("a").await.unwrap();
    for value in 0..40 {
        put(&nodes[1], &there, value).await.unwrap();
    }
    until(|| nodes[1..].iter().any(|node| leads(node) && node.status().purged_index > last)).await;
    network.heal();
    until(|| nodes[0].status().counts.snapshots_installed > 0).await;
    while !leads(&nodes[0]) {
        // It fails if another election was faster.
        _ = nodes[1].transfer_leadership(1).await;
    }
    let written = put(&nodes[0].with_timeout(Duration::from_secs(10)), &table, 5).await;
    assert!(written.is_ok(), "{written:?}");
}

/// The new member was added by another leader, which knew only the version in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_not_raised_for_a_member_that_was_not_asked() {
    let network = MemoryNetwork::default();
    let nodes = cluster(&network, 1, Duration::from_millis(100)).await;
    let old = ClusterOptions::new("test", 2).newest_version(1);
    let old = start(&network, old).await.unwrap();
    let (node, leader) = (&nodes[0], &nodes[0].inner.leader);
    let _: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let paused = leader.service.intake.pause().await;
    let mut raising = pin!(leader.raise_version(node.new_id(), 2, LIMIT));
    // All members have been asked, and the entry waits.
    assert_waits(raising.as_mut(), node.database()).await;
    leader.raft.add_learner(2, BasicNode::new("2"), false).await.unwrap();
    drop(paused);
    let refused = raising.await;
    let names = |reason: &String| reason.contains("node 2");
    assert!(matches!(&refused, Err(Refusal::Version(reason)) if names(reason)), "{refused:?}");
    assert_eq!(node.status().version, 1);
    until(|| old.status().applied_index == node.status().applied_index).await;
    assert_eq!(old.status().failure, None);
}

/// The leader asked the node before another one raised the version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_added_after_a_version_that_it_does_not_understand() {
    let network = MemoryNetwork::default();
    let nodes = cluster(&network, 1, Duration::from_millis(100)).await;
    let old = start(&network, ClusterOptions::new("test", 2).newest_version(1)).await.unwrap();
    let (node, leader) = (&nodes[0], &nodes[0].inner.leader);
    let understood = leader.check_new_node(2, "2").await.unwrap();
    let _: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    node.drop_table("a").await.unwrap();
    let added = leader.service.add_learner(2, "2".to_owned(), understood, LIMIT).await;
    let added = added.map_err(|refusal| matches!(refusal, Refusal::Version(_)));
    assert_eq!(added, Err(true));
    assert!(node.status().learners.is_empty());
    assert_eq!(old.status().applied_index, 0);
}

/// It would stop all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_appends_nothing_that_it_cannot_decode() {
    let nodes = cluster(&MemoryNetwork::default(), 1, Duration::from_millis(100)).await;
    let (node, service) = (&nodes[0], &nodes[0].inner.leader.service);
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let last = node.status().last_log_index;
    let damaged = Bytes::from_static(b"K");
    let action = Action::Transaction(ExecutedTransaction {
        base: last,
        reads: damaged.clone(),
        writes: damaged,
    });
    let submission = encode(&Submission { id: node.new_id(), action });
    for undecodable in [Bytes::from_static(&[0xff; 20]), submission.into()] {
        let refused = service.execute(Request::Submit(vec![undecodable])).await;
        assert!(matches!(refused, Err(Refusal::Stranger(_))), "{refused:?}");
    }
    assert_eq!(node.status().last_log_index, last);
    put(node, &table, 1).await.unwrap();
}
