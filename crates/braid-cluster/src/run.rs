//! Transactions: executed on this node, certified and applied on all.

use std::sync::Arc;

use braiddb::proposals::Proposal;
use braiddb::{Database, Transaction};
use tokio::time::Instant;

use crate::catalog::PAUSE;
use crate::cluster::Cluster;
use crate::command::{Action, Decision, ExecutedTransaction};
use crate::error::{Error, Result};
use crate::local_indexes::IndexCheck;
use crate::read::Token;

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The closure's result.
    pub value: T,
    /// Position of the transaction, for reads that must see it
    /// ([`Consistency::Session`](crate::Consistency)).
    pub token: Token,
    /// Number of times the closure ran.
    pub attempts: u32,
}

impl Cluster {
    /// Runs a transaction, on any node. It is strictly serializable, and when this returns, its
    /// writes are on the disks of a majority and applied on this node.
    ///
    /// The closure runs again after a conflict with a transaction of any node. It must be `Sync`,
    /// because several attempts share it.
    ///
    /// # Errors
    /// See [`enum@Error`]. Only after [`Error::CommitUnknown`] something may have been written.
    pub async fn run<T, F>(&self, body: F) -> Result<Outcome<T>>
    where
        F: AsyncFn(&Transaction) -> braiddb::Result<T> + Send + Sync + 'static,
        T: Send + 'static,
    {
        self.try_run(async move |tx: &Transaction| Ok(body(tx).await?)).await
    }

    /// Works like [`Cluster::run`], with errors of the caller's type. A closure that returns an
    /// error writes nothing, and the error is based on current data.
    ///
    /// # Errors
    /// Those of the closure, and those of [`Cluster::run`].
    pub async fn try_run<T, E, F>(&self, body: F) -> Result<Outcome<T>, E>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + From<braiddb::Error> + Send + 'static,
    {
        let overloaded = |_| Error::Overloaded(self.inner.options.max_requests);
        let _request = self.inner.requests.try_acquire().map_err(overloaded)?;
        let (body, deadline) = (Arc::new(body), Instant::now() + self.timeout);
        let mut attempts = 0;
        // The next attempt sees all entries up to here.
        let mut seen = 0;
        // Everything committed before this call has an index up to here, once it is known.
        let mut current = None;
        loop {
            attempts += 1;
            let indexes = &self.inner.replica.storage.indexes;
            let changes = indexes.changes();
            let (executed, base) = self.execute(body.clone(), seen, deadline).await?;
            if let Ok(proposal) = &executed
                && !proposal.writes.is_empty()
            {
                match indexes.check(&proposal.reads, &proposal.writes, changes) {
                    IndexCheck::Passed => {}
                    IndexCheck::NotAttached { table, index } => {
                        return Err(Error::IndexNotAttached { table, index }.into());
                    }
                    IndexCheck::Changed if Instant::now() < deadline => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    IndexCheck::Changed => return Err(Error::Conflict { attempts }.into()),
                }
                let (decision, index) = self.submit(transaction(proposal, base), deadline).await?;
                if decision == Decision::Committed {
                    let value = executed?.value;
                    return Ok(Outcome { value, token: Token(index), attempts });
                }
                if Instant::now() >= deadline {
                    return Err(Error::Conflict { attempts }.into());
                }
                seen = index;
                continue;
            }
            // A closure that wrote nothing, or failed, must have read current data.
            let needed = match current {
                Some(index) => index,
                None => self.read_index(deadline).await?,
            };
            current = Some(needed);
            if base >= needed {
                let value = executed?.value;
                // The snapshot may contain an entry that is being applied.
                let token = Token(self.inner.replica.newest().max(base));
                return Ok(Outcome { value, token, attempts });
            }
            seen = needed;
        }
    }

    /// Executes a closure without committing it, on a state with all entries up to `seen`. Returns
    /// also the index of the last entry that it certainly saw.
    async fn execute<T, E, F>(
        &self,
        body: Arc<F>,
        seen: u64,
        deadline: Instant,
    ) -> Result<(Result<Proposal<T>, E>, u64)>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<braiddb::Error> + Send + 'static,
    {
        let replica = &self.inner.replica;
        let execute = async {
            replica.wait_applied(seen).await;
            let _contents = replica.contents.read().await;
            let before = replica.applied();
            let executed = execute(&self.inner.db, body).await;
            let base = match &executed {
                Ok(proposal) => replica.index_at(proposal.snapshot_lsn).max(before),
                Err(_) => before,
            };
            (executed, base)
        };
        let timeout = |_| Error::Timeout(self.timeout);
        tokio::time::timeout_at(deadline, execute).await.map_err(timeout)
    }

    /// Returns an index that covers everything committed before this call.
    pub(crate) async fn read_index(&self, deadline: Instant) -> Result<u64> {
        let current = tokio::time::timeout_at(deadline, self.inner.reads.current());
        match current.await {
            Ok(Some(index)) => Ok(index),
            Ok(None) => Err(Error::Stopped("it answers no more requests".to_owned())),
            Err(_) => Err(self.no_leader()),
        }
    }
}

fn execute<T, E, F>(
    db: &Database,
    body: Arc<F>,
) -> impl Future<Output = Result<Proposal<T>, E>> + Send + use<T, E, F>
where
    F: AsyncFn(&Transaction) -> Result<T, E> + Send + Sync + 'static,
    T: Send + 'static,
    E: From<braiddb::Error> + Send + 'static,
{
    db.try_execute(async move |tx: &Transaction| body(tx).await)
}

/// Returns the submission of an executed transaction.
fn transaction<T>(proposal: &Proposal<T>, base: u64) -> Action {
    Action::Transaction(ExecutedTransaction {
        base,
        reads: proposal.reads.as_bytes().to_vec().into(),
        writes: proposal.writes.as_bytes().to_vec().into(),
    })
}
