//! The access of TPC-C's transactions to the rows of a store: asynchronous or synchronous.

use super::Trade;
use crate::answer::{Answer, Failure, Missing};

/// One access of a transaction to a store.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    Get(u64),
    Put(u64, &'a [u8]),
    Delete(u64),
}

/// A transaction of a store.
pub trait Accessed {
    type Failure;

    /// Returns the contents of a row if requested and if the row exists.
    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Self::Failure>;

    /// Returns the error for a required row that is missing.
    fn missing(key: u64) -> Self::Failure;
}

/// A transaction that never waits.
pub struct AtOnce<F>(pub F);

impl<F> Accessed for AtOnce<F>
where
    F: FnMut(Access<'_>) -> Result<Option<Vec<u8>>, Failure>,
{
    type Failure = Failure;

    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Failure> {
        self.0(access)
    }

    fn missing(key: u64) -> Failure {
        Missing(key).into()
    }
}

/// Runs a trade in a transaction that never waits.
pub fn run_at_once(
    trade: &Trade,
    access: impl FnMut(Access<'_>) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Answer, Failure> {
    // The future is ready at its first poll.
    pollster::block_on(trade.run(&mut AtOnce(access)))
}

/// Rejects writes of read-only transactions.
pub fn only_reads() -> Result<Option<Vec<u8>>, Failure> {
    Err("a transaction that only reads is to write".into())
}
