//! Calls that are dropped after any number of polls, closures that panic, and backups and evictions
//! during writes.

mod common;
#[path = "../../braiddb/tests/common/polls.rs"]
mod polls;

use std::collections::BTreeMap;
use std::time::Duration;

use braid_cluster::{Cluster, ClusterOptions, Consistency, Error};
use braiddb::{BusyWith, Database, Options, Table, Transaction};
use common::{LIMIT, TestCluster, add, address};
use polls::poll_at_most;

/// Calls that are dropped are polled at most this many times; all end with fewer.
const MAX_POLLS: usize = 60;

/// Few, so that a dropped call that kept its place would be noticed.
fn few_requests(options: ClusterOptions) -> ClusterOptions {
    options.max_requests(8)
}

async fn cluster(seed: u64) -> TestCluster {
    let cluster = TestCluster::start(3, seed, few_requests).await;
    cluster.init(&[1, 2, 3]).await;
    cluster
}

/// Inserts a key and counts it, so that a transaction that took effect twice or half would show.
async fn insert(
    node: &Cluster,
    rows: &Table<u64, u64>,
    counter: &Table<u64, u64>,
    key: u64,
) -> braid_cluster::Result<()> {
    let (rows, counter) = (rows.clone(), counter.clone());
    let body = async move |tx: &Transaction| {
        let count = tx.get(&counter, &0).await?.unwrap_or(0);
        tx.insert(&rows, &key, &count).await?;
        tx.put(&counter, &0, &(count + 1)).await
    };
    node.run(body).await.map(drop)
}

