//! Client of a cluster, for programs that are no nodes, such as `braid cluster`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braiddb::{Table, Transaction};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::message::{Answer, ClientRequest, Envelope, Header, Request};
use crate::network::{CallFailure, call};
use crate::raft::NodeId;
use crate::read::Consistency;
use crate::status::Status;
use crate::transport::{CallError, Transport};

/// Added to the deadline of a call for the way to the node and back.
const MESSAGE_TIME: Duration = Duration::from_secs(1);

/// Table with text as keys and values.
type TextTable = Table<str, str>;

/// A failed call of a [`Client`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The node refused the request or failed at it. The message states the cause and the remedy.
    #[error("{0}")]
    Failed(String),
    /// The node did not answer. If it received the request, it may have executed it.
    #[error("{0}; if the node received the request, it may have executed it")]
    NoAnswer(CallError),
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> Self {
        Self::NoAnswer(error)
    }
}

/// Calls one node of a cluster, which serves a request itself or with the leader.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    cluster: String,
    address: String,
    timeout: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:?} at {})", self.cluster, self.address)
    }
}

impl Client {
    /// Returns a client of the node at an address. `timeout` is the deadline of each call.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use braid_cluster::{Client, GrpcTransport, Security};
    ///
    /// let transport = Arc::new(GrpcTransport::client(Security::PlainLoopback));
    /// let client = Client::new(transport, "shop", "127.0.0.1:7400", Duration::from_secs(5));
    /// # _ = client;
    /// ```
    pub fn new(
        transport: Arc<dyn Transport>,
        cluster: impl Into<String>,
        address: impl Into<String>,
        timeout: Duration,
    ) -> Self {
        Self { transport, cluster: cluster.into(), address: address.into(), timeout }
    }

    /// Makes the node and the others named here a new cluster, and waits until they have a leader.
    /// The members contain the node.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn init(&self, members: BTreeMap<NodeId, String>) -> Result<(), ClientError> {
        self.done(ClientRequest::Init(members)).await
    }

    /// Works like [`Cluster::add_node`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add(&self, node: NodeId, address: &str) -> Result<(), ClientError> {
        self.done(ClientRequest::Add { node, address: address.to_owned() }).await
    }

    /// Works like [`Cluster::remove_node`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove(&self, node: NodeId) -> Result<(), ClientError> {
        self.done(ClientRequest::Remove { node }).await
    }

    /// Works like [`Cluster::transfer_leadership`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn transfer(&self, node: NodeId) -> Result<(), ClientError> {
        self.done(ClientRequest::Transfer { node }).await
    }

    /// Returns the state of the cluster as the node knows it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        match self.call(ClientRequest::Status).await? {
            Answer::Status(status) => Ok(status),
            _ => Err(self.wrong_answer()),
        }
    }

    /// Writes a record of a table whose keys and values are text. Creates the table if it does not
    /// exist.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put(&self, table: &str, key: &str, value: &str) -> Result<(), ClientError> {
        let (table, key, value) = (table.to_owned(), key.to_owned(), value.to_owned());
        self.done(ClientRequest::Put { table, key, value }).await
    }

    /// Returns the value of a key of a table whose keys and values are text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(
        &self,
        table: &str,
        key: &str,
        consistency: Consistency,
    ) -> Result<Option<String>, ClientError> {
        let (table, key) = (table.to_owned(), key.to_owned());
        match self.call(ClientRequest::Get { table, key, consistency }).await? {
            Answer::Value(value) => Ok(value),
            _ => Err(self.wrong_answer()),
        }
    }

    /// Works like [`Cluster::drop_table`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drop_table(&self, table: &str) -> Result<(), ClientError> {
        self.done(ClientRequest::DropTable { table: table.to_owned() }).await
    }

    /// Works like [`Cluster::rename_table`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rename_table(&self, from: &str, to: &str) -> Result<(), ClientError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.done(ClientRequest::RenameTable { from, to }).await
    }

    async fn done(&self, request: ClientRequest) -> Result<(), ClientError> {
        match self.call(request).await? {
            Answer::Done => Ok(()),
            _ => Err(self.wrong_answer()),
        }
    }

    async fn call(&self, request: ClientRequest) -> Result<Answer, ClientError> {
        let (version, cluster) = (request.version(), self.cluster.clone());
        let header = Header { version, cluster, id: None, to: None };
        let request = Request::Client { request, timeout: self.timeout };
        let envelope = Envelope { header, request };
        let timeout = self.timeout.saturating_add(MESSAGE_TIME);
        let answer = call(&*self.transport, &self.address, &envelope, timeout).await;
        answer.map_err(|error| match error {
            CallFailure::Refused(refusal) => ClientError::Failed(refusal.to_string()),
            CallFailure::NoAnswer(error) => ClientError::NoAnswer(error),
        })
    }

    fn wrong_answer(&self) -> ClientError {
        ClientError::Failed(format!("{} answered another request", self.address))
    }
}

impl Cluster {
    /// Executes a request of a client.
    pub(crate) async fn execute_for_client(&self, request: ClientRequest) -> Result<Answer> {
        match request {
            ClientRequest::Init(members) => {
                self.init(members).await?;
                let leader = self.inner.leader.wait_known(self.timeout).await;
                leader.ok_or_else(|| self.no_leader())?;
            }
            ClientRequest::Add { node, address } => self.add_node(node, address).await?,
            ClientRequest::Remove { node } => self.remove_node(node).await?,
            ClientRequest::Transfer { node } => self.transfer_leadership(node).await?,
            ClientRequest::Status => return Ok(Answer::Status(self.status())),
            ClientRequest::Put { table, key, value } => {
                let table: TextTable = self.open_or_create_table(&table).await?;
                let put = async move |tx: &Transaction| tx.put(&table, &key, &value).await;
                self.run(put).await?;
            }
            ClientRequest::DropTable { table } => self.drop_table(&table).await?,
            ClientRequest::RenameTable { from, to } => self.rename_table(&from, &to).await?,
            ClientRequest::Get { table, key, consistency } => {
                let get = async move |tx: &Transaction| {
                    let table: TextTable = tx.open_table(&table).await?;
                    Ok(tx.get(&table, &key).await?.map(str::to_owned))
                };
                return Ok(Answer::Value(self.read(consistency, get).await?));
            }
        }
        Ok(Answer::Done)
    }
}
