//! `braid node`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use braid_cluster::{Cluster, ClusterOptions, GrpcTransport};
use braiddb::{Database, Options};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::NodeOptions;
use crate::{metrics, security};

/// Runs a node until a signal arrives or the node fails.
pub async fn run(options: &NodeOptions) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let transport = GrpcTransport::bind(options.listen, security::read(&options.membership)?)?;
    let address = transport.address().context("the transport does not listen")?;
    let mut database = Options::default();
    if let Some(mib) = options.memory {
        database = database.memory_budget(mib << 20);
    }
    if let Some(workers) = options.workers {
        database = database.workers(workers);
    }
    let db = Database::open(&options.dir, database)?;
    let cluster = ClusterOptions::new(&options.membership.name, options.id)
        .heartbeat(Duration::from_millis(options.heartbeat))
        .kept_entries(options.kept_entries);
    let cluster = Cluster::start(db.clone(), cluster, Arc::new(transport)).await?;
    if let Some(address) = options.metrics {
        let address = metrics::serve(address, cluster.clone()).await?;
        print(&format!("node {} serves metrics on {address}", options.id));
    }
    print(&format!("node {} answers on {address}", options.id));
    let failure = tokio::select! {
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        failure = cluster.failure() => Some(failure),
    };
    cluster.shutdown().await;
    if let Some(failure) = failure {
        bail!("the node has stopped: {failure}");
    }
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

fn print(line: &str) {
    // Nothing can be done if standard output is closed.
    _ = writeln!(std::io::stdout(), "{line}");
}
