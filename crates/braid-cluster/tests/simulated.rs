//! Clusters on simulated disks in simulated time: each seed has a network that loses, delays,
//! duplicates and reorders messages, partitions, and nodes that restart or lose power.
//!
//! The time is that of a paused tokio runtime. It passes only while no node's database is at
//! work, so an election or a deadline never depends on the speed of the machine, and a seed takes
//! as long as its computations. The seed determines the faults and the disks; the order in which
//! databases finish at the same simulated time is that of their threads.
//!
//! `RUSTFLAGS="--cfg braid_simulation" SEEDS=1000 cargo test --test simulated
//! --target-dir target/simulated -- --nocapture` runs many.
#![cfg(braid_simulation)]

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_cluster::{Cluster, Consistency, NodeId};
use braiddb::simulation::{Faults, SimulatedDisk};
use braiddb::{Table, Transaction};
use common::clients::Clients;
use common::{TestCluster, add, address};

const CLIENTS: u64 = 5;
const TRANSACTIONS: u64 = 60;
/// Simulated time that may pass while a database is at work.
const STEP: Duration = Duration::from_millis(2);

type Disks = Arc<Mutex<BTreeMap<NodeId, SimulatedDisk>>>;

/// Lets time pass only while all disks and their databases rest. A task on a thread that may block
/// keeps a paused runtime from advancing its clock.
async fn hold_time(disks: Disks) {
    loop {
        tokio::time::sleep(STEP).await;
        let disks: Vec<_> = disks.lock().unwrap().values().cloned().collect();
        let settled =
            tokio::task::spawn_blocking(move || disks.iter().for_each(|disk| disk.settle()));
        settled.await.unwrap();
    }
}

/// Runs a test in simulated time.
fn simulate(seed: u64, test: impl AsyncFnOnce(Disks)) {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let disks = Disks::default();
        let time = tokio::spawn(hold_time(disks.clone()));
        test(disks).await;
        time.abort();
    });
    runtime.shutdown_background();
}

/// A running cluster, its clients, and the disks that hold the time.
struct Simulation {
    cluster: TestCluster,
    clients: Arc<Clients>,
    disks: Disks,
    random: fastrand::Rng,
    /// Number of injected faults of each kind.
    faults: BTreeMap<&'static str, u64>,
}

impl Simulation {
    async fn start(nodes: u64, seed: u64, disks: Disks) -> Self {
        let few_entries = |options: braid_cluster::ClusterOptions| options.kept_entries(40);
        let all_entries = |options| options;
        let options = if seed % 2 == 0 { few_entries } else { all_entries };
        let cluster = TestCluster::simulated(nodes, seed, options).await;
        let random = fastrand::Rng::with_seed(seed);
        let mut clients = Clients::default();
        clients.pause = Duration::from_millis(200);
        let clients = Arc::new(clients);
        Clients::prepare(&cluster.nodes[&1]).await;
        for node in cluster.nodes.keys() {
            cluster.contents(*node, "accounts").await;
        }
        *clients.nodes.lock().unwrap() = cluster.nodes.clone();
        let faults = BTreeMap::new();
        let mut simulation = Self { cluster, clients, disks, random, faults };
        for node in 1..=nodes {
            simulation.note_disk(node);
        }
        simulation
    }

    fn note_disk(&mut self, node: NodeId) {
        let disk = self.cluster.disk(node);
        // Transfers are reordered and short.
        disk.set_faults(Faults { short_transfers: 20, max_delay: 4, ..Faults::default() });
        self.disks.lock().unwrap().insert(node, disk);
    }

