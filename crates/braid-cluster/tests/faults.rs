//! Concurrent clients while the network loses messages and nodes stop, are cut off and restart.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use braid_cluster::NodeId;
use common::clients::Clients;
use common::{TestCluster, address};

const CLIENTS: u64 = 6;

/// Faults that a test injects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    /// Lost and delayed messages.
    Messages,
    /// A node, often the leader, is cut off.
    Partitions,
    /// A node, often the leader, stops and restarts.
    Restarts,
}

/// Runs clients, injects faults until they are done, and checks what they saw.
async fn run(seed: u64, faults: Faults, transactions: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cluster = TestCluster::three(seed).await;
    let clients = Arc::new(Clients::default());
    Clients::prepare(&cluster.nodes[&1]).await;
    for node in cluster.nodes.keys() {
        // Every node has the tables before a client uses it.
        cluster.contents(*node, "accounts").await;
    }
    *clients.nodes.lock().unwrap() = cluster.nodes.clone();
    let mut running = tokio::task::JoinSet::new();
    for client in 1..=CLIENTS {
        running.spawn(clients.clone().run(client, seed << 8 | client, transactions));
    }
    let mut round = 0;
    while !running.is_empty() {
        round += 1;
        assert!(round < 300, "the clients do not come to an end");
        inject(&mut cluster, &clients, faults, &mut random).await;
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
    }
    cluster.network.set_faults(0.0, Duration::ZERO);
    cluster.network.heal();
    cluster.leader().await;
    let (records, unknown) = clients.check(&cluster).await;
    println!(
        "seed {seed}: {} committed, {records} records, {unknown} unknown, {round} rounds of faults",
        clients.committed.load(Ordering::Relaxed)
    );
}

/// One fault, and its end.
async fn inject(
    cluster: &mut TestCluster,
    clients: &Clients,
    faults: Faults,
    random: &mut fastrand::Rng,
) {
    let victim: NodeId = if random.bool() { cluster.leader().await } else { random.u64(1..=3) };
    let pause = Duration::from_millis(random.u64(100..900));
    match faults {
        Faults::Messages => {
            cluster.network.set_faults(0.1, Duration::from_millis(20));
            tokio::time::sleep(pause).await;
            cluster.network.set_faults(0.0, Duration::from_millis(2));
        }
        Faults::Partitions => {
            let others: Vec<String> = (1..=3).filter(|node| *node != victim).map(address).collect();
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            cluster.network.cut(&[&address(victim)], &others);
            tokio::time::sleep(pause).await;
            cluster.network.heal();
        }
        Faults::Restarts => {
            clients.nodes.lock().unwrap().remove(&victim);
            cluster.stop(victim).await;
            tokio::time::sleep(pause).await;
            cluster.open(victim).await;
            clients.nodes.lock().unwrap().insert(victim, cluster.nodes[&victim].clone());
        }
    }
    tokio::time::sleep(Duration::from_millis(random.u64(100..400))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_delayed_messages() {
    run(1, Faults::Messages, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions() {
    run(2, Faults::Partitions, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts() {
    run(3, Faults::Restarts, 60).await;
}

/// Many seeds; `SEEDS=100 cargo test --test faults -- --ignored`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn many_seeds() {
    let seeds = std::env::var("SEEDS").map_or(10, |seeds| seeds.parse().unwrap());
    for seed in 100..100 + seeds {
        for faults in [Faults::Messages, Faults::Partitions, Faults::Restarts] {
            run(seed, faults, 60).await;
        }
    }
}
