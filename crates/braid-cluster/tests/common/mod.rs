//! Nodes of one process, each on a separate directory or simulated disk.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod clients;
pub mod history;
pub mod process;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_cluster::{Cluster, ClusterOptions, Consistency, MemoryNetwork, NodeId, Transport};
use braiddb::maintenance::CheckReport;
#[cfg(braid_simulation)]
use braiddb::simulation::SimulatedDisk;
use braiddb::{BusyWith, Database, Options, Table, Transaction};
use tempfile::TempDir;

pub struct TestCluster {
    pub network: MemoryNetwork,
    disks: BTreeMap<NodeId, Disk>,
    pub nodes: BTreeMap<NodeId, Cluster>,
    transports: BTreeMap<NodeId, Arc<dyn Transport>>,
    pub options: fn(ClusterOptions) -> ClusterOptions,
    /// Options of the databases.
    pub database: fn(Options) -> Options,
}

enum Disk {
    Directory(TempDir),
    #[cfg(braid_simulation)]
    Simulated(SimulatedDisk),
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
        let mut cluster = Self::empty(seed, options);
        for node in 1..=nodes {
            cluster.add_directory(node).await;
        }
        cluster
    }

    fn empty(seed: u64, options: fn(ClusterOptions) -> ClusterOptions) -> Self {
        Self {
            network: MemoryNetwork::with_seed(seed),
            disks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            transports: BTreeMap::new(),
            options,
            database: |options| options,
        }
    }

    /// Starts nodes on simulated disks as a cluster.
    #[cfg(braid_simulation)]
    pub async fn simulated(
        nodes: u64,
        seed: u64,
        options: fn(ClusterOptions) -> ClusterOptions,
    ) -> Self {
        let mut cluster = Self::empty(seed, options);
        for node in 1..=nodes {
            let disk = SimulatedDisk::new(seed.wrapping_add(node));
            cluster.disks.insert(node, Disk::Simulated(disk));
            cluster.open(node).await;
        }
        cluster.init(&(1..=nodes).collect::<Vec<_>>()).await;
        cluster
    }

    /// Starts a node on a simulated disk that is not a member yet.
    #[cfg(braid_simulation)]
    pub async fn add_simulated(&mut self, node: NodeId, seed: u64) {
        self.disks.insert(node, Disk::Simulated(SimulatedDisk::new(seed.wrapping_add(node))));
        self.open(node).await;
    }

    /// Returns the simulated disk of a node.
    #[cfg(braid_simulation)]
    pub fn disk(&self, node: NodeId) -> SimulatedDisk {
        match &self.disks[&node] {
            Disk::Simulated(disk) => disk.clone(),
            Disk::Directory(_) => panic!("node {node} has a directory"),
        }
    }

    /// Ends a node as a loss of power does. Its disk has what was durable, and some of the rest.
    #[cfg(braid_simulation)]
    pub async fn crash(&mut self, node: NodeId, seed: u64) {
        let disk = self.disk(node).crash(seed, &mut Default::default());
        // From now on, nothing that it does reaches the others.
        self.transports[&node].stop();
        let cluster = self.nodes.remove(&node).unwrap();
        cluster.shutdown().await;
        // Fails if the disk has failed.
        _ = cluster.database().close();
        self.disks.insert(node, Disk::Simulated(disk));
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
        self.disks.insert(node, Disk::Directory(tempfile::tempdir().unwrap()));
        self.open(node).await;
    }

    /// Starts a node from its disk.
    pub async fn open(&mut self, node: NodeId) {
        let options = (self.database)(Options::default().workers(1).socket(false));
        let db = match &self.disks[&node] {
            Disk::Directory(directory) => Database::open(directory.path(), options).unwrap(),
            #[cfg(braid_simulation)]
            Disk::Simulated(disk) => Database::open_simulated(disk, options, node).unwrap(),
        };
        let options = ClusterOptions::new("test", node).heartbeat(Duration::from_millis(60));
        let options = (self.options)(options.timeout(LIMIT));
        let transport = self.network.transport(address(node));
        let cluster = Cluster::start(db, options, transport.clone()).await.unwrap();
        self.nodes.insert(node, cluster);
        self.transports.insert(node, transport);
    }

    /// Stops a node and closes its database.
    pub async fn stop(&mut self, node: NodeId) {
        let cluster = self.nodes.remove(&node).unwrap();
        cluster.shutdown().await;
        cluster.database().close().unwrap();
    }

    /// Returns the directory of a node's database.
    pub fn directory(&self, node: NodeId) -> &std::path::Path {
        match &self.disks[&node] {
            Disk::Directory(directory) => directory.path(),
            #[cfg(braid_simulation)]
            Disk::Simulated(_) => panic!("node {node} has a simulated disk"),
        }
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

/// Compares the indexes of a node with its tables.
pub async fn check(node: &Cluster) -> CheckReport {
    let check = async {
        loop {
            match node.database().check() {
                Err(braiddb::Error::Busy(BusyWith::Checkpoint)) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                checked => return checked.unwrap(),
            }
        }
    };
    tokio::time::timeout(LIMIT, check).await.expect("another check does not end")
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
