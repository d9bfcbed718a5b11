//! Nodes of one process, each on a separate directory.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod clients;
pub mod history;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_cluster::{Cluster, ClusterOptions, Consistency, MemoryNetwork, NodeId};
use braiddb::{Database, Options, Table, Transaction};
use tempfile::TempDir;

pub struct TestCluster {
    pub network: MemoryNetwork,
    directories: BTreeMap<NodeId, TempDir>,
    pub nodes: BTreeMap<NodeId, Cluster>,
    options: fn(ClusterOptions) -> ClusterOptions,
}

/// Deadline of what must happen at last. Tests that pass never wait for it.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn address(node: NodeId) -> String {
    format!("node-{node}")
}

impl TestCluster {
    /// Starts nodes that are not a cluster yet.
    pub async fn start(
        nodes: u64,
        seed: u64,
        options: fn(ClusterOptions) -> ClusterOptions,
    ) -> Self {
        let network = MemoryNetwork::with_seed(seed);
        let (directories, running) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self { network, directories, nodes: running, options };
        for node in 1..=nodes {
            cluster.directories.insert(node, tempfile::tempdir().unwrap());
            cluster.open(node).await;
        }
        cluster
    }

    /// Starts three nodes as a cluster.
    pub async fn three(seed: u64) -> Self {
        let cluster = Self::start(3, seed, |options| options).await;
        cluster.init(&[1, 2, 3]).await;
        cluster
    }

    pub async fn init(&self, members: &[NodeId]) {
        let members = members.iter().map(|&node| (node, address(node))).collect();
        self.nodes[&1].init(members).await.unwrap();
    }

    /// Adds a node that is not a member yet.
    pub async fn add_directory(&mut self, node: NodeId) {
        self.directories.insert(node, tempfile::tempdir().unwrap());
        self.open(node).await;
    }

    /// Starts a node from its directory.
    pub async fn open(&mut self, node: NodeId) {
        let options = Options::default().workers(1).socket(false);
        let db = Database::open(self.directories[&node].path(), options).unwrap();
        let options = ClusterOptions::new("test", node).heartbeat(Duration::from_millis(60));
        let options = (self.options)(options.timeout(LIMIT));
        let transport = self.network.transport(address(node));
        let cluster = Cluster::start(db, options, transport).await.unwrap();
        self.nodes.insert(node, cluster);
    }

    /// Stops a node and closes its database.
    pub async fn stop(&mut self, node: NodeId) {
        let cluster = self.nodes.remove(&node).unwrap();
        cluster.shutdown().await;
        cluster.database().close().unwrap();
    }

    /// Waits until a node knows the leader.
    pub async fn leader(&self) -> NodeId {
        let find = async {
            loop {
                for cluster in self.nodes.values() {
                    let status = cluster.status();
                    if status.leader == Some(status.node) {
                        return status.node;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, find).await.expect("no leader")
    }

    /// Returns the contents of a table on a node, after everything committed before the call.
    pub async fn contents(&self, node: NodeId, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let name = table.to_owned();
        let read = async move |tx: &Transaction| {
            let (table, _) = tx.open_encoded_table(&name).await?;
            let (mut scan, mut rows) = (tx.scan(&table, ..)?, Vec::new());
            while let Some((key, value)) = scan.next().await? {
                rows.push((key, value.to_vec()));
            }
            Ok(rows)
        };
        self.nodes[&node].read(Consistency::Linearizable, read).await.unwrap()
    }

    /// Checks that all running nodes have the same contents, and returns them. A transaction may
    /// commit between the reads of two nodes, after its call ended with an unknown result. So
    /// different nodes are read again.
    pub async fn assert_equal(&self, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        for _ in 0..20 {
            let mut all = Vec::new();
            for &node in self.nodes.keys() {
                all.push(self.contents(node, table).await);
            }
            if all.iter().all(|contents| *contents == all[0]) {
                return all.swap_remove(0);
            }
        }
        panic!("the nodes have different contents in {table:?}");
    }
}

/// Adds to a counter.
pub async fn add(
    cluster: &Cluster,
    table: &Table<u64, u64>,
    key: u64,
    sum: u64,
) -> braid_cluster::Result<u64> {
    let table = Arc::new(table.clone());
    let outcome = cluster
        .run(async move |tx: &Transaction| {
            let value = tx.get(&table, &key).await?.unwrap_or(0) + sum;
            tx.put(&table, &key, &value).await?;
            Ok(value)
        })
        .await?;
    Ok(outcome.value)
}
