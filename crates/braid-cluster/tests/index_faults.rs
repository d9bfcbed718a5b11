//! Clients that read and write through indexes, while the network loses messages and nodes restart.
//!
//! A name belongs to at most one person (unique index), and at most five tasks are busy: each
//! transaction counts them through an index before it adds one.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_cluster::{Cluster, Consistency, Error, NodeId, Result};
use braiddb::{Index, IndexOptions, Table, Transaction};
use common::{LIMIT, TestCluster};

const CLIENTS: u64 = 6;
const MAX_BUSY: usize = 5;
const PERSONS: u64 = 30;
const TASKS: u64 = 25;

#[derive(Clone)]
struct Tables {
    persons: Table<u64, u64>,
    by_name: Index<u64, u64, u64>,
    tasks: Table<u64, bool>,
    by_state: Index<bool, u64, bool>,
}

impl Tables {
    async fn attach(node: &Cluster) -> Result<Self> {
        let persons: Table<u64, u64> = node.open_or_create_table("persons").await?;
        let unique = IndexOptions::default().unique(true);
        let by_name = node.index(&persons, "by_name", unique, |name, keys| keys.push(&name));
        let by_name = by_name.await?;
        let tasks: Table<u64, bool> = node.open_or_create_table("tasks").await?;
        let by_state = |is_busy, keys: &mut braiddb::IndexKeys<'_, bool>| keys.push(&is_busy);
        let by_state = node.index(&tasks, "by_state", IndexOptions::default(), by_state).await?;
        Ok(Self { persons, by_name, tasks, by_state })
    }

    /// Gives a person a name, unless another one has it. Returns whether it was given.
    async fn name(self, node: &Cluster, person: u64, name: u64) -> Result<bool> {
        let body = async move |tx: &Transaction| {
            let owner = tx.get_by(&self.by_name, &name).await?;
            if owner.is_some_and(|(owner, _)| owner != person) {
                let put = tx.put(&self.persons, &person, &name).await;
                assert!(matches!(put, Err(braiddb::Error::UniqueViolation(_))), "{put:?}");
                return Ok(false);
            }
            tx.put(&self.persons, &person, &name).await?;
            Ok(true)
        };
        Ok(node.run(body).await?.value)
    }

    /// Makes a task busy if fewer than [`MAX_BUSY`] are, or idle otherwise.
    async fn work(self, node: &Cluster, task: u64) -> Result<()> {
        let body = async move |tx: &Transaction| {
            let mut busy = tx.entries_by(&self.by_state, true..=true)?;
            let (mut count, mut is_busy) = (0, false);
            while let Some((_, other)) = busy.next().await? {
                (count, is_busy) = (count + 1, is_busy || other == task);
            }
            drop(busy);
            assert!(count <= MAX_BUSY, "{count} tasks are busy");
            tx.put(&self.tasks, &task, &(!is_busy && count < MAX_BUSY)).await
        };
        node.run(body).await.map(drop)
    }
}

struct Clients {
    nodes: Mutex<BTreeMap<NodeId, Cluster>>,
    committed: AtomicU64,
}

