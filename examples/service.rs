//! A bank service over HTTP, with axum: transfers, pages of results, transactions that span
//! requests, a streamed export, metrics for Prometheus, and a graceful shutdown.
//!
//!     cargo run -p braid-examples --example service -- /tmp/accounts 127.0.0.1:8080
//!     curl -X PUT  localhost:8080/accounts/1 -H 'content-type: application/json' -d '{"owner": "Ada", "cents": 500}'
//!     curl -X PUT  localhost:8080/accounts/2 -H 'content-type: application/json' -d '{"owner": "Ben", "cents": 0}'
//!     curl -X POST localhost:8080/transfers  -H 'content-type: application/json' -d '{"from": 1, "to": 2, "cents": 120}'
//!     curl 'localhost:8080/accounts?after=1&limit=10'
//!     curl localhost:8080/metrics

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use braiddb::{Database, InteractiveTransaction, Options, Postcard, Schema, Table};
use futures_util::{SinkExt, StreamExt};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

impl Schema for Account {
    const NAME: &'static str = "account";
}

/// The state that all requests share.
struct Bank {
    db: Database,
    accounts: Table<u64, Postcard<Account>>,
    /// Interactive transactions whose steps arrive in separate requests.
    sessions: Mutex<HashMap<u64, Arc<InteractiveTransaction>>>,
    next_session: AtomicU64,
    /// Collects the metrics of the program, including those of other crates that use `metrics`.
    figures: PrometheusHandle,
}

/// The reason why a request failed.
#[derive(Debug)]
enum Failure {
    NoAccount(u64),
    NoSession(u64),
    SessionBusy,
    Overdrawn { missing: u64 },
    Database(braiddb::Error),
}

