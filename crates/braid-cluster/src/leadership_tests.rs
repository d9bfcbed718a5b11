//! Running nodes, with looks inside: leaders that lose their role, and entries that no leader appends.

use std::collections::BTreeMap;
use std::time::Duration;

use braiddb::Table;
use bytes::Bytes;

use crate::command::{Action, ExecutedTransaction, Submission};
use crate::error::Error;
use crate::memory::MemoryNetwork;
use crate::message::{Refusal, Request};
use crate::node_tests::{Node, cluster, put, start, until};
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
    // As many entries as may be under way.
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
