//! Transfer of the leadership.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_cluster::{Error, Role};
use braiddb::Table;
use common::{LIMIT, TestCluster, add, address};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leadership_moves_while_clients_write() {
    for nodes in [3, 5] {
        let cluster = TestCluster::start(nodes, nodes, |options| options).await;
        let members: Vec<u64> = (1..=nodes).collect();
        cluster.init(&members).await;
        let added = Arc::new(AtomicU64::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for (client, node) in cluster.nodes.clone() {
            let added = added.clone();
            clients.spawn(async move {
                let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
                loop {
                    add(&node, &table, 0, 1).await.unwrap();
                    add(&node, &table, client, 1).await.unwrap();
                    added.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for target in members.iter().cycle().take(members.len() * 2) {
            // Through another node than the target, which may lead or not.
            let through = &cluster.nodes[&(target % nodes + 1)];
            // A slow machine may elect another leader at any time.
            let moves = async {
                while cluster.nodes[target].status().role != Role::Leader {
                    let moved = through.transfer_leadership(*target).await;
                    assert!(matches!(moved, Ok(()) | Err(Error::Refused(_))), "{moved:?}");
                }
            };
            tokio::time::timeout(LIMIT, moves).await.expect("the target does not lead");
            let before = added.load(Ordering::SeqCst);
            let continues = async {
                while added.load(Ordering::SeqCst) <= before + nodes {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(LIMIT, continues).await.expect("the clients do not continue");
        }
        clients.shutdown().await;
        let added = added.load(Ordering::SeqCst);
        let rows = cluster.assert_equal("counters").await;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let sum = number(&rows[0].1);
        // The last transactions of the clients may have committed after they were stopped.
        assert!((added..=added + nodes).contains(&sum), "{added} acknowledged, {sum} stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_cannot_lead_leaves_a_leader() {
    // So long that the leader stays.
    let cluster =
        TestCluster::start(3, 9, |options| options.heartbeat(Duration::from_secs(1))).await;
    cluster.init(&[1, 2, 3]).await;
    let leader = cluster.leader().await;
    let target = leader % 3 + 1;
    let node = &cluster.nodes[&leader];
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    let failed = node.transfer_leadership(4).await;
    assert!(
        matches!(&failed, Err(Error::Refused(why)) if why.contains("not a voter")),
        "{failed:?}"
    );
    node.transfer_leadership(leader).await.unwrap();
    let others: Vec<String> = (1..=3).filter(|node| *node != target).map(address).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    cluster.network.cut(&[&address(target)], &others);
    let failed = node.with_timeout(Duration::from_millis(500)).transfer_leadership(target).await;
    assert!(matches!(&failed, Err(Error::Refused(_))), "{failed:?}");
    // Writes continue without the target.
    assert_eq!(add(node, &table, 1, 1).await.unwrap(), 1);
    cluster.network.heal();
    let node = &cluster.nodes[&target];
    let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    assert_eq!(add(node, &table, 1, 1).await.unwrap(), 2);
    cluster.assert_equal("counters").await;
}
