//! Nodes that were away: they catch up from the log, or by a snapshot.

mod common;

use braid_cluster::ClusterOptions;
use braiddb::{Table, Transaction};
use common::{TestCluster, add};

/// Writes while node 3 is away, and lets it catch up. Returns whether the leader had purged what
/// it lacked when it came back.
async fn away(seed: u64, options: fn(ClusterOptions) -> ClusterOptions, writes: u64) -> bool {
    let mut cluster = TestCluster::start(3, seed, options).await;
    cluster.init(&[1, 2, 3]).await;
    let node = cluster.nodes[&1].clone();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    for key in 0..5 {
        add(&node, &counters, key, 1).await.unwrap();
    }
    let before = cluster.assert_equal("counters").await;
    let last = cluster.nodes[&3].status().last_log_index;
    cluster.stop(3).await;
    let large: Table<u64, [u8]> = node.open_or_create_table("large").await.unwrap();
    for key in 0..writes {
        add(&node, &counters, key % 7, 1).await.unwrap();
        let large = large.clone();
        let blob = async move |tx: &Transaction| {
            tx.delete(&large, &(key / 2)).await?;
            tx.put(&large, &key, &vec![key as u8; 40_000]).await
        };
        node.run(blob).await.unwrap();
    }
    let leader = cluster.leader().await;
    let is_purged = cluster.nodes[&leader].status().purged_index > last;
    cluster.open(3).await;
    assert_ne!(cluster.assert_equal("counters").await, before);
    let rows = cluster.assert_equal("large").await;
    assert_eq!(rows.len() as u64, writes - writes / 2);
    // Certification continues on all nodes alike.
    let node = cluster.nodes[&3].clone();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    for key in 0..20 {
        add(&node, &counters, key, 1).await.unwrap();
    }
    cluster.assert_equal("counters").await;
    cluster.assert_equal("raft.window").await;
    cluster.assert_equal("raft.catalog").await;
    is_purged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_catches_up_from_the_log() {
    assert!(!away(1, |options| options, 20).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_catches_up_by_a_snapshot() {
    assert!(away(2, |options| options.kept_entries(10), 60).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_copies_the_contents() {
    let mut cluster = TestCluster::start(1, 3, |options| options.kept_entries(10)).await;
    cluster.init(&[1]).await;
    let node = cluster.nodes[&1].clone();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    for key in 0..60 {
        add(&node, &counters, key, key).await.unwrap();
    }
    cluster.add_directory(2).await;
    node.add_node(2, common::address(2)).await.unwrap();
    assert_eq!(cluster.assert_equal("counters").await.len(), 60);
    assert!(node.status().purged_index > 0);
}
