//! How TPC-C's transactions reach the rows of a store: waiting for them, or at once.

use super::Trade;
use crate::answer::{Answer, Failure, Missing};

/// What a transaction does to a store.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    Get(u64),
    Put(u64, &'a [u8]),
    Delete(u64),
}

/// A transaction of a store.
pub trait Accessed {
    type Failure;

    /// What a row holds, if that is asked for, and there is one.
    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Self::Failure>;

    /// A row is not there that must be.
    fn missing(key: u64) -> Self::Failure;
}

/// A transaction that waits for nothing.
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

/// Runs a trade in a transaction that waits for nothing.
pub fn run_at_once(
    trade: &Trade,
    access: impl FnMut(Access<'_>) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Answer, Failure> {
    // It is ready when it is polled first.
    pollster::block_on(trade.run(&mut AtOnce(access)))
}

/// For transactions that only read: what else they ask for is refused.
pub fn only_reads() -> Result<Option<Vec<u8>>, Failure> {
    Err("a transaction that only reads is to write".into())
}
