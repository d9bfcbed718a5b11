//! Clients that repeat one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use braid_cluster::{Cluster, Consistency};
use braiddb::{Database, Table, Transaction};

use crate::counting::Counting;
use crate::histogram::Histogram;
use crate::order::{Kind, Load, Measured, Reads};
use crate::usage::Usage;

/// Greatest age of stale reads.
const STALE: Duration = Duration::from_millis(100);

/// Database or node on which clients run.
#[derive(Clone)]
pub enum Place {
    Alone(Database, Table<u64, u64>),
    Node(Cluster, Arc<Counting>),
}

impl Place {
    pub fn cluster(&self) -> Result<&Cluster> {
        match self {
            Self::Alone(..) => anyhow::bail!("the process has no node"),
            Self::Node(cluster, _) => Ok(cluster),
        }
    }

    /// Returns the table of the loads.
    pub async fn table(&self) -> Result<Table<u64, u64>> {
        Ok(match self {
            Self::Alone(_, table) => table.clone(),
            Self::Node(cluster, _) => cluster.open_or_create_table("values").await?,
        })
    }

    /// Commits a transaction durably. Returns the number of attempts.
    pub async fn run<F>(&self, body: F) -> Result<u32>
    where
        F: AsyncFn(&Transaction) -> braiddb::Result<()> + Clone + Send + Sync + 'static,
    {
        Ok(match self {
            Self::Alone(db, _) => db.transaction().run(body).await?.attempts,
            Self::Node(cluster, _) => cluster.run(body).await?.attempts,
        })
    }

    fn usage(&self) -> Usage {
        match self {
            Self::Alone(..) => Usage::of_process(),
            Self::Node(_, transport) => transport.usage(),
        }
    }
}

/// Distribution of keys.
enum Keys {
    Uniform(u64),
    /// Sums of the weights of the keys up to each.
    Zipf(Vec<f64>),
}

impl Keys {
    fn new(records: u64, theta: f64) -> Self {
        if theta == 0.0 {
            return Self::Uniform(records);
        }
        let mut sum = 0.0;
        Self::Zipf(
            (1..=records)
                .map(|rank| {
                    sum += (rank as f64).powf(-theta);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self) -> u64 {
        match self {
            Self::Uniform(records) => fastrand::u64(..records),
            Self::Zipf(sums) => {
                let drawn = fastrand::f64() * sums.last().expect("a table has records");
                sums.partition_point(|sum| *sum <= drawn).min(sums.len() - 1) as u64
            }
        }
    }
}

/// A transaction that clients repeat.
#[derive(Clone)]
enum Repeated {
    Add(Arc<Keys>),
    Read(u64, Consistency),
}

impl Repeated {
    async fn new(place: &Place, load: &Load, table: &Table<u64, u64>) -> Result<Self> {
        let consistency = match load.transaction {
            Kind::Add { theta } => return Ok(Self::Add(Arc::new(Keys::new(load.records, theta)))),
            Kind::Read(Reads::Linearizable) => Consistency::Linearizable,
            Kind::Read(Reads::Stale) => Consistency::Stale { max: STALE },
            Kind::Read(Reads::Session) => {
                let table = table.clone();
                let put = async move |tx: &Transaction| tx.put(&table, &0, &0).await;
                Consistency::Session(place.cluster()?.run(put).await?.token)
            }
        };
        Ok(Self::Read(load.records, consistency))
    }

    /// Runs the transaction once. Returns the number of attempts.
    async fn run(&self, place: &Place, table: Table<u64, u64>) -> Result<u32> {
        match self {
            Self::Add(keys) => {
                let key = keys.draw();
                let add = async move |tx: &Transaction| {
                    let value = tx.get(&table, &key).await?.unwrap_or(0);
                    tx.put(&table, &key, &(value + 1)).await
                };
                place.run(add).await
            }
            Self::Read(records, consistency) => {
                let key = fastrand::u64(..records);
                let get = async move |tx: &Transaction| tx.get(&table, &key).await;
                let value = place.cluster()?.read(*consistency, get).await?;
                value.context("a record is missing").map(|_| 1)
            }
        }
    }
}

/// Counts of one client.
#[derive(Default)]
struct Client {
    times: Vec<u32>,
    attempts: u64,
    failed: u64,
}

/// Runs a load on this node.
pub async fn run(place: &Place, load: Load) -> Result<Measured> {
    let table = place.table().await?;
    let repeated = Repeated::new(place, &load, &table).await?;
    let begin = Instant::now() + Duration::from_secs_f64(load.warm_up);
    let end = begin + Duration::from_secs_f64(load.seconds);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..load.clients {
        let (place, repeated, table) = (place.clone(), repeated.clone(), table.clone());
        clients.spawn(async move {
            let mut client = Client::default();
            loop {
                let called = Instant::now();
                let result = repeated.run(&place, table.clone()).await;
                let ended = Instant::now();
                if ended >= end {
                    return client;
                }
                if ended < begin {
                    continue;
                }
                match result {
                    Ok(attempts) => {
                        client.attempts += u64::from(attempts);
                        let time = ended.duration_since(called).as_micros();
                        client.times.push(u32::try_from(time).unwrap_or(u32::MAX));
                    }
                    Err(_) => client.failed += 1,
                }
            }
        });
    }
    tokio::time::sleep_until(begin.into()).await;
    let (before, begun) = (place.usage(), Instant::now());
    tokio::time::sleep_until(end.into()).await;
    let (usage, seconds) = (place.usage().since(&before), begun.elapsed().as_secs_f64());
    let (mut times, mut attempts, mut failed) = (Histogram::default(), 0, 0);
    for client in clients.join_all().await {
        client.times.into_iter().for_each(|time| times.add(time));
        attempts += client.attempts;
        failed += client.failed;
    }
    Ok(Measured { attempts, failed, times, usage, seconds })
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn skewed_keys_follow_zipf() {
        let keys = Keys::new(100, 1.0);
        let (mut counts, draws) = ([0u32; 100], 100_000);
        (0..draws).for_each(|_| counts[keys.draw() as usize] += 1);
        // The sum of 1/i up to 100 is 5.19.
        let part = f64::from(counts[0]) / f64::from(draws);
        assert!((0.17..0.22).contains(&part), "{part}");
        assert!(counts[0] > counts[9] && counts[9] > counts[99]);
        let uniform = Keys::new(3, 0.0);
        assert!((0..1000).all(|_| uniform.draw() < 3));
    }
}
