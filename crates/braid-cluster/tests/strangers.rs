//! Nodes of another cluster with the same name are refused.

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use braid_cluster::{Cluster, ClusterOptions, Error, MemoryNetwork};
use braiddb::{Database, Options, Table};
use common::{TestCluster, add, address};

fn database() -> Database {
    Database::in_memory(Options::default().workers(1)).unwrap()
}

async fn start(network: &MemoryNetwork, name: &str, node: u64, db: Database) -> Cluster {
    start_with(network, ClusterOptions::new(name, node), db).await
}

async fn start_with(network: &MemoryNetwork, options: ClusterOptions, db: Database) -> Cluster {
    let node = options.node;
    Cluster::start(db, options, network.transport(address(node))).await.unwrap()
}

fn members(nodes: &[u64]) -> BTreeMap<u64, String> {
    nodes.iter().map(|&node| (node, address(node))).collect()
}

#[track_caller]
fn assert_other<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::OtherCluster(_))), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_of_one_name_do_not_mix() {
    let mut cluster = TestCluster::three(50).await;
    let node = cluster.nodes[&1].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    add(&node, &table, 1, 1).await.unwrap();
    let id = node.status().cluster_id.unwrap();
    // A cluster of one node, which has the same name.
    let other = start(&cluster.network, "test", 4, database()).await;
    other.init(members(&[4])).await.unwrap();
    let there: Table<u64, u64> = other.open_or_create_table("there").await.unwrap();
    add(&other, &there, 1, 1).await.unwrap();
    assert_ne!(other.status().cluster_id.unwrap(), id);
    let refused = node.add_node(4, address(4)).await;
    let text = refused.as_ref().unwrap_err().to_string();
    assert!(text.contains(&id) && text.contains(&other.status().cluster_id.unwrap()), "{text}");
    assert_other(refused);
    assert_other(other.add_node(1, address(1)).await);
    // A node that is no member makes no cluster with members of another one.
    let fresh = start(&cluster.network, "test", 5, database()).await;
    assert_other(fresh.init(members(&[1, 5])).await);
    assert_eq!(fresh.status().cluster_id, None);
    // Another database takes the place of node 3. The leader's entries do not reach it.
    cluster.stop(3).await;
    let taken = start(&cluster.network, "test", 3, database()).await;
    taken.init(members(&[3])).await.unwrap();
    let before = taken.status().applied_index;
    for key in 0..20 {
        add(&node, &table, key, 1).await.unwrap();
    }
    let leader = cluster.leader().await;
    assert!(cluster.nodes[&leader].transfer_leadership(3).await.is_err());
    assert!(taken.status().applied_index <= before + 1, "{:?}", taken.status());
    assert_eq!(taken.status().voters.len(), 1);
    taken.shutdown().await;
    // The right one continues, with the id that it had.
    cluster.open(3).await;
    assert_eq!(cluster.nodes[&3].status().cluster_id, Some(id.clone()));
    assert_eq!(cluster.assert_equal("counters").await.len(), 20);
    node.add_node(5, address(5)).await.unwrap();
    assert_eq!(fresh.status().cluster_id, Some(id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_recovered_databases_are_two_clusters() {
    let mut cluster = TestCluster::three(51).await;
    let node = cluster.nodes[&1].clone();
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    add(&node, &table, 1, 1).await.unwrap();
    cluster.assert_equal("counters").await;
    drop(node);
    let network = MemoryNetwork::default();
    let mut recovered = Vec::new();
    for id in [1, 2] {
        cluster.stop(id).await;
        let options = Options::default().workers(1).socket(false);
        let db = Database::open(cluster.directory(id), options).unwrap();
        Cluster::recover(&db, "second", id, &address(id)).await.unwrap();
        recovered.push(start(&network, "second", id, db).await);
    }
    for node in &recovered {
        node.open_or_create_table::<u64, u64>("counters").await.unwrap();
    }
    assert_other(recovered[0].add_node(2, address(2)).await);
    assert_other(recovered[1].add_node(1, address(1)).await);
}

/// A call of `init` that is dropped, after any number of polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_init_can_be_repeated_or_replaced() {
    for polls in 0..12 {
        for replaced in [false, true] {
            let network = MemoryNetwork::default();
            let one = start(&network, "test", 1, database()).await;
            {
                let mut init = pin!(one.init(members(&[1])));
                for _ in 0..polls {
                    if init.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            let two = start(&network, "test", 2, database()).await;
            // An interrupted call may have made the cluster, or make it now.
            let made = match replaced {
                true => {
                    two.init(members(&[2])).await.unwrap();
                    two.add_node(1, address(1)).await
                }
                false => one.init(members(&[1])).await,
            };
            match made {
                Ok(()) => {}
                Err(Error::OtherCluster(_)) if replaced => {
                    assert_ne!(one.status().cluster_id, two.status().cluster_id);
                }
                failed => panic!("{failed:?}"),
            }
            one.open_or_create_table::<u64, u64>("counters").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_init_on_several_nodes_make_one_cluster() {
    for _ in 0..10 {
        let network = MemoryNetwork::default();
        let mut nodes = Vec::new();
        for node in [1, 2, 3] {
            // A node waits for 10 heartbeats until it is a member.
            let options = ClusterOptions::new("test", node).heartbeat(Duration::from_secs(1));
            nodes.push(start_with(&network, options, database()).await);
        }
        let all = || members(&[1, 2, 3]);
        let (one, two, three) =
            tokio::join!(nodes[0].init(all()), nodes[1].init(all()), nodes[2].init(all()));
        for made in [one, two, three] {
            made.unwrap();
        }
        for node in &nodes {
            node.open_or_create_table::<u64, u64>("counters").await.unwrap();
            assert_eq!(node.status().cluster_id, nodes[0].status().cluster_id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_member_with_the_lowest_number_makes_the_cluster() {
    let network = MemoryNetwork::default();
    let two = start(&network, "test", 2, database()).await;
    let failed = two.init(members(&[1, 2])).await;
    assert!(matches!(failed, Err(Error::NoFounder { node: 1, .. })), "{failed:?}");
    assert_eq!(two.status().cluster_id, None);
    let one = start(&network, "test", 1, database()).await;
    two.init(members(&[1, 2])).await.unwrap();
    two.open_or_create_table::<u64, u64>("counters").await.unwrap();
    assert_eq!(one.status().cluster_id, two.status().cluster_id);
}
