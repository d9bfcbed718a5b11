//! Metrics of a node for Prometheus, over HTTP.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use braid_cluster::Cluster;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

/// Serves `/metrics` at an address, and returns the address.
pub async fn serve(address: SocketAddr, cluster: Cluster) -> Result<SocketAddr> {
    let recorder = PrometheusBuilder::new().install_recorder()?;
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