impl From<braiddb::Error> for Failure {
    fn from(error: braiddb::Error) -> Self {
        Failure::Database(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        use braiddb::Error;
        let (status, text) = match self {
            Failure::NoAccount(id) => (StatusCode::NOT_FOUND, format!("there is no account {id}")),
            Failure::NoSession(id) => (StatusCode::NOT_FOUND, format!("there is no session {id}")),
            Failure::SessionBusy => {
                (StatusCode::CONFLICT, "another request uses the session".to_owned())
            }
            Failure::Overdrawn { missing } => {
                (StatusCode::UNPROCESSABLE_ENTITY, format!("{missing} cents are missing"))
            }
            // The service is overloaded: the client should try again.
            Failure::Database(error) if error.is_retryable() => {
                (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            Failure::Database(
                error @ (Error::TransactionExpired { .. } | Error::TransactionOver),
            ) => (StatusCode::GONE, error.to_string()),
            Failure::Database(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        (status, text).into_response()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Transfer {
    from: u64,
    to: u64,
    cents: u64,
}

/// Changes both accounts or none. After a conflict the database retries the transaction.
async fn transfer(
    State(bank): State<Arc<Bank>>,
    Json(Transfer { from, to, cents }): Json<Transfer>,
) -> Result<Json<Account>, Failure> {
    let payer = bank.db.try_run_on(&bank.accounts, async move |tx, accounts| {
        let mut payer = tx.get(accounts, &from).await?.ok_or(Failure::NoAccount(from))?;
        let missing = cents.saturating_sub(payer.cents);
        if missing > 0 {
            return Err(Failure::Overdrawn { missing });
        }
        payer.cents -= cents;
        tx.update(accounts, &from, &payer).await?;
        let mut payee = tx.get(accounts, &to).await?.ok_or(Failure::NoAccount(to))?;
        payee.cents += cents;
        tx.update(accounts, &to, &payee).await?;
        Ok(payer)
    });
    Ok(Json(payer.await?))
}

async fn open_account(
    State(bank): State<Arc<Bank>>,
    Path(id): Path<u64>,
    Json(account): Json<Account>,
) -> Result<StatusCode, Failure> {
    bank.db.put(&bank.accounts, &id, &account).await?;
    Ok(StatusCode::CREATED)
}

#[derive(Debug, Deserialize)]
struct Page {
    after: Option<u64>,
    #[serde(default = "twenty")]
    limit: u64,
}

fn twenty() -> u64 {
    20
}

/// Returns a page of accounts after the last one of the page before.
async fn list(
    State(bank): State<Arc<Bank>>,
    Query(page): Query<Page>,
) -> Result<Json<Vec<(u64, Account)>>, Failure> {
    let found = bank.db.run_on(&bank.accounts, async move |tx, accounts| {
        let low = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = tx.scan(accounts, (low, Bound::Unbounded))?.limit(page.limit.min(1000));
        let mut found = Vec::new();
        while let Some(account) = scan.next().await? {
            found.push(account);
        }
        Ok(found)
    });
    Ok(Json(found.await?))
}

/// Begins a transaction that later requests continue.
async fn begin(State(bank): State<Arc<Bank>>) -> Result<Json<u64>, Failure> {
    let id = bank.next_session.fetch_add(1, Ordering::Relaxed);
    let transaction = Arc::new(bank.db.begin().await?);
    bank.sessions.lock().expect("not poisoned").insert(id, transaction);
    Ok(Json(id))
}

impl Bank {
    /// Returns the transaction of a session.
    fn session(&self, id: u64) -> Result<Arc<InteractiveTransaction>, Failure> {
        let open = self.sessions.lock().expect("not poisoned").get(&id).cloned();
        open.ok_or(Failure::NoSession(id))
    }

    /// Converts the result of a session's step. Forgets a session after its transaction was aborted
    /// because it was idle for too long.
    fn came_to<T>(&self, id: u64, result: braiddb::Result<T>) -> Result<T, Failure> {
        use braiddb::Error;
        if let Err(Error::TransactionExpired { .. } | Error::TransactionOver) = result {
            self.sessions.lock().expect("not poisoned").remove(&id);
        }
        Ok(result?)
    }
}

async fn get_in_session(
    State(bank): State<Arc<Bank>>,
    Path((session, id)): Path<(u64, u64)>,
) -> Result<Json<Account>, Failure> {
    let read = bank.session(session)?.get(&bank.accounts, &id).await;
    let account = bank.came_to(session, read)?;
    Ok(Json(account.ok_or(Failure::NoAccount(id))?))
}

async fn put_in_session(
    State(bank): State<Arc<Bank>>,
    Path((session, id)): Path<(u64, u64)>,
    Json(account): Json<Account>,
) -> Result<StatusCode, Failure> {
    let put = bank.session(session)?.put(&bank.accounts, &id, &account).await;
    bank.came_to(session, put)?;
    Ok(StatusCode::ACCEPTED)
}

async fn commit_session(
    State(bank): State<Arc<Bank>>,
    Path(session): Path<u64>,
) -> Result<StatusCode, Failure> {
    let open = bank.sessions.lock().expect("not poisoned").remove(&session);
    let transaction = open.ok_or(Failure::NoSession(session))?;
    // Another request may be using the session.
    let transaction = Arc::try_unwrap(transaction).map_err(|shared| {
        bank.sessions.lock().expect("not poisoned").insert(session, shared);
        Failure::SessionBusy
    })?;
    transaction.commit().await?;
    Ok(StatusCode::OK)
}

/// Exports all accounts of one snapshot, one line of JSON each. A client that reads slowly keeps
/// the snapshot open, but unread data uses no memory.
async fn export(State(bank): State<Arc<Bank>>) -> Result<Response, Failure> {
    let snapshot = bank.db.snapshot().await?;
    let (mut lines, body) = futures_channel::mpsc::channel::<Result<String, std::io::Error>>(64);
    let accounts = bank.accounts.clone();
    tokio::spawn(async move {
        let mut failed = lines.clone();
        let sent = snapshot.run(async move |tx| {
            let mut records = Box::pin(tx.scan(&accounts, ..)?.into_stream());
            while let Some(record) = records.next().await {
                let line = serde_json::to_string(&record?).unwrap_or_default() + "\n";
                if lines.send(Ok(line)).await.is_err() {
                    // The client closed the connection.
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = sent.await {
            _ = failed.send(Err(std::io::Error::other(error))).await;
        }
    });
    let headers = [("content-type", "application/jsonl")];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Returns the metrics that Prometheus reads every few seconds.
async fn metrics(State(bank): State<Arc<Bank>>) -> String {
    bank.db.record_metrics("accounts");
    bank.figures.render()
}

fn router(bank: Arc<Bank>) -> Router {
    Router::new()
        .route("/accounts", get(list))
        .route("/accounts/{id}", put(open_account))
        .route("/transfers", post(transfer))
        .route("/sessions", post(begin))
        .route("/sessions/{session}/accounts/{id}", get(get_in_session).put(put_in_session))
        .route("/sessions/{session}/commit", post(commit_session))
        .route("/export", get(export))
        .route("/metrics", get(metrics))
        .with_state(bank)
}

async fn open(directory: &std::path::Path) -> anyhow::Result<Arc<Bank>> {
    let figures = PrometheusBuilder::new().install_recorder()?;
    let db = Database::open(directory, Options::default())?;
    let accounts = db.open_or_create_table("accounts").await?;
    let (sessions, next_session) = (Mutex::default(), AtomicU64::new(1));
    Ok(Arc::new(Bank { db, accounts, sessions, next_session, figures }))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "accounts.braid".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let bank = open(directory.as_ref()).await?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("serving {directory} on http://{address}; Ctrl-C or SIGTERM ends it");
    let mut terminated = signal(SignalKind::terminate())?;
    let ended = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
    };
    serve(listener, bank, ended).await
}

/// Serves until `ended`, answers the requests in progress, and closes the database. Open sessions
/// are aborted.
async fn serve(
    listener: tokio::net::TcpListener,
    bank: Arc<Bank>,
    ended: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    axum::serve(listener, router(bank.clone())).with_graceful_shutdown(ended).await?;
    // `close` blocks, so it runs on a thread for blocking tasks.
    tokio::task::spawn_blocking(move || bank.db.close()).await??;
    Ok(())
}

#[cfg(test)]
#[path = "../crates/braiddb/tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::Request;
    use tokio::runtime::Runtime;
    use tower::ServiceExt;

    use super::*;
    use crate::common::{PART_SECONDS, with_limit, working_on};

    /// Sends a request and returns the response.
    async fn ask(router: &Router, method: &str, path: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn a_bank_serves() {
        with_limit(PART_SECONDS, |_| Runtime::new().unwrap().block_on(serves()));
    }

    async fn serves() {
        let directory = tempfile::tempdir().unwrap();
        let bank = open(directory.path()).await.unwrap();
        working_on(&bank.db);
        let app = router(bank.clone());
        for id in 1..=30 {
            let account = format!(r#"{{"owner": "number {id}", "cents": 100}}"#);
            let path = format!("/accounts/{id}");
            assert_eq!(ask(&app, "PUT", &path, &account).await.0, StatusCode::CREATED);
        }
        let transfer = |from: u64, to: u64, cents: u64| {
            let body = serde_json::to_string(&Transfer { from, to, cents }).unwrap();
            let app = app.clone();
            async move { ask(&app, "POST", "/transfers", &body).await.0 }
        };
        let around: Vec<_> = (1..=30).map(|id| transfer(id, id % 30 + 1, 40)).collect();
        for status in futures_util::future::join_all(around).await {
            assert_eq!(status, StatusCode::OK);
        }
        assert_eq!(transfer(1, 2, 101).await, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(transfer(1, 99, 1).await, StatusCode::NOT_FOUND);

        let (status, page) = ask(&app, "GET", "/accounts?after=28&limit=5", "").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            page,
            r#"[[29,{"owner":"number 29","cents":100}],[30,{"owner":"number 30","cents":100}]]"#
        );

        let (_, session) = ask(&app, "POST", "/sessions", "").await;
        let (put, commit) =
            (format!("/sessions/{session}/accounts/31"), format!("/sessions/{session}/commit"));
        let account = r#"{"owner": "late", "cents": 7}"#;
        assert_eq!(ask(&app, "PUT", &put, account).await.0, StatusCode::ACCEPTED);
        assert!(ask(&app, "GET", &put, "").await.1.contains("late"));
        assert_eq!(ask(&app, "GET", "/export", "").await.1.lines().count(), 30);
        assert_eq!(ask(&app, "POST", &commit, "").await.0, StatusCode::OK);
        assert_eq!(ask(&app, "POST", &commit, "").await.0, StatusCode::NOT_FOUND);

        let (_, lines) = ask(&app, "GET", "/export", "").await;
        let read = |line: &str| serde_json::from_str::<(u64, Account)>(line).unwrap().1.cents;
        assert_eq!(lines.lines().map(read).sum::<u64>(), 30 * 100 + 7);
        let (status, figures) = ask(&app, "GET", "/metrics", "").await;
        assert_eq!(status, StatusCode::OK);
        let aborted =
            r#"braid_transactions_aborted_total{database="accounts",cause="requested"} 2"#;
        assert!(figures.lines().any(|line| line == aborted), "{figures}");
        let (_, session) = ask(&app, "POST", "/sessions", "").await;
        bank.db.close().unwrap();
        assert_eq!(transfer(1, 2, 1).await, StatusCode::INTERNAL_SERVER_ERROR);
        // The service forgets a session after its transaction ends.
        let path = format!("/sessions/{session}/accounts/1");
        assert_eq!(ask(&app, "GET", &path, "").await.0, StatusCode::GONE);
        assert_eq!(ask(&app, "GET", &path, "").await.0, StatusCode::NOT_FOUND);
        an_export_is_answered_whole_before_the_end(directory.path(), bank.figures.clone()).await;
    }

    /// The service shuts down while a client reads an export.
    async fn an_export_is_answered_whole_before_the_end(
        directory: &std::path::Path,
        figures: PrometheusHandle,
    ) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let db = Database::open(directory, Options::default()).unwrap();
        let accounts = db.open_or_create_table("accounts").await.unwrap();
        let (sessions, next_session) = (Mutex::default(), AtomicU64::new(1));
        let bank = Arc::new(Bank { db, accounts, sessions, next_session, figures });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, bank, async { _ = ended.await }));
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /export HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 40];
        client.read_exact(&mut answer).await.unwrap();
        end.send(()).unwrap();
        client.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer.lines().filter(|line| line.starts_with('[')).count(), 31, "{answer}");
        serving.await.unwrap().unwrap();
        // The database is closed, so it can be opened again.
        Database::open(directory, Options::default()).unwrap().close().unwrap();
    }
}
