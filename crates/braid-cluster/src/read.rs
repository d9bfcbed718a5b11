//! Reads with a chosen consistency.

use std::time::{Duration, Instant};

use braiddb::Transaction;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// Position in the history of a cluster. A program may send it to other nodes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Token(pub(crate) u64);

/// Transactions that a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consistency {
    /// Everything committed before the read was called, on any node. One round trip to the leader,
    /// which confirms its role with a majority; reads that wait together share it.
    Linearizable,
    /// At least the transaction that returned the token, and everything before it. No message.
    Session(Token),
    /// Everything committed until `max` before the read was called. No message if this node has
    /// asked the leader since then.
    Stale {
        /// Greatest age of what the read may miss.
        max: Duration,
    },
}

impl Cluster {
    /// Reads the state of this node's database as of one moment. The closure cannot write.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if a leader was needed and not found; [`Error::Timeout`]; those of the
    /// closure.
    pub async fn read<T, F>(&self, consistency: Consistency, body: F) -> Result<T>
    where
        F: AsyncFn(&Transaction) -> braiddb::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let overloaded = |_| Error::Overloaded(self.inner.options.max_requests);
        let _request = self.inner.requests.try_acquire().map_err(overloaded)?;
        let (called, deadline) = (Instant::now(), tokio::time::Instant::now() + self.timeout);
        let index = match consistency {
            Consistency::Linearizable => self.read_index(deadline).await?,
            Consistency::Session(Token(index)) => index,
            Consistency::Stale { max } => match self.inner.reads.last() {
                Some(last) if called.saturating_duration_since(last.asked) <= max => last.index,
                _ => self.read_index(deadline).await?,
            },
        };
        let replica = &self.inner.replica;
        let read = async {
            replica.wait_applied(index).await;
            let _contents = replica.contents.read().await;
            self.inner.db.transaction().read_only(true).execute(body).await
        };
        let read = tokio::time::timeout_at(deadline, read).await;
        Ok(read.map_err(|_| Error::Timeout(self.timeout))??.value)
    }
}
