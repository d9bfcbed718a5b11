//! An HTTP service that runs on several machines. Every instance answers every request.
//!
//! ```console
//! cargo run --release --example service -- 1 /tmp/one 127.0.0.1:7401 127.0.0.1:8081
//! cargo run --release --example service -- 2 /tmp/two 127.0.0.1:7402 127.0.0.1:8082
//! cargo run --release --example service -- 3 /tmp/three 127.0.0.1:7403 127.0.0.1:8083
//! curl 127.0.0.1:8081/init -d '1=127.0.0.1:7401 2=127.0.0.1:7402 3=127.0.0.1:7403'
//! curl -X PUT 127.0.0.1:8082/accounts/7 -d 100
//! curl 127.0.0.1:8083/accounts/7
//! ```

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use braid_cluster::{Cluster, ClusterOptions, Consistency, Error, GrpcTransport, Security};
use braiddb::{Database, Options, Table, Transaction};

/// An error as an answer: whether the client may send the request again.
struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0 {
            Error::NoQuorum(_) | Error::Overloaded(_) | Error::NotMember(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Error::CommitUnknown { .. } => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{}\n", self.0)).into_response()
    }
}

async fn accounts(cluster: &Cluster) -> Result<Table<u64, u64>, Error> {
    cluster.open_or_create_table("accounts").await
}

async fn put_account(
    State(cluster): State<Cluster>,
    Path(account): Path<u64>,
    balance: String,
) -> Result<Response, Failure> {
    let Ok(balance) = balance.trim().parse::<u64>() else {
        return Ok((StatusCode::BAD_REQUEST, "the balance is no number\n").into_response());
    };
    let accounts = accounts(&cluster).await?;
    let put = async move |tx: &Transaction| tx.put(&accounts, &account, &balance).await;
    cluster.run(put).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn get_account(
    State(cluster): State<Cluster>,
    Path(account): Path<u64>,
) -> Result<Response, Failure> {
    let accounts = accounts(&cluster).await?;
    let get = async move |tx: &Transaction| tx.get(&accounts, &account).await;
    match cluster.read(Consistency::Linearizable, get).await? {
        Some(balance) => Ok(format!("{balance}\n").into_response()),
        None => Ok(StatusCode::NOT_FOUND.into_response()),
    }
}

/// Makes the nodes of the body, `1=ADDRESS 2=ADDRESS …`, a cluster.
async fn init(State(cluster): State<Cluster>, members: String) -> Result<Response, Failure> {
    let member = |text: &str| {
        let (node, address) = text.split_once('=')?;
        Some((node.parse().ok()?, address.to_owned()))
    };
    let Some(members) = members.split_whitespace().map(member).collect() else {
        return Ok((StatusCode::BAD_REQUEST, "members are NODE=ADDRESS\n").into_response());
    };
    cluster.init(members).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn add_node(
    State(cluster): State<Cluster>,
    Path(node): Path<u64>,
    address: String,
) -> Result<StatusCode, Failure> {
    cluster.add_node(node, address.trim()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_node(
    State(cluster): State<Cluster>,
    Path(node): Path<u64>,
) -> Result<StatusCode, Failure> {
    cluster.remove_node(node).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn status(State(cluster): State<Cluster>) -> String {
    format!("{:#?}\n", cluster.status())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [node, directory, address, http] = &arguments[..] else {
        return Err("usage: service NODE DIRECTORY ADDRESS HTTP_ADDRESS".into());
    };
    let db = Database::open(directory, Options::default())?;
    // On several machines: `Security::Tls` with certificates.
    let transport = Arc::new(GrpcTransport::bind(address.parse()?, Security::PlainLoopback)?);
    let options = ClusterOptions::new("accounts", node.parse()?);
    let cluster = Cluster::start(db.clone(), options, transport).await?;
    let routes = Router::new()
        .route("/accounts/{account}", get(get_account).put(put_account))
        .route("/init", post(init))
        .route("/nodes/{node}", post(add_node).delete(remove_node))
        .route("/status", get(status))
        .with_state(cluster.clone());
    let listener = tokio::net::TcpListener::bind(http).await?;
    let stop = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    cluster.shutdown().await;
    db.close()?;
    Ok(())
}
