//! Interface between nodes and a network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::service::Service;

/// A call that did not bring an answer. The other node may have executed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from {address}: {reason}")]
pub struct CallError {
    /// Address of the node that was called.
    pub address: String,
    /// Reason, for people.
    pub reason: String,
}

/// Future of a call.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Bytes, CallError>> + Send>>;

/// Carries encoded messages to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message to the node at an address, and returns its answer. Fails after `timeout`.
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture;

    /// Begins to pass the messages that arrive to a node. Called once.
    ///
    /// # Errors
    /// [`Error::Options`](crate::Error::Options) if the transport cannot receive messages.
    fn serve(&self, service: Arc<Service>) -> crate::Result<()>;

    /// Ends to pass messages.
    fn stop(&self);
}
