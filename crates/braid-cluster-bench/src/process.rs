//! Process of a node: executes the orders of the measuring process.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use braid_cluster::{Cluster, ClusterOptions, GrpcTransport, Security};
use braiddb::{Database, Options, Table, Transaction};

use crate::counting::Counting;
use crate::load::{self, Place};
use crate::order::{Order, Reply, Setting};

/// First argument of the process of a node.
pub const CHILD: &str = "node-process";

/// Records of one transaction that fills a table.
const FILL: u64 = 500;
const LARGE_BYTES: usize = 4096;
/// Records of one transaction that writes large records, and such transactions at the same time.
const LARGE_RECORDS: u64 = 16;
const WRITERS: u64 = 8;

/// Runs a node until the measuring process ends.
pub fn serve() -> Result<()> {
    let mut lines = std::io::stdin().lines();
    let setting: Setting = serde_json::from_str(&lines.next().context("no setting")??)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let place = runtime.block_on(open(&setting))?;
    answer(&Reply::Done)?;
    for line in lines {
        let order: Order = serde_json::from_str(&line?)?;
        answer(&runtime.block_on(execute(&place, order))?)?;
    }
    Ok(())
}

fn answer(reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&line)?;
    Ok(output.flush()?)
}

async fn open(setting: &Setting) -> Result<Place> {
    let db = Database::open(&setting.directory, Options::default().workers(1).socket(false))?;
    let Some(node) = setting.node else {
        let table = db.open_or_create_table("values").await?;
        return Ok(Place::Alone(db, table));
    };
    let grpc = GrpcTransport::bind(setting.address.parse()?, Security::PlainLoopback)?;
    let transport = Arc::new(Counting::new(grpc));
    let options = ClusterOptions::new("bench", node)
        .heartbeat(Duration::from_millis(setting.heartbeat_ms))
        .kept_entries(setting.kept_entries)
        .timeout(Duration::from_secs(60));
    let cluster = Cluster::start(db, options, transport.clone()).await?;
    Ok(Place::Node(cluster, transport))
}

async fn execute(place: &Place, order: Order) -> Result<Reply> {
    match order {
        Order::Init(members) => place.cluster()?.init(members).await?,
        Order::Fill(records) => fill(place, records).await?,
        Order::Write { megabytes } => write(place.cluster()?, megabytes).await?,
        Order::Run(load) => return Ok(Reply::Measured(Box::new(load::run(place, load).await?))),
        Order::Commit => commit(place.cluster()?).await?,
        Order::Status => return Ok(Reply::Status(Box::new(place.cluster()?.status()))),
        Order::Await(index) => {
            while place.cluster()?.status().applied_index < index {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
    Ok(Reply::Done)
}

async fn fill(place: &Place, records: u64) -> Result<()> {
    let table = place.table().await?;
    for first in (0..records).step_by(FILL as usize) {
        let (table, last) = (table.clone(), (first + FILL).min(records));
        place
            .run(async move |tx: &Transaction| {
                for key in first..last {
                    tx.put(&table, &key, &0).await?;
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}

async fn write(cluster: &Cluster, megabytes: u64) -> Result<()> {
    let table: Table<u64, [u8]> = cluster.open_or_create_table("large").await?;
    let transactions = (megabytes << 20) / (LARGE_RECORDS * LARGE_BYTES as u64);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (cluster, table) = (cluster.clone(), table.clone());
        writers.spawn(async move {
            for transaction in (writer..transactions).step_by(WRITERS as usize) {
                let table = table.clone();
                let put = async move |tx: &Transaction| {
                    let value = vec![transaction as u8; LARGE_BYTES];
                    for number in 0..LARGE_RECORDS {
                        tx.put(&table, &(transaction * LARGE_RECORDS + number), &value).await?;
                    }
                    Ok(())
                };
                cluster.run(put).await?;
            }
            Ok::<_, braid_cluster::Error>(())
        });
    }
    writers.join_all().await.into_iter().collect::<Result<(), _>>().map_err(|error| anyhow!(error))
}

async fn commit(cluster: &Cluster) -> Result<()> {
    let table: Table<u64, u64> = cluster.database().open_table("values").await?;
    loop {
        let table = table.clone();
        let put = async move |tx: &Transaction| tx.put(&table, &0, &1).await;
        match cluster.run(put).await {
            Ok(_) => return Ok(()),
            Err(error @ braid_cluster::Error::Stopped(_)) => return Err(error.into()),
            Err(_) => {}
        }
    }
}
