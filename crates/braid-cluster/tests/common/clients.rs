//! Clients that append to lists, count and move money, and note what they saw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_cluster::{Cluster, Consistency, Error, NodeId, Token};
use braiddb::{Postcard, Table, Transaction};

use super::TestCluster;
use super::history::{self, Added, End, Record};

const LISTS: u64 = 6;
const ACCOUNTS: u64 = 4;
const COUNTERS: u64 = 2;
/// Money of all accounts.
pub const MONEY: u64 = 400;

type Lists = Table<u64, Postcard<Vec<u64>>>;

/// State of all clients.
#[derive(Default)]
pub struct Clients {
    /// Nodes that are running.
    pub nodes: Mutex<BTreeMap<NodeId, Cluster>>,
    /// How often each node crashed. Its results after that reach no client.
    crashes: Mutex<BTreeMap<NodeId, u64>>,
    /// Longest pause of a client after a transaction.
    pub pause: Duration,
    clock: AtomicU64,
    pub history: Mutex<Vec<Record>>,
    counts: Mutex<Vec<Added>>,
    pub committed: AtomicU64,
}

/// A node that a client chose.
struct Chosen {
    id: NodeId,
    cluster: Cluster,
    crashes: u64,
}

impl Clients {
    /// Withdraws a node that is about to crash from the clients.
    pub fn crash(&self, node: NodeId) {
        self.nodes.lock().unwrap().remove(&node);
        *self.crashes.lock().unwrap().entry(node).or_default() += 1;
    }

    fn crashes(&self, node: NodeId) -> u64 {
        self.crashes.lock().unwrap().get(&node).copied().unwrap_or(0)
    }

    fn has_crashed(&self, node: &Chosen) -> bool {
        self.crashes(node.id) != node.crashes
    }