impl Clients {
    async fn run(self: Arc<Self>, seed: u64, transactions: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut done = 0;
        while done < transactions {
            let node = {
                let nodes = self.nodes.lock().unwrap();
                random.choice(nodes.values()).map(|node| node.with_timeout(Duration::from_secs(5)))
            };
            let Some(node) = node else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            match self.act(&node, &mut random).await {
                Ok(()) => done += 1,
                Err(
                    Error::NoQuorum(_)
                    | Error::Timeout(_)
                    | Error::CommitUnknown { .. }
                    | Error::Conflict { .. }
                    | Error::Stopped(_)
                    | Error::IndexNotAttached { .. }
                    | Error::Database(braiddb::Error::Closed),
                ) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    async fn act(&self, node: &Cluster, random: &mut fastrand::Rng) -> Result<()> {
        let tables = Tables::attach(node).await?;
        if random.bool() {
            tables.name(node, random.u64(..PERSONS), random.u64(..2 * PERSONS)).await?;
        } else {
            tables.work(node, random.u64(..TASKS)).await?;
        }
        self.committed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn run(seed: u64, transactions: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = if seed.is_multiple_of(2) {
        |it: braid_cluster::ClusterOptions| it
    } else {
        |it: braid_cluster::ClusterOptions| it.kept_entries(20)
    };
    let mut cluster = TestCluster::start(3, seed, options).await;
    cluster.init(&[1, 2, 3]).await;
    Tables::attach(&cluster.nodes[&1]).await.unwrap();
    let nodes = Mutex::new(cluster.nodes.clone());
    let clients = Arc::new(Clients { nodes, committed: AtomicU64::new(0) });
    let mut running = tokio::task::JoinSet::new();
    for client in 1..=CLIENTS {
        running.spawn(clients.clone().run(seed << 8 | client, transactions));
    }
    let mut round = 0;
    while !running.is_empty() {
        round += 1;
        assert!(round < 300, "the clients do not come to an end");
        let victim: NodeId = if random.bool() { cluster.leader().await } else { random.u64(1..=3) };
        if random.u8(..3) == 0 {
            cluster.network.set_faults(0.1, Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(random.u64(100..900))).await;
            cluster.network.set_faults(0.0, Duration::from_millis(2));
        } else {
            clients.nodes.lock().unwrap().remove(&victim);
            cluster.stop(victim).await;
            tokio::time::sleep(Duration::from_millis(random.u64(100..900))).await;
            cluster.open(victim).await;
            // Sometimes the node does not wait so long for the program.
            if random.bool() {
                tokio::time::sleep(Duration::from_millis(random.u64(..3_000))).await;
            }
            clients.nodes.lock().unwrap().insert(victim, cluster.nodes[&victim].clone());
        }
        tokio::time::sleep(Duration::from_millis(random.u64(100..400))).await;
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
    }
    cluster.network.set_faults(0.0, Duration::ZERO);
    cluster.leader().await;
    check(&cluster).await;
    println!("seed {seed}: {} committed", clients.committed.load(Ordering::Relaxed));
}

/// Checks that all nodes have the same records, with their entries.
async fn check(cluster: &TestCluster) {
    let persons = cluster.assert_equal("persons").await;
    let mut names: Vec<_> = persons.iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), persons.len(), "two persons have one name");
    let tasks = cluster.assert_equal("tasks").await;
    let busy = tasks.iter().filter(|(_, is_busy)| is_busy == &[1]).count();
    assert!((1..=MAX_BUSY).contains(&busy), "{busy} tasks are busy");
    for node in cluster.nodes.values() {
        let tables = Tables::attach(node).await.unwrap();
        let count = async move |tx: &Transaction| {
            let mut found = [0, 0];
            let mut scan = tx.scan_by(&tables.by_name, ..)?;
            while let Some((name, _, value)) = scan.next().await? {
                assert_eq!(name, value);
                found[0] += 1;
            }
            let mut scan = tx.scan_by(&tables.by_state, true..=true)?;
            while scan.next().await?.is_some() {
                found[1] += 1;
            }
            Ok(found)
        };
        let found = node.read(Consistency::Linearizable, count).await.unwrap();
        assert_eq!(found, [persons.len(), busy]);
        let report = common::check(node).await;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_stay_right_while_nodes_restart() {
    tokio::time::timeout(5 * LIMIT, run(1, 60)).await.expect("the run does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_stay_right_with_the_whole_log() {
    tokio::time::timeout(5 * LIMIT, run(2, 60)).await.expect("the run does not end");
}

/// Many seeds; `SEEDS=100 cargo test --test index_faults -- --ignored`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn many_seeds() {
    let seeds = std::env::var("SEEDS").map_or(10, |seeds| seeds.parse().unwrap());
    for seed in 100..100 + seeds {
        run(seed, 60).await;
    }
}
