//! Transactions, reads, restarts and members, without faults of the network.

mod common;

use braid_cluster::{Consistency, Error};
use braiddb::{Table, Transaction};
use common::{TestCluster, add};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_writes_and_reads() {
    let cluster = TestCluster::three(1).await;
    let mut tables = Vec::new();
    for node in cluster.nodes.values() {
        let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        tables.push((node.clone(), table));
    }
    for round in 0..10 {
        for (at, (node, table)) in (0..).zip(&tables) {
            assert_eq!(add(node, table, 7, 1).await.unwrap(), round * 3 + at + 1);
        }
    }
    for (node, table) in tables {
        let read = node.read(Consistency::Linearizable, async move |tx: &Transaction| {
            tx.get(&table, &7).await
        });
        assert_eq!(read.await.unwrap(), Some(30));
    }
    cluster.assert_equal("counters").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_restart_from_disk() {
    let mut cluster = TestCluster::three(2).await;
    let node = cluster.nodes[&1].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    for key in 0..50 {
        add(&node, &table, key, key).await.unwrap();
    }
    drop((node, table));
    for id in [1, 2, 3] {
        cluster.stop(id).await;
    }
    for id in [1, 2, 3] {
        cluster.open(id).await;
    }
    cluster.leader().await;
    assert_eq!(cluster.assert_equal("counters").await.len(), 50);
    let node = cluster.nodes[&2].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    assert_eq!(add(&node, &table, 3, 1).await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_read_their_writes_on_other_nodes() {
    let cluster = TestCluster::three(3).await;
    let mut tables: Vec<Table<u64, u64>> = Vec::new();
    for node in cluster.nodes.values() {
        tables.push(node.open_or_create_table("counters").await.unwrap());
    }
    for value in 1..20 {
        let table = tables[0].clone();
        let write = async move |tx: &Transaction| tx.put(&table, &1, &value).await;
        let token = cluster.nodes[&1].run(write).await.unwrap().token;
        for (node, table) in cluster.nodes.values().zip(&tables) {
            let table = table.clone();
            let read = async move |tx: &Transaction| tx.get(&table, &1).await;
            let read = node.read(Consistency::Session(token), read).await.unwrap();
            assert_eq!(read, Some(value));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_neither_writes_nor_reads() {
    let mut cluster = TestCluster::three(4).await;
    let table: Table<u64, u64> = cluster.nodes[&1].open_or_create_table("counters").await.unwrap();
    add(&cluster.nodes[&1], &table, 1, 1).await.unwrap();
    let of = table.clone();
    let read = async move |tx: &Transaction| tx.get(&of, &1).await;
    let node = &cluster.nodes[&1];
    assert_eq!(node.read(Consistency::Linearizable, read.clone()).await.unwrap(), Some(1));
    cluster.stop(2).await;
    cluster.stop(3).await;
    // It has asked the leader less than an hour ago, and more than no time ago.
    let node = cluster.nodes[&1].with_timeout(std::time::Duration::from_millis(800));
    let stale = |max| Consistency::Stale { max };
    let hour = stale(std::time::Duration::from_hours(1));
    assert_eq!(node.read(hour, read.clone()).await.unwrap(), Some(1));
    let now = node.read(stale(std::time::Duration::ZERO), read).await;
    assert!(matches!(now, Err(Error::NoQuorum(_))), "{now:?}");
    let node = cluster.nodes[&1].with_timeout(std::time::Duration::from_millis(800));
    let written = add(&node, &table, 1, 1).await;
    assert!(
        matches!(written, Err(Error::NoQuorum(_) | Error::CommitUnknown { .. })),
        "{written:?}"
    );
    let (reading, of) = (node.clone(), table.clone());
    let read = async move |tx: &Transaction| tx.get(&of, &1).await;
    let read = reading.read(Consistency::Linearizable, read).await;
    assert!(matches!(read, Err(Error::NoQuorum(_))), "{read:?}");
    let (reading, of) = (node.clone(), table.clone());
    let read = async move |tx: &Transaction| tx.get(&of, &1).await;
    let token = braid_cluster::Token::default();
    assert_eq!(reading.read(Consistency::Session(token), read).await.unwrap(), Some(1));
    cluster.open(2).await;
    let value = add(&cluster.nodes[&1], &table, 1, 1).await.unwrap();
    // The transaction whose result was unknown may have committed.
    assert!([2, 3].contains(&value), "{value}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_added_and_removed() {
    let mut cluster = TestCluster::start(1, 5, |options| options).await;
    cluster.init(&[1]).await;
    let node = cluster.nodes[&1].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    add(&node, &table, 1, 1).await.unwrap();
    cluster.add_directory(2).await;
    let outside = cluster.nodes[&2].with_timeout(std::time::Duration::from_millis(300));
    let failed = outside.open_or_create_table::<u64, u64>("counters").await;
    assert!(matches!(failed, Err(Error::NotMember(2))), "{failed:?}");
    cluster.add_directory(3).await;
    node.add_node(2, common::address(2)).await.unwrap();
    node.add_node(3, common::address(3)).await.unwrap();
    assert_eq!(node.status().voters.len(), 3);
    let other = cluster.nodes[&3].clone();
    let there: Table<u64, u64> = other.open_or_create_table("counters").await.unwrap();
    assert_eq!(add(&other, &there, 1, 1).await.unwrap(), 2);
    cluster.assert_equal("counters").await;
    node.remove_node(2).await.unwrap();
    cluster.stop(2).await;
    assert_eq!(add(&node, &table, 1, 1).await.unwrap(), 3);
    assert_eq!(node.status().voters.len(), 2);
}
