//! Measures transactions of one process with one or three nodes.
//!
//! `cargo run --release --example cost -- DIRECTORY [memory|grpc] [CLIENTS] [SECONDS]`

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_cluster::{Cluster, ClusterOptions, GrpcTransport, MemoryNetwork, Security, Transport};
use braiddb::{Database, Options, Table, Transaction};

const KEYS: u64 = 100_000;

/// Totals of all clients of a run.
#[derive(Default)]
struct Totals {
    attempts: AtomicU64,
    failed: AtomicU64,
}

/// Where a client runs its transactions.
#[derive(Clone)]
enum Place {
    Alone(Database, Table<u64, u64>),
    Clustered(Cluster, Table<u64, u64>),
}

impl Place {
    /// Adds to a value, durably. Returns the number of attempts.
    async fn add(&self, key: u64) -> Option<u32> {
        let (Self::Alone(_, table) | Self::Clustered(_, table)) = self;
        let table = table.clone();
        let add = async move |tx: &Transaction| {
            let value = tx.get(&table, &key).await?.unwrap_or(0);
            tx.put(&table, &key, &(value + 1)).await
        };
        match self {
            Self::Alone(db, _) => Some(db.transaction().run(add).await.ok()?.attempts),
            Self::Clustered(cluster, _) => Some(cluster.run(add).await.ok()?.attempts),
        }
    }
}

/// Runs transactions, and returns the microseconds that each took.
async fn client(place: Place, totals: Arc<Totals>, is_over: Arc<AtomicBool>) -> Vec<u32> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match place.add(fastrand::u64(..KEYS)).await {
            Some(attempts) => {
                totals.attempts.fetch_add(attempts.into(), Ordering::Relaxed);
                times.push(begun.elapsed().as_micros() as u32);
            }
            None => _ = totals.failed.fetch_add(1, Ordering::Relaxed),
        }
    }
    times
}

async fn measure(name: &str, clients: u64, seconds: u64, places: &[Place]) {
    let (totals, is_over) = (Arc::new(Totals::default()), Arc::new(AtomicBool::new(false)));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..clients {
        let place = places[number as usize % places.len()].clone();
        running.spawn(client(place, totals.clone(), is_over.clone()));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut times: Vec<u32> = running.join_all().await.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |part: usize| f64::from(times[times.len() * part / 1000]) / 1000.0;
    let committed = times.len() as f64;
    println!(
        "{name:24} {clients:5} clients {:8.0} tx/s, p50 {:7.2} ms, p99 {:7.2} ms, {:.3} attempts, {} failed",
        committed / seconds as f64,
        at(500),
        at(990),
        totals.attempts.load(Ordering::Relaxed) as f64 / committed,
        totals.failed.load(Ordering::Relaxed),
    );
}

async fn start(directory: &Path, nodes: u64, is_grpc: bool) -> (Vec<Cluster>, MemoryNetwork) {
    let (network, mut running, mut members) =
        (MemoryNetwork::with_seed(1), Vec::new(), BTreeMap::new());
    for node in 1..=nodes {
        let path = directory.join(format!("{nodes}-{is_grpc}-{node}"));
        let db = Database::open(path, Options::default().workers(1).socket(false)).unwrap();
        let transport: Arc<dyn Transport> = if is_grpc {
            let any = "127.0.0.1:0".parse().unwrap();
            let transport = GrpcTransport::bind(any, Security::PlainLoopback).unwrap();
            members.insert(node, transport.address().unwrap().to_string());
            Arc::new(transport)
        } else {
            members.insert(node, format!("node-{node}"));
            network.transport(format!("node-{node}"))
        };
        let options = ClusterOptions::new("cost", node);
        running.push(Cluster::start(db, options, transport).await.unwrap());
    }
    running[0].init(members).await.unwrap();
    (running, network)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = tempfile::tempdir_in(&arguments[0]).unwrap();
    let is_grpc = arguments.get(1).is_some_and(|transport| transport == "grpc");
    let number =
        |at: usize, default| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (clients, seconds) = (number(2, 256), number(3, 5));
    let options = Options::default().workers(1).socket(false);
    let db = Database::open(directory.path().join("alone"), options).unwrap();
    let table: Table<u64, u64> = db.create_table("values").await.unwrap();
    measure("one database, no cluster", clients, seconds, &[Place::Alone(db, table)]).await;
    for nodes in [1, 3] {
        let (running, network) = start(directory.path(), nodes, is_grpc).await;
        let mut places = Vec::new();
        for cluster in &running {
            let table = cluster.open_or_create_table("values").await.unwrap();
            places.push(Place::Clustered(cluster.clone(), table));
        }
        let (entries, sent) = (running[0].status().last_log_index, network.sent());
        let name = format!("{nodes} nodes, {}", if is_grpc { "gRPC" } else { "memory" });
        measure(&name, clients, seconds, &places).await;
        let now = network.sent();
        println!(
            "    {} entries, {} messages, {} bytes sent",
            running[0].status().last_log_index - entries,
            now.0 - sent.0,
            now.1 - sent.1
        );
        for cluster in &running {
            cluster.shutdown().await;
        }
    }
}
