//! The procedures of point operations on the table of records.

use braiddb::{Error, Table, Transaction};

use crate::engine::drive::Procedure;
use crate::engine::fixture::Bed;
use crate::random::Uniform;
use crate::workload::missing_record;

/// The number of operations in a transaction of the microbenchmarks (CoroBase §5.4).
pub(crate) const OPERATIONS: usize = 10;

/// The table and the generator that every point procedure has.
#[derive(Clone)]
pub(crate) struct Points {
    table: Table<u64, u64>,
    uniform: Uniform,
}

impl Points {
    /// Returns the table of `bed` with a generator.
    pub(crate) fn on(bed: &Bed, seed: u64) -> Self {
        Self { table: bed.table.clone(), uniform: Uniform::below(bed.records, seed) }
    }
}

/// `N` uniform reads; every key exists.
#[derive(Clone)]
pub(crate) struct Reads<const N: usize>(pub(crate) Points);

impl<const N: usize> Procedure for Reads<N> {
    type Input = [u64; N];

    #[inline]
    fn draw(&mut self) -> [u64; N] {
        self.0.uniform.keys()
    }

    #[inline]
    async fn run(&self, tx: &Transaction, keys: &[u64; N]) -> Result<(), Error> {
        for key in keys {
            let value = tx.get(&self.0.table, key).await?.ok_or_else(missing_record)?;
            std::hint::black_box(value);
        }
        Ok(())
    }
}

/// `N` blind updates of uniform records.
#[derive(Clone)]
pub(crate) struct Updates<const N: usize>(pub(crate) Points);

impl<const N: usize> Procedure for Updates<N> {
    type Input = [u64; N];

    #[inline]
    fn draw(&mut self) -> [u64; N] {
        self.0.uniform.keys()
    }

    #[inline]
    async fn run(&self, tx: &Transaction, keys: &[u64; N]) -> Result<(), Error> {
        for key in keys {
            tx.update(&self.0.table, key, &!*key).await?;
        }
        Ok(())
    }
}

/// `N` read-modify-writes of uniform records.
#[derive(Clone)]
pub(crate) struct ReadModifyWrites<const N: usize>(pub(crate) Points);

impl<const N: usize> Procedure for ReadModifyWrites<N> {
    type Input = [u64; N];

    #[inline]
    fn draw(&mut self) -> [u64; N] {
        self.0.uniform.keys()
    }

    #[inline]
    async fn run(&self, tx: &Transaction, keys: &[u64; N]) -> Result<(), Error> {
        for key in keys {
            let value = tx.get(&self.0.table, key).await?.ok_or_else(missing_record)?;
            tx.update(&self.0.table, key, &value.wrapping_add(1)).await?;
        }
        Ok(())
    }
}

/// A scan of `N` records from a uniform start.
#[derive(Clone)]
pub(crate) struct Scans<const N: u64>(pub(crate) Points);

impl<const N: u64> Procedure for Scans<N> {
    type Input = u64;

    #[inline]
    fn draw(&mut self) -> u64 {
        self.0.uniform.key()
    }

    #[inline]
    async fn run(&self, tx: &Transaction, from: &u64) -> Result<(), Error> {
        let mut scan = tx.scan(&self.0.table, from..)?.limit(N);
        let mut sum = 0u64;
        while let Some((_, value)) = scan.next().await? {
            sum = sum.wrapping_add(value);
        }
        std::hint::black_box(sum);
        Ok(())
    }
}
