//! Nodes of two versions of the program in one cluster, and their upgrade one by one.

mod common;

use braid_cluster::{Cluster, ClusterOptions, Error};
use braiddb::{Database, IndexOptions, Options, Table};
use common::{TestCluster, add, address};

/// The number of a node that runs the older program.
const OLD: u64 = 3;

fn with_old(options: ClusterOptions) -> ClusterOptions {
    if options.node == OLD { options.newest_version(1) } else { options }
}

#[track_caller]
fn assert_version<T: std::fmt::Debug>(result: Result<T, Error>, names: &str) {
    match result {
        Err(error @ Error::Version(_)) => assert!(error.to_string().contains(names), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_versions_work_together_until_all_are_upgraded() {
    let mut cluster = TestCluster::start(3, 40, with_old).await;
    cluster.init(&[1, 2, 3]).await;
    for (id, node) in &cluster.nodes {
        let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        assert_eq!(add(node, &table, 1, 1).await.unwrap(), *id);
    }
    // From every node, whichever leads.
    for node in cluster.nodes.values() {
        assert_version(node.drop_table("counters").await, "node 3");
        assert_version(node.rename_table("counters", "others").await, "node 3");
        let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        let by_value = |value, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
        let index = node.index(&table, "by_value", IndexOptions::default(), by_value).await;
        assert_version(index, "node 3");
        assert_version(node.stage_table::<u64, u64>("staged").await, "node 3");
        assert_eq!(node.status().version, 1);
    }
    while cluster.leader().await != OLD {
        // It fails if another election was faster.
        _ = cluster.nodes[&1].transfer_leadership(OLD).await;
    }
    for node in cluster.nodes.values() {
        assert_version(node.drop_table("counters").await, "node 3");
        let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        add(node, &table, 1, 1).await.unwrap();
    }
    // A node that is away cannot be asked.
    cluster.stop(OLD).await;
    cluster.leader().await;
    assert_version(cluster.nodes[&1].drop_table("counters").await, "node 3");
    cluster.options = |options| options;
    cluster.open(OLD).await;
    assert_eq!(cluster.assert_equal("counters").await.len(), 1);
    cluster.nodes[&OLD].rename_table("counters", "others").await.unwrap();
    assert_eq!(cluster.assert_equal("others").await.len(), 1);
    for id in [1, 2, OLD] {
        assert_eq!(cluster.nodes[&id].status().version, 2);
    }
    // The older program can no longer run, on this node or on a new one.
    cluster.stop(OLD).await;
    let options = || Options::default().workers(1).socket(false);
    let db = Database::open(cluster.directory(OLD), options()).unwrap();
    let transport = cluster.network.transport(address(OLD));
    let old = Cluster::start(db.clone(), with_old(ClusterOptions::new("test", OLD)), transport);
    assert_version(old.await.map(drop), "newer program");
    db.close().unwrap();
    drop(db);
    cluster.open(OLD).await;
    assert_eq!(cluster.assert_equal("others").await.len(), 1);
    let db = Database::in_memory(options()).unwrap();
    let old = ClusterOptions::new("test", 4).newest_version(1);
    let old = Cluster::start(db, old, cluster.network.transport(address(4))).await.unwrap();
    assert_version(cluster.nodes[&1].add_node(4, address(4)).await, "node 4");
    assert_eq!(old.status().applied_index, 0);
    assert!(cluster.nodes[&1].status().learners.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_contains_the_version() {
    let mut cluster = TestCluster::start(1, 41, |options| options.kept_entries(10)).await;
    cluster.init(&[1]).await;
    let node = cluster.nodes[&1].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    node.rename_table("counters", "others").await.unwrap();
    for key in 0..40 {
        add(&node, &table, key, 1).await.unwrap();
    }
    cluster.add_directory(2).await;
    node.add_node(2, address(2)).await.unwrap();
    assert_eq!(cluster.assert_equal("others").await.len(), 40);
    assert_eq!(cluster.nodes[&2].status().version, 2);
    cluster.stop(2).await;
    cluster.open(2).await;
    assert_eq!(cluster.nodes[&2].status().version, 2);
}
