//! Administrative calls, changes of tables and calls of clients that are dropped after any number of
//! polls. They take effect once or never, and the node serves others.

mod common;
#[path = "../../braiddb/tests/common/polls.rs"]
mod polls;

use std::collections::BTreeMap;
use std::time::Duration;

use braid_cluster::{Client, Cluster, ClusterOptions, Consistency, Error, MemoryNetwork, Role};
use braiddb::{Database, Options, Table};
use common::{LIMIT, TestCluster, add, address};
use polls::poll_at_most;

/// Number of dropped calls of a kind. They are dropped after 1, 2, … polls; none needs as many.
const ROUNDS: usize = 24;
const MAX_POLLS: usize = 6;

fn polls(round: usize) -> usize {
    round % MAX_POLLS + 1
}

/// Checks that a call which may have taken effect before succeeds, or finds that.
#[track_caller]
fn assert_done<T: std::fmt::Debug>(called: Result<T, Error>) {
    assert!(matches!(called, Ok(_) | Err(Error::Refused(_))), "{called:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_transfers_leave_a_leader_that_writes() {
    let cluster = TestCluster::three(50).await;
    let table: Table<u64, u64> = cluster.nodes[&1].open_or_create_table("rows").await.unwrap();
    let (mut sum, mut dropped) = (0, 0);
    for round in 0..ROUNDS {
        let leader = cluster.leader().await;
        let target = leader % 3 + 1;
        // From the leader, whose own part of the call is dropped too, and from another node.
        let from = if (round / MAX_POLLS).is_multiple_of(2) { leader } else { target };
        let transfer = cluster.nodes[&from].transfer_leadership(target);
        match poll_at_most(transfer, polls(round)).await {
            Some(moved) => assert_done(moved),
            None => dropped += 1,
        }
        sum += 1;
        let there: Table<u64, u64> =
            cluster.nodes[&target].open_or_create_table("rows").await.unwrap();
        assert_eq!(add(&cluster.nodes[&target], &there, 1, 1).await.unwrap(), sum);
    }
    assert!(dropped >= ROUNDS / MAX_POLLS, "{dropped} dropped");
    let target = cluster.leader().await % 3 + 1;
    let moves = async {
        while cluster.nodes[&target].status().role != Role::Leader {
            assert_done(cluster.nodes[&1].transfer_leadership(target).await);
        }
    };
    tokio::time::timeout(LIMIT, moves).await.expect("the target does not lead");
    assert_eq!(add(&cluster.nodes[&1], &table, 1, 1).await.unwrap(), sum + 1);
}

/// The first of them raises the version of the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_changes_of_tables_take_effect_once_or_never() {
    for number in 1..=3 {
        let cluster = TestCluster::three(50 + number).await;
        let node = &cluster.nodes[&number];
        let mut dropped = 0;
        for round in 0..ROUNDS {
            let (from, to) = (round.to_string(), format!("{round}.renamed"));
            let table: Table<u64, u64> = node.open_or_create_table(&from).await.unwrap();
            add(node, &table, 1, 1).await.unwrap();
            let renamed = poll_at_most(node.rename_table(&from, &to), polls(round)).await;
            assert_done(node.rename_table(&from, &to).await);
            assert_eq!(node.status().version, 2);
            assert_eq!(add(node, &table, 1, 1).await.unwrap(), 2);
            let removed = poll_at_most(node.drop_table(&to), polls(round)).await;
            assert_done(node.drop_table(&to).await);
            assert!(add(node, &table, 1, 1).await.is_err());
            // Not a later part of the dropped call.
            let again: Table<u64, u64> = node.open_or_create_table(&to).await.unwrap();
            assert_eq!(add(node, &again, 1, 1).await.unwrap(), 1);
            dropped += usize::from(renamed.is_none()) + usize::from(removed.is_none());
        }
        assert!(dropped >= ROUNDS / MAX_POLLS, "{dropped} dropped");
        assert_eq!(cluster.assert_equal("raft.catalog").await.len(), ROUNDS);
        for round in 0..ROUNDS {
            assert_eq!(cluster.assert_equal(&format!("{round}.renamed")).await.len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_recovery_leaves_a_node_of_one_cluster() {
    let options = || Options::default().workers(1).socket(false);
    for polls in 1.. {
        let mut cluster = TestCluster::start(1, polls, |options| options).await;
        cluster.init(&[1]).await;
        let node = cluster.nodes[&1].clone();
        let table: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        add(&node, &table, 1, 1).await.unwrap();
        drop(node);
        cluster.stop(1).await;
        let db = Database::open(cluster.directory(1), options()).unwrap();
        let recover = || Cluster::recover(&db, "second", 1, "second");
        let ended = poll_at_most(recover(), polls as usize).await;
        match recover().await {
            Ok(()) => {}
            // The dropped call has ended in the database.
            Err(Error::Options(reason)) => assert!(reason.contains("another name"), "{reason}"),
            Err(error) => panic!("{error}"),
        }
        let network = MemoryNetwork::default();
        let second = ClusterOptions::new("second", 1).timeout(LIMIT);
        let node = Cluster::start(db, second, network.transport("second")).await.unwrap();
        let table: Table<u64, u64> = node.open_or_create_table("rows").await.unwrap();
        assert_eq!(add(&node, &table, 1, 1).await.unwrap(), 2);
        node.shutdown().await;
        if ended.is_some() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_of_clients_leave_a_node_that_serves() {
    let mut cluster = TestCluster::start(2, 60, |options| options.max_requests(8)).await;
    let transport = cluster.network.transport("client");
    let client = |node| Client::new(transport.clone(), "test", address(node), LIMIT);
    let members = BTreeMap::from([(1, address(1)), (2, address(2))]);
    for polls in 1..4 {
        _ = poll_at_most(client(1).init(members.clone()), polls).await;
    }
    client(1).init(members).await.unwrap();
    let mut dropped = 0;
    for polls in 1..=8 {
        for node in [1, 2] {
            let client = client(node);
            let (key, table) = (polls.to_string(), format!("{node}.{polls}"));
            let mut count = |is_dropped: bool| dropped += usize::from(is_dropped);
            count(poll_at_most(client.status(), polls).await.is_none());
            count(poll_at_most(client.put("texts", &key, "first"), polls).await.is_none());
            let linearizable = Consistency::Linearizable;
            let get = client.get("texts", &key, linearizable);
            count(poll_at_most(get, polls).await.is_none());
            client.put("texts", &key, "second").await.unwrap();
            client.put(&table, &key, "value").await.unwrap();
            let renamed = format!("{table}.renamed");
            count(poll_at_most(client.rename_table(&table, &renamed), polls).await.is_none());
            // The node may still execute the dropped call.
            let renaming = async {
                while client.get(&renamed, &key, linearizable).await.is_err() {
                    _ = client.rename_table(&table, &renamed).await;
                }
            };
            tokio::time::timeout(LIMIT, renaming).await.expect("the table is not renamed");
            count(poll_at_most(client.drop_table(&renamed), polls).await.is_none());
            let dropping = async {
                while client.get(&renamed, &key, linearizable).await.is_ok() {
                    _ = client.drop_table(&renamed).await;
                }
            };
            tokio::time::timeout(LIMIT, dropping).await.expect("the table is not dropped");
            count(poll_at_most(client.transfer(node), polls).await.is_none());
        }
    }
    assert!(dropped > 8, "{dropped} dropped");
    cluster.add_directory(3).await;
    for polls in 1..4 {
        _ = poll_at_most(client(1).add(3, &address(3)), polls).await;
    }
    let adding = async {
        while client(1).add(3, &address(3)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, adding).await.expect("the node is not added");
    assert_eq!(cluster.assert_equal("texts").await.len(), 8);
    for polls in 1..4 {
        _ = poll_at_most(client(1).remove(3), polls).await;
    }
    let removing = async {
        while client(1).status().await.unwrap().voters.len() > 2 {
            _ = client(1).remove(3).await;
        }
    };
    tokio::time::timeout(LIMIT, removing).await.expect("the node is not removed");
    client(2).put("texts", "last", "value").await.unwrap();
}