/// Returns the keys in the final contents, after checking that each took effect once.
async fn inserted(cluster: &TestCluster) -> Vec<u64> {
    let rows = cluster.assert_equal("rows").await;
    let counter = cluster.assert_equal("counter").await;
    let count = <u64 as braiddb::Value>::decode(&counter[0].1).unwrap();
    assert_eq!(count, rows.len() as u64, "a transaction took effect twice or half");
    rows.iter().map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_transactions_take_effect_once_or_never() {
    let cluster = cluster(1).await;
    let (mut acknowledged, mut dropped) = (Vec::new(), 0);
    for (id, node) in &cluster.nodes {
        let rows: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        let counter: Table<u64, u64> = node.open_or_create_table("counter").await.unwrap();
        for polls in 1..=MAX_POLLS as u64 {
            let key = id << 32 | polls;
            match poll_at_most(insert(node, &rows, &counter, key), polls as usize).await {
                Some(result) => {
                    result.unwrap();
                    acknowledged.push(key);
                }
                None => dropped += 1,
            }
            // The node serves others at once.
            insert(node, &rows, &counter, key | 1 << 16).await.unwrap();
            acknowledged.push(key | 1 << 16);
        }
    }
    let keys = inserted(&cluster).await;
    assert!(acknowledged.iter().all(|key| keys.contains(key)), "an acknowledged write is lost");
    assert!(dropped >= 3 && keys.len() <= acknowledged.len() + dropped, "{dropped} dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_reads_and_creations_leave_nothing_behind() {
    let cluster = cluster(2).await;
    let table: Table<u64, u64> = cluster.nodes[&1].open_or_create_table("rows").await.unwrap();
    add(&cluster.nodes[&1], &table, 1, 7).await.unwrap();
    let mut dropped = 0;
    for node in cluster.nodes.values() {
        let rows: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        let stale = Consistency::Stale { max: Duration::ZERO };
        for polls in 1..=MAX_POLLS {
            for consistency in [Consistency::Linearizable, stale] {
                let table = rows.clone();
                let read = async move |tx: &Transaction| tx.get(&table, &1).await;
                match poll_at_most(node.read(consistency, read), polls).await {
                    Some(value) => assert_eq!(value.unwrap(), Some(7)),
                    None => dropped += 1,
                }
            }
            let name = format!("created.{polls}");
            let created = poll_at_most(node.open_or_create_table::<u64, u64>(&name), polls).await;
            dropped += usize::from(created.is_none());
            let created: Table<u64, u64> = node.open_or_create_table(&name).await.unwrap();
            add(node, &created, 1, 1).await.unwrap();
        }
    }
    assert!(dropped >= 6, "{dropped}");
    for polls in 1..=MAX_POLLS {
        assert_eq!(cluster.assert_equal(&format!("created.{polls}")).await.len(), 1);
    }
    cluster.assert_equal("raft.catalog").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_initialized_again_after_a_dropped_call() {
    for polls in 1.. {
        let cluster = TestCluster::start(1, polls, few_requests).await;
        let members = BTreeMap::from([(1, address(1))]);
        let node = &cluster.nodes[&1];
        let ended = poll_at_most(node.init(members.clone()), polls as usize).await;
        node.init(members).await.unwrap();
        let table: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        assert_eq!(add(node, &table, 1, 1).await.unwrap(), 1);
        assert_eq!(node.status().voters.len(), 1);
        if ended.is_some() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_added_and_removed_again_after_dropped_calls() {
    for polls in 1.. {
        let mut cluster = TestCluster::start(1, polls, few_requests).await;
        cluster.init(&[1]).await;
        let table: Table<u64, u64> = cluster.nodes[&1].open_or_create_table("rows").await.unwrap();
        add(&cluster.nodes[&1], &table, 1, 1).await.unwrap();
        cluster.add_directory(2).await;
        let node = &cluster.nodes[&1];
        let added = poll_at_most(node.add_node(2, address(2)), polls as usize).await;
        // The leader may still execute the dropped call, and refuses a second change during it.
        until_accepted(|| node.add_node(2, address(2))).await;
        assert_eq!(node.status().voters.len(), 2);
        assert_eq!(add(node, &table, 1, 1).await.unwrap(), 2);
        cluster.assert_equal("rows").await;
        let removed = poll_at_most(node.remove_node(2), polls as usize).await;
        until_accepted(|| node.remove_node(2)).await;
        assert_eq!(add(node, &table, 1, 1).await.unwrap(), 3);
        if added.is_some() && removed.is_some() {
            return;
        }
    }
}

async fn until_accepted<F: Future<Output = braid_cluster::Result<()>>>(call: impl Fn() -> F) {
    let accept = async {
        loop {
            match call().await {
                Ok(()) => return,
                Err(Error::Refused(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(LIMIT, accept).await.expect("the change is never accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closures_that_panic_end_their_call_alone() {
    let cluster = cluster(3).await;
    for node in cluster.nodes.values() {
        let table: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        for round in 0..20 {
            let written = table.clone();
            let panics = async move |tx: &Transaction| {
                tx.put(&written, &1, &round).await?;
                if round < 100 {
                    panic!("the closure panics");
                }
                Ok(())
            };
            let ran = node.run(panics.clone()).await;
            assert!(matches!(ran, Err(Error::Database(braiddb::Error::Panicked(_)))), "{ran:?}");
            let read =
                async |_: &Transaction| -> braiddb::Result<()> { panic!("the closure panics") };
            let read = node.read(Consistency::Linearizable, read).await;
            assert!(matches!(read, Err(Error::Database(braiddb::Error::Panicked(_)))), "{read:?}");
        }
        add(node, &table, 2, 1).await.unwrap();
    }
    let rows = cluster.assert_equal("rows").await;
    assert_eq!(rows.len(), 1, "a closure that panicked wrote");
    assert_eq!(<u64 as braiddb::Value>::decode(&rows[0].1).unwrap(), 3);
}

/// Backups of a node are complete states of the cluster, and larger contents than the memory of a
/// node change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_and_evictions_beside_writes() {
    let mut cluster = TestCluster::start(0, 4, |options| options).await;
    for node in 1..=3 {
        // The first node evicts; the others have all records in memory.
        cluster.database = match node {
            1 => |options| options.memory_budget(48 << 20),
            _ => |options| options,
        };
        cluster.add_directory(node).await;
    }
    cluster.init(&[1, 2, 3]).await;
    let node = &cluster.nodes[&1];
    let large: Table<u64, [u8]> = node.open_or_create_table("large").await.unwrap();
    let rows: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
    let counter: Table<u64, u64> = node.open_or_create_table("counter").await.unwrap();
    let backups = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..6_u64 {
        let (db, backup) = (node.database().clone(), backups.path().join(round.to_string()));
        let to = backup.clone();
        let copy = tokio::task::spawn_blocking(move || {
            loop {
                match db.backup(&to) {
                    Err(braiddb::Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
                    other => return other,
                }
            }
        });
        let write = async {
            for key in round * 10..round * 10 + 10 {
                let large = large.clone();
                let blob = async move |tx: &Transaction| {
                    tx.put(&large, &key, &vec![key as u8; 1 << 20]).await
                };
                node.run(blob).await.unwrap();
                insert(node, &rows, &counter, key).await.unwrap();
            }
        };
        let (copied, ()) = tokio::join!(copy, write);
        copied.unwrap().unwrap();
        let db = Database::open(&backup, Options::default().workers(1).socket(false)).unwrap();
        let (rows, counter): (Table<u64, u64>, Table<u64, u64>) =
            (db.open_table("rows").await.unwrap(), db.open_table("counter").await.unwrap());
        let (found, count) =
            (db.count(&rows, ..).await.unwrap(), db.get(&counter, &0).await.unwrap().unwrap_or(0));
        assert_eq!(found, count, "a backup has a part of a transaction");
        assert!((last..=round * 10 + 10).contains(&found), "{found} after {last}");
        last = found;
        db.close().unwrap();
    }
    assert!(node.database().stats().versions_evicted > 0, "nothing was evicted");
    assert_eq!(cluster.assert_equal("large").await.len(), 60);
    assert_eq!(inserted(&cluster).await.len(), 60);
}