    async fn sleep(&mut self, from_ms: u64, to_ms: u64) {
        let pause = self.random.u64(from_ms..to_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    async fn victim(&mut self) -> NodeId {
        let nodes = self.cluster.nodes.len() as u64;
        match self.random.bool() {
            true => self.cluster.leader().await,
            false => self.random.u64(1..=nodes),
        }
    }

    async fn inject(&mut self) {
        let kind = match self.random.u8(..9) {
            0 => "messages",
            1 => "one node cut off",
            2 => "groups",
            3 => "one direction",
            4 => "restart",
            5 => "loss of power",
            6 | 7 => "loss of power before a reply",
            _ => "loss of power of all",
        };
        *self.faults.entry(kind).or_default() += 1;
        let nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
        let victim = self.victim().await;
        match kind {
            "messages" => {
                let delay = Duration::from_millis(self.random.u64(1..120));
                self.cluster.network.set_faults(self.random.f64() * 0.3, delay);
                self.cluster.network.set_duplication(self.random.f64() * 0.3);
                self.sleep(100, 2000).await;
                self.cluster.network.set_faults(0.0, Duration::from_millis(2));
                self.cluster.network.set_duplication(0.05);
            }
            "one node cut off" | "groups" | "one direction" => {
                let (mut some, mut others): (Vec<_>, Vec<_>) = match kind {
                    "groups" => nodes.iter().partition(|_| self.random.bool()),
                    _ => nodes.iter().partition(|node| **node == victim),
                };
                if self.random.bool() {
                    std::mem::swap(&mut some, &mut others);
                }
                let names = |nodes: &[NodeId]| nodes.iter().map(|node| address(*node)).collect();
                let (some, others): (Vec<String>, Vec<String>) = (names(&some), names(&others));
                let some: Vec<&str> = some.iter().map(String::as_str).collect();
                let others: Vec<&str> = others.iter().map(String::as_str).collect();
                match kind {
                    "one direction" => self.cluster.network.cut_one_way(&some, &others),
                    _ => self.cluster.network.cut(&some, &others),
                }
                self.sleep(100, 2500).await;
                self.cluster.network.heal();
            }
            "restart" => {
                self.clients.nodes.lock().unwrap().remove(&victim);
                self.cluster.stop(victim).await;
                self.sleep(1, 1500).await;
                self.open(victim).await;
            }
            "loss of power before a reply" => {
                let replies = self.random.u64(..60);
                self.fail_before_reply(replies).await;
            }
            _ => {
                let victims = if kind == "loss of power" { vec![victim] } else { nodes };
                for &node in &victims {
                    self.clients.crash(node);
                    let seed = self.random.u64(..);
                    self.cluster.crash(node, seed).await;
                    self.note_disk(node);
                }
                self.sleep(1, 1500).await;
                for node in victims {
                    self.open(node).await;
                }
            }
        }
        self.sleep(1, 1000).await;
    }

    /// Lets a node lose power before it sends a reply, after some other replies, and starts it again.
    async fn fail_before_reply(&mut self, replies: u64) {
        let failed = self.cluster.network.fail_before_reply(replies).await.unwrap();
        let mut nodes = self.cluster.nodes.keys();
        let victim = *nodes.find(|node| address(**node) == failed).unwrap();
        self.clients.crash(victim);
        let seed = self.random.u64(..);
        self.cluster.crash(victim, seed).await;
        self.note_disk(victim);
        self.sleep(1, 1500).await;
        self.open(victim).await;
    }

    async fn open(&mut self, node: NodeId) {
        self.cluster.open(node).await;
        let running = self.cluster.nodes[&node].clone();
        self.clients.nodes.lock().unwrap().insert(node, running);
    }

    /// Runs clients, injects faults until they are done, and checks what they saw.
    async fn run(mut self, seed: u64) -> Summary {
        let mut running = tokio::task::JoinSet::new();
        for client in 1..=CLIENTS {
            running.spawn(self.clients.clone().run(client, seed << 8 | client, TRANSACTIONS));
        }
        let mut rounds = 0;
        while !running.is_empty() {
            rounds += 1;
            assert!(rounds < 300, "the clients do not come to an end");
            self.inject().await;
            while let Some(ended) = running.try_join_next() {
                ended.unwrap();
            }
        }
        self.cluster.network.set_faults(0.0, Duration::ZERO);
        self.cluster.network.set_duplication(0.0);
        self.cluster.leader().await;
        let (records, unknown) = self.clients.check(&self.cluster).await;
        let committed = self.clients.committed.load(Ordering::Relaxed);
        for node in self.cluster.nodes.keys().copied().collect::<Vec<_>>() {
            self.cluster.stop(node).await;
        }
        Summary { committed, records, unknown, faults: self.faults }
    }
}

#[derive(Debug, Default)]
struct Summary {
    committed: u64,
    records: usize,
    unknown: usize,
    faults: BTreeMap<&'static str, u64>,
}

/// Returns a number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn seeds_of_faults() {
    let (first, seeds) = (number("FIRST").unwrap_or(1), number("SEEDS").unwrap_or(6));
    let (begun, mut longest, mut all) = (Instant::now(), Duration::ZERO, Summary::default());
    for seed in first..first + seeds {
        let (nodes, begun) = (if seed % 3 == 0 { 5 } else { 3 }, Instant::now());
        println!("seed {seed}, {nodes} nodes");
        simulate(seed, async |disks| {
            let simulation = Simulation::start(nodes, seed, disks).await;
            let summary = simulation.run(seed).await;
            all.committed += summary.committed;
            all.records += summary.records;
            all.unknown += summary.unknown;
            for (kind, count) in summary.faults {
                *all.faults.entry(kind).or_default() += count;
            }
        });
        longest = longest.max(begun.elapsed());
    }
    println!("{seeds} seeds in {:?}, the longest in {longest:?}: {all:?}", begun.elapsed());
}

/// Calls any running node until it returns a value.
async fn call_any<T>(clients: &Clients, call: impl AsyncFn(Cluster) -> Option<T>) -> T {
    for round in 0.. {
        let nodes: Vec<Cluster> = clients.nodes.lock().unwrap().values().cloned().collect();
        if let Some(node) = nodes.get(round % nodes.len().max(1))
            && let Some(value) = call(node.with_timeout(Duration::from_secs(3))).await
        {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("it is called again and again")
}

/// Returns whether the cluster has a table, if the node knows it.
async fn has_table(node: &Cluster, name: &str) -> Option<bool> {
    let read = async |tx: &Transaction| tx.tables().await;
    let tables = node.read(Consistency::Linearizable, read).await.ok()?;
    Some(tables.iter().any(|table| table.name == name))
}

async fn put(clients: &Clients, table: &str, value: u64) {
    let put = async |node: Cluster| {
        let table: Table<u64, u64> = node.open_or_create_table(table).await.ok()?;
        let put = async move |tx: &Transaction| tx.put(&table, &1, &value).await;
        node.run(put).await.ok()
    };
    call_any(clients, put).await;
}

/// Changes tables, members and the leader.
async fn administer(clients: Arc<Clients>) {
    put(&clients, "first", 1).await;
    // Raises the version of the cluster.
    let rename = async |node: Cluster| {
        _ = node.rename_table("first", "second").await;
        has_table(&node, "second").await?.then_some(())
    };
    call_any(&clients, rename).await;
    put(&clients, "second", 2).await;
    for target in [2, 3] {
        let transfer = async |node: Cluster| {
            // Another node may win an election.
            _ = node.transfer_leadership(target).await;
            node.status().leader
        };
        call_any(&clients, transfer).await;
        put(&clients, "second", target).await;
    }
    let members = async |node: Cluster, is_member: bool| {
        _ = match is_member {
            true => node.add_node(4, address(4)).await,
            false => node.remove_node(4).await,
        };
        (node.status().voters.contains_key(&4) == is_member).then_some(())
    };
    call_any(&clients, async |node| members(node, true).await).await;
    put(&clients, "second", 4).await;
    call_any(&clients, async |node| members(node, false).await).await;
    let remove = async |node: Cluster| {
        _ = node.drop_table("second").await;
        (!has_table(&node, "second").await?).then_some(())
    };
    call_any(&clients, remove).await;
    put(&clients, "third", 5).await;
}

/// The first failure of each seed is one reply later than that of the seed before, so many seeds together
/// fail before each reply. The clients repeat their calls on any running node.
#[test]
fn nodes_that_fail_before_replies_to_administrative_calls() {
    let (first, seeds) = (number("FIRST").unwrap_or(1), number("SEEDS").unwrap_or(8));
    for seed in first..first + seeds {
        simulate(seed, async |disks| {
            let mut simulation = Simulation::start(3, seed, disks).await;
            // So that the calls last longer than one failure.
            simulation.cluster.network.set_faults(0.0, Duration::from_millis(50));
            simulation.cluster.add_simulated(4, seed).await;
            simulation.note_disk(4);
            let (is_done, clients) = (Cell::new(false), simulation.clients.clone());
            let calls = async {
                administer(clients).await;
                is_done.set(true);
            };
            let (mut failures, mut replies) = (0, seed - 1);
            let failing = async {
                while !is_done.get() {
                    simulation.fail_before_reply(replies).await;
                    failures += 1;
                    assert!(failures < 300, "the calls do not come to an end");
                    simulation.sleep(1, 1000).await;
                    replies = simulation.random.u64(..30);
                }
            };
            tokio::join!(calls, failing);
            // It is no member.
            simulation.cluster.stop(4).await;
            assert_eq!(simulation.cluster.assert_equal("third").await.len(), 1);
            simulation.cluster.assert_equal("raft.catalog").await;
            println!("seed {seed}: {failures} failures");
        });
    }
}

/// Serves with two of three nodes while the disk of the third fails, until it reports that.
fn serve_beside_a_failing_disk(seed: u64, leads: bool, faults: impl Fn(&SimulatedDisk) -> Faults) {
    simulate(seed, async |disks| {
        let mut simulation = Simulation::start(3, seed, disks).await;
        let leader = simulation.cluster.leader().await;
        let victim = if leads { leader } else { leader % 3 + 1 };
        let other = (1..=3).find(|node| *node != victim && *node != leader).unwrap();
        let node = simulation.cluster.nodes[&other].clone();
        let table: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        let disk = simulation.cluster.disk(victim);
        disk.set_faults(faults(&disk));
        let broken = simulation.cluster.nodes[&victim].clone();
        let mut added = 0;
        while broken.status().failure.is_none() {
            added += 1;
            assert!(added < 5000, "the node does not stop");
            assert_eq!(add(&node, &table, 1, 1).await.unwrap(), added);
        }
        let there: Table<u64, u64> = node.database().open_table("counters").await.unwrap();
        let refused = add(&broken.with_timeout(Duration::from_secs(1)), &there, 1, 1).await;
        assert!(refused.is_err(), "{refused:?}");
        for more in 1..20 {
            assert_eq!(add(&node, &table, 1, 1).await.unwrap(), added + more);
        }
        drop(broken);
        // It starts again when the cause is removed.
        simulation.cluster.crash(victim, seed).await;
        simulation.note_disk(victim);
        simulation.open(victim).await;
        assert_eq!(simulation.cluster.assert_equal("counters").await.len(), 1);
    });
}

#[test]
fn a_node_whose_log_fails_stops_and_the_others_serve() {
    for seed in 1..=4 {
        let failing = |_: &SimulatedDisk| Faults { failed_syncs: 5, ..Faults::default() };
        serve_beside_a_failing_disk(seed, seed % 2 == 0, failing);
    }
}

#[test]
fn a_node_whose_disk_is_full_stops_and_the_others_serve() {
    for seed in 1..=4 {
        let full = |disk: &SimulatedDisk| {
            let bytes: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
            Faults { capacity: bytes / 512 + 8, ..Faults::default() }
        };
        serve_beside_a_failing_disk(seed, seed % 2 == 0, full);
    }
}
