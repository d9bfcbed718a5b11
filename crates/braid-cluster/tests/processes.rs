//! Three processes that are killed, paused and restarted while they write.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_cluster::{Cluster, ClusterOptions, Consistency, GrpcTransport, Security};
use braiddb::{Database, Index, IndexOptions, Options, Table, Transaction};
use common::LIMIT;
use common::process::{Process, commands, say};

const TASKS: u64 = 8;

/// Attaches an index of the counts, which are unique.
async fn attach(cluster: &Cluster) -> Index<u64, u64, u64> {
    let rows: Table<u64, u64> = cluster.open_or_create_table("rows").await.unwrap();
    let unique = IndexOptions::default().unique(true);
    cluster.index(&rows, "by_count", unique, |count, keys| keys.push(&count)).await.unwrap()
}

/// Loads tables for ever, and drops them.
async fn load_forever(cluster: Cluster, run: u64) {
    for number in 0.. {
        let name = format!("loaded {run} {number}");
        let load = async {
            let mut staged = cluster.stage_table::<u64, u64>(&name).await?;
            staged.load((0..6_000).map(|key| (key, key)), |_| {}).await?;
            staged.publish().await?;
            cluster.drop_table(&name).await
        };
        _ = load.await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Inserts unique keys for ever, and prints the acknowledged ones. Each transaction also counts
/// the keys, so a transaction that took effect twice would show.
async fn write_forever(cluster: Cluster, first: u64) {
    let rows: Table<u64, u64> = cluster.open_or_create_table("rows").await.unwrap();
    let counter: Table<u64, u64> = cluster.open_or_create_table("counter").await.unwrap();
    for key in first.. {
        let (rows, counter) = (rows.clone(), counter.clone());
        let insert = async move |tx: &Transaction| {
            let count = tx.get(&counter, &0).await?.unwrap_or(0);
            tx.insert(&rows, &key, &count).await?;
            tx.put(&counter, &0, &(count + 1)).await
        };
        if cluster.run(insert).await.is_ok() {
            say(&format!("acknowledged {key}"));
        }
    }
}

async fn dump(cluster: &Cluster) {
    let body = async move |tx: &Transaction| {
        let rows: Table<u64, u64> = tx.open_table("rows").await?;
        let counter: Table<u64, u64> = tx.open_table("counter").await?;
        let (mut keys, mut all) = (tx.keys(&rows, ..)?, Vec::new());
        while let Some(key) = keys.next().await? {
            all.push(key.to_string());
        }
        Ok((all, tx.get(&counter, &0).await?.unwrap_or(0)))
    };
    let (keys, count) = cluster.read(Consistency::Linearizable, body).await.unwrap();
    let by_count = attach(cluster).await;
    let body = async move |tx: &Transaction| {
        let staged: Table<str, [u8]> = tx.open_table("raft.staged").await?;
        let (mut entries, mut found) = (tx.entries_by(&by_count, ..)?, 0);
        while entries.next().await?.is_some() {
            found += 1;
        }
        Ok((found, tx.count(&staged, ..).await?))
    };
    let (entries, staged) = cluster.read(Consistency::Linearizable, body).await.unwrap();
    say(&format!("count {count}, {entries} entries, {staged} staged tables"));
    say(&format!("keys {}", keys.join(" ")));
}

/// A node, if the parent test started this program; otherwise nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is a part of the other test"]
async fn child() {
    let Ok(node) = std::env::var("BRAID_NODE") else { return };
    let node: u64 = node.parse().unwrap();
    let directory = PathBuf::from(std::env::var("BRAID_DIRECTORY").unwrap());
    let addresses = std::env::var("BRAID_ADDRESSES").unwrap();
    let addresses: Vec<&str> = addresses.split(' ').collect();
    let own: SocketAddr = addresses[node as usize - 1].parse().unwrap();
    let db = Database::open(directory, Options::default().workers(1).socket(false)).unwrap();
    let options = ClusterOptions::new("processes", node).timeout(Duration::from_secs(10));
    let transport = Arc::new(GrpcTransport::bind(own, Security::PlainLoopback).unwrap());
    let cluster = Cluster::start(db, options, transport).await.unwrap();
    say("ready");
    let mut commands = commands();
    let mut writers = tokio::task::JoinSet::new();
    while let Some(command) = commands.recv().await {
        match command.as_str() {
            "init" => {
                let members = (1..).zip(addresses.iter().map(|address| (*address).to_owned()));
                cluster.init(members.collect()).await.unwrap();
            }
            "write" => {
                let run = u64::from(fastrand::u32(..));
                attach(&cluster).await;
                writers.spawn(load_forever(cluster.clone(), run));
                for task in 0..TASKS {
                    let first = node << 56 | run << 24 | task << 20;
                    writers.spawn(write_forever(cluster.clone(), first));
                }
            }
            "stop" => {
                writers.shutdown().await;
                say("stopped");
            }
            _ => dump(&cluster).await,
        }
    }
}

struct Parent {
    directories: Vec<tempfile::TempDir>,
    addresses: Vec<String>,
    acknowledged: Arc<Mutex<BTreeSet<u64>>>,
}

impl Parent {
    fn new() -> Self {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let directories = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let addresses = listeners.iter().map(address).collect();
        Self { directories, addresses, acknowledged: Arc::default() }
    }

    fn start(&self, node: usize) -> Process {
        let acknowledged = self.acknowledged.clone();
        let note = move |line: &str| {
            let key = line.strip_prefix("acknowledged ").map(|key| key.parse().unwrap());
            key.is_some_and(|key| {
                acknowledged.lock().unwrap().insert(key);
                true
            })
        };
        let environment = [
            ("BRAID_NODE", node.to_string()),
            ("BRAID_DIRECTORY", self.directories[node - 1].path().display().to_string()),
            ("BRAID_ADDRESSES", self.addresses.join(" ")),
        ];
        Process::start(&environment, note)
    }

    /// Waits until this many more keys are acknowledged.
    fn wait_for_more(&self, more: usize) {
        let count = || self.acknowledged.lock().unwrap().len();
        let (wanted, begun) = (count() + more, std::time::Instant::now());
        while count() < wanted {
            assert!(begun.elapsed() < LIMIT, "the cluster does not continue");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn killed_and_paused_processes_lose_nothing() {
    let parent = Parent::new();
    let mut random = fastrand::Rng::with_seed(1);
    let mut processes: Vec<Process> = (1..=3).map(|node| parent.start(node)).collect();
    processes[0].command("init");
    processes.iter_mut().for_each(|process| process.command("write"));
    parent.wait_for_more(100);
    for round in 0..8 {
        let victim = random.usize(..3);
        match round % 4 {
            // The others continue without it, also if it led.
            0 | 2 => {
                processes.remove(victim).kill();
                parent.wait_for_more(50);
                processes.insert(victim, parent.start(victim + 1));
                processes[victim].command("write");
            }
            1 => {
                processes[victim].signal("-STOP");
                parent.wait_for_more(50);
                processes[victim].signal("-CONT");
            }
            _ => {
                processes.drain(..).for_each(Process::kill);
                processes = (1..=3).map(|node| parent.start(node)).collect();
                processes.iter_mut().for_each(|process| process.command("write"));
            }
        }
        parent.wait_for_more(50);
    }
    for process in &mut processes {
        process.command("stop");
        assert_eq!(process.answer(), "stopped");
    }
    // Transactions that were sent before their tasks ended may commit between two dumps, and staged
    // tables are discarded.
    let mut dumps: Vec<(String, String)> = Vec::new();
    for _ in 0..20 {
        dumps.clear();
        for process in &mut processes {
            process.command("dump");
            dumps.push((process.answer(), process.answer()));
        }
        if dumps.iter().all(|dump| *dump == dumps[0] && dump.0.ends_with(", 0 staged tables")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        println!("other counts: {:?}", dumps.iter().map(|dump| &dump.0).collect::<Vec<_>>());
    }
    processes.into_iter().for_each(Process::kill);
    assert!(dumps.iter().all(|dump| *dump == dumps[0]), "the nodes have different contents");
    let (count, keys) = &dumps[0];
    let keys = keys.strip_prefix("keys ").unwrap().split(' ');
    let keys: BTreeSet<u64> = keys.map(|key| key.parse().unwrap()).collect();
    let all = keys.len();
    let wanted = format!("count {all}, {all} entries, 0 staged tables");
    assert_eq!(*count, wanted, "a transaction took effect twice or half");
    let acknowledged = parent.acknowledged.lock().unwrap();
    let lost = acknowledged.difference(&keys).count();
    assert_eq!(lost, 0, "of {} acknowledged keys", acknowledged.len());
    println!("{} acknowledged, {} stored", acknowledged.len(), keys.len());
}
