//! Metrics of a node for Prometheus, over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use braid_cluster::Cluster;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::MetricKindMask;
use tokio::net::TcpListener;

/// A figure that is not measured for this long is no longer served.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Serves `/metrics` at an address, and returns the address.
pub async fn serve(address: SocketAddr, cluster: Cluster) -> Result<SocketAddr> {
    // Figures of members that were removed.
    let builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::GAUGE, Some(FORGOTTEN));
    let recorder = builder.install_recorder()?;
    let render = async move || {
        cluster.record_metrics();
        cluster.database().record_metrics("node");
        recorder.render()
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot serve metrics on {address}"))?;
    let address = listener.local_addr()?;
    // It ends with the process.
    tokio::spawn(async {
        axum::serve(listener, Router::new().route("/metrics", get(render))).await
    });
    Ok(address)
}
