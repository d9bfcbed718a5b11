//! `braid cluster`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use braid_cluster::{Client, ClientError, Cluster, GrpcTransport, Status, Transport};
use braiddb::{Database, Options};
use serde::Serialize;

use crate::arguments::{Action, Server, distinct};
use crate::{NOT_FOUND, security, status_table};

/// Address of a node on this machine.
const DEFAULT_NODE: &str = "127.0.0.1:7400";

/// Pause before a node is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends one request to a cluster.
pub async fn run(server: &Server, action: &Action, json: bool) -> Result<ExitCode> {
    let founder = match action {
        Action::Init { members } => members.iter().min().map(|(_, address)| address.as_str()),
        _ => None,
    };
    let address = server.node.as_deref().or(founder).unwrap_or(DEFAULT_NODE);
    let transport: Arc<dyn Transport> =
        Arc::new(GrpcTransport::client(security::read(&server.membership)?));
    let connect = |address: &str| {
        Client::new(transport.clone(), &server.membership.name, address, server.timeout)
    };
    let client = connect(address);
    match action {
        Action::Init { members } => {
            init(connect, address, distinct(members), server.timeout).await?;
        }
        Action::Add { number, address } => client.add(*number, address).await?,
        Action::Remove { number } => client.remove(*number).await?,
        Action::Transfer { number } => client.transfer(*number).await?,
        Action::Drop { table } => client.drop_table(table).await?,
        Action::Rename { from, to } => client.rename_table(from, to).await?,
        Action::Put { table, key, value } => client.put(table, key, value).await?,
        Action::Recover { dir, number, address } => {
            let db = Database::open(dir, Options::default().create(false))?;
            Cluster::recover(&db, &server.membership.name, *number, address).await?;
            db.close()?;
        }
        Action::Status => {
            let status = client.status().await?;
            if json {
                print(&serde_json::to_string(&status)?)?;
            } else {
                let leader = leader_status(&status, connect).await;
                print(&status_table::text(&status, leader.as_ref()))?;
            }
        }
        Action::Get { table, key, consistency } => {
            let Some(value) = client.get(table, key, *consistency).await? else {
                eprintln!("braid: table {table:?} has no key {key:?}");
                return Ok(ExitCode::from(NOT_FOUND));
            };
            print(&if json { record(key, &value)? } else { value })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes nodes a cluster, and waits until each knows its leader, so that it serves the next command.
/// The nodes may still start.
async fn init(
    connect: impl Fn(&str) -> Client,
    address: &str,
    members: BTreeMap<u64, String>,
    timeout: Duration,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while let Err(error) = connect(address).init(members.clone()).await {
        let may_start = matches!(error, ClientError::NoAnswer(_)) && Instant::now() < deadline;
        if !may_start {
            return Err(error.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    for (node, address) in &members {
        let is_member =
            async || connect(address).status().await.is_ok_and(|it| it.leader.is_some());
        while !is_member().await {
            if Instant::now() >= deadline {
                eprintln!(
                    "braid: the cluster is made; node {node} at {address} does not answer yet"
                );
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Asks the leader for its status, which has the positions of all nodes.
async fn leader_status(status: &Status, connect: impl Fn(&str) -> Client) -> Option<Status> {
    let leader = status.leader.filter(|leader| *leader != status.node)?;
    // It may be down; the table then shows what the called node knows.
    let leader: Result<Status, ClientError> = connect(status.voters.get(&leader)?).status().await;
    leader.ok()
}

fn record(key: &str, value: &str) -> Result<String> {
    #[derive(Serialize)]
    struct Record<'r> {
        key: &'r str,
        value: &'r str,
    }
    Ok(serde_json::to_string(&Record { key, value })?)
}

fn print(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("the result cannot be printed")
}
