//! Clients that append to lists and move money, and note what they saw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_cluster::{Cluster, Consistency, Error, NodeId};
use braiddb::{Postcard, Table, Transaction};

use super::history::{End, Record};

const LISTS: u64 = 6;
const ACCOUNTS: u64 = 4;
/// Money of all accounts.
pub const MONEY: u64 = 400;

type Lists = Table<u64, Postcard<Vec<u64>>>;

/// State of all clients.
#[derive(Default)]
pub struct Clients {
    /// Nodes that are running.
    pub nodes: Mutex<BTreeMap<NodeId, Cluster>>,
    clock: AtomicU64,
    pub history: Mutex<Vec<Record>>,
    pub committed: AtomicU64,
}

impl Clients {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates the tables and the money.
    pub async fn prepare(node: &Cluster) {
        let _: Lists = node.open_or_create_table("lists").await.unwrap();
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
            let node = {
                let nodes = self.nodes.lock().unwrap();
                let at = random.usize(..nodes.len());
                nodes.values().nth(at).unwrap().with_timeout(Duration::from_secs(3))
            };
            let is_committed = match random.u8(..5) {
                0 => self.transfer(&node, &mut random).await,
                1 => self.sum(&node, random.bool()).await,
                _ => {
                    unique += 1;
                    self.append(&node, &mut random, unique).await
                }
            };
            if is_committed {
                done += 1;
                self.committed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads some lists, and appends to some of them.
    async fn append(&self, node: &Cluster, random: &mut fastrand::Rng, unique: u64) -> bool {
        let mut keys: Vec<u64> = (0..LISTS).collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..4));
        let appends: Vec<(u64, u64)> =
            keys.iter().filter(|_| random.u8(..3) > 0).map(|&key| (key, unique)).collect();
        let (begin, writes) = (self.tick(), appends.clone());
        let result = async {
            let lists: Lists = node.database().open_table("lists").await?;
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
            node.run(body).await
        };
        let result = result.await;
        let end = match &result {
            Ok(_) => End::Committed,
            Err(Error::CommitUnknown { .. }) => End::Unknown,
            Err(_) => End::Failed,
        };
        let reads = result.map_or(Vec::new(), |outcome| outcome.value);
        let record = Record { begin, ended: self.tick(), end, reads, appends };
        self.history.lock().unwrap().push(record);
        end == End::Committed
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