    /// Returns any running node.
    fn choose(&self, random: &mut fastrand::Rng) -> Option<Chosen> {
        let nodes = self.nodes.lock().unwrap();
        let (&id, cluster) = nodes.iter().nth(random.usize(..nodes.len().max(1)))?;
        let cluster = cluster.with_timeout(Duration::from_secs(3));
        Some(Chosen { id, cluster, crashes: self.crashes(id) })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates the tables and the money.
    pub async fn prepare(node: &Cluster) {
        let _: Lists = node.open_or_create_table("lists").await.unwrap();
        let _: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        let accounts: Table<u64, u64> = node.open_or_create_table("accounts").await.unwrap();
        let fill = async move |tx: &Transaction| {
            for account in 0..ACCOUNTS {
                tx.put(&accounts, &account, &(MONEY / ACCOUNTS)).await?;
            }
            Ok(())
        };
        node.run(fill).await.unwrap();
    }

    /// Runs transactions of one client until this many have committed.
    pub async fn run(self: Arc<Self>, client: u64, seed: u64, transactions: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut done, mut unique) = (0, client << 32);
        while done < transactions {
            let Some(node) = self.choose(&mut random) else {
                // All nodes are down.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let is_committed = match random.u8(..8) {
                0 => self.transfer(&node.cluster, &mut random).await,
                1 => self.sum(&node.cluster, random.bool()).await,
                2 => self.count(&node, random.u64(..COUNTERS)).await,
                3 => self.look(&node, random.u64(..LISTS)).await,
                _ => {
                    unique += 1;
                    self.append(&node, &mut random, unique).await
                }
            };
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause.mul_f64(random.f64())).await;
            }
            if is_committed {
                done += 1;
                self.committed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads some lists, and appends to some of them.
    async fn append(&self, node: &Chosen, random: &mut fastrand::Rng, unique: u64) -> bool {
        let mut keys: Vec<u64> = (0..LISTS).collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..4));
        let appends: Vec<(u64, u64)> =
            keys.iter().filter(|_| random.u8(..3) > 0).map(|&key| (key, unique)).collect();
        let (begin, writes) = (self.tick(), appends.clone());
        let result = async {
            let lists: Lists = node.cluster.database().open_table("lists").await?;
            let body = async move |tx: &Transaction| {
                let mut seen = Vec::new();
                for &key in &keys {
                    let list = tx.get(&lists, &key).await?.unwrap_or_default();
                    if let Some((_, value)) = writes.iter().find(|(of, _)| *of == key) {
                        let mut longer = list.clone();
                        longer.push(*value);
                        tx.put(&lists, &key, &longer).await?;
                    }
                    seen.push((key, list));
                }
                Ok(seen)
            };
            node.cluster.run(body).await
        };
        let result = result.await;
        let end = self.end(node, &result);
        let written =
            result.as_ref().ok().and_then(|outcome| Some((outcome.token, appends.first()?.0)));
        let reads = match result {
            Ok(outcome) if end == End::Committed => outcome.value,
            _ => Vec::new(),
        };
        let record = Record { begin, ended: self.tick(), end, reads, appends };
        self.history.lock().unwrap().push(record);
        if let (End::Committed, Some((token, key))) = (end, written) {
            self.read_own_write(random, token, key, unique).await;
        }
        end == End::Committed
    }

    /// Returns what a client knows of a transaction that wrote.
    fn end<T>(&self, node: &Chosen, result: &Result<T, Error>) -> End {
        match result {
            _ if self.has_crashed(node) => End::Unknown,
            Ok(_) => End::Committed,
            Err(Error::CommitUnknown { .. }) => End::Unknown,
            Err(_) => End::Failed,
        }
    }

    /// Checks that any node shows a value to the session that wrote it.
    async fn read_own_write(&self, random: &mut fastrand::Rng, token: Token, key: u64, value: u64) {
        let Some(node) = self.choose(random) else { return };
        let result = async {
            let lists: Lists = node.cluster.database().open_table("lists").await?;
            let body = async move |tx: &Transaction| tx.get(&lists, &key).await;
            node.cluster.read(Consistency::Session(token), body).await
        };
        if let Ok(list) = result.await {
            assert!(list.unwrap_or_default().contains(&value), "a session misses its write");
        }
    }

    /// Reads a list, without a transaction.
    async fn look(&self, node: &Chosen, key: u64) -> bool {
        let begin = self.tick();
        let result = async {
            let lists: Lists = node.cluster.database().open_table("lists").await?;
            let body = async move |tx: &Transaction| tx.get(&lists, &key).await;
            node.cluster.read(Consistency::Linearizable, body).await
        };
        let Ok(list) = result.await else { return false };
        if self.has_crashed(node) {
            return false;
        }
        let (reads, appends) = (vec![(key, list.unwrap_or_default())], Vec::new());
        let record = Record { begin, ended: self.tick(), end: End::Committed, reads, appends };
        self.history.lock().unwrap().push(record);
        true
    }

    /// Adds one to a register.
    async fn count(&self, node: &Chosen, key: u64) -> bool {
        let begin = self.tick();
        let result = async {
            let counters: Table<u64, u64> = node.cluster.database().open_table("counters").await?;
            super::add(&node.cluster, &counters, key, 1).await
        };
        let result = result.await;
        let end = self.end(node, &result);
        if end != End::Failed {
            let value = result.ok().filter(|_| end == End::Committed);
            let added = Added { key, begin, ended: self.tick(), value };
            self.counts.lock().unwrap().push(added);
        }
        end == End::Committed
    }

    /// Checks what the clients saw against the final contents, which must be equal on all nodes.
    /// Returns the number of records of lists, and of those whose result is unknown.
    pub async fn check(&self, cluster: &TestCluster) -> (usize, usize) {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        let lists = cluster.assert_equal("lists").await;
        cluster.assert_equal("accounts").await;
        cluster.assert_equal("raft.window").await;
        let lists = lists.iter().map(|(key, list)| {
            (number(key), <Postcard<Vec<u64>> as braiddb::Value>::decode(list).unwrap())
        });
        let history = self.history.lock().unwrap().clone();
        history::check(&history, &lists.collect()).unwrap();
        let unknown = history.iter().filter(|record| record.end == End::Unknown).count();
        let counters = cluster.assert_equal("counters").await;
        let counters = counters
            .iter()
            .map(|(key, value)| (number(key), <u64 as braiddb::Value>::decode(value).unwrap()));
        history::check_counts(&self.counts.lock().unwrap(), &counters.collect()).unwrap();
        (history.len(), unknown)
    }

    async fn transfer(&self, node: &Cluster, random: &mut fastrand::Rng) -> bool {
        let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
        let sum = random.u64(..30);
        let result = async {
            let accounts: Table<u64, u64> = node.database().open_table("accounts").await?;
            let body = async move |tx: &Transaction| {
                let payer = tx.get(&accounts, &from).await?.unwrap_or(0);
                if payer < sum || from == to {
                    return Ok(());
                }
                let payee = tx.get(&accounts, &to).await?.unwrap_or(0);
                tx.put(&accounts, &from, &(payer - sum)).await?;
                tx.put(&accounts, &to, &(payee + sum)).await
            };
            node.run(body).await
        };
        result.await.is_ok()
    }

    /// Checks that the accounts have all the money.
    async fn sum(&self, node: &Cluster, is_read: bool) -> bool {
        let result = async {
            let accounts: Table<u64, u64> = node.database().open_table("accounts").await?;
            let body = async move |tx: &Transaction| {
                let (mut scan, mut sum) = (tx.scan(&accounts, ..)?, 0);
                while let Some((_, money)) = scan.next().await? {
                    sum += money;
                }
                Ok(sum)
            };
            match is_read {
                true => node.read(Consistency::Linearizable, body).await,
                false => node.run(body).await.map(|outcome| outcome.value),
            }
        };
        match result.await {
            Ok(sum) => assert_eq!(sum, MONEY),
            Err(_) => return false,
        }
        true
    }
}
