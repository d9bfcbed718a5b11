//! Transactions with given numbers of reads, blind updates and read-modify-writes of uniform or
//! skewed keys. They are written plainly, behind boxed futures, or as one operation of many keys.

use std::pin::Pin;

use braiddb::{Error, Table, Transaction};

use crate::engine::drive::Procedure;
use crate::engine::fixture::Bed;
use crate::random::{Skewed, Uniform};
use crate::reference::probing::MOST;
use crate::workload::missing_record;

/// Draws keys.
#[derive(Clone)]
pub(super) enum Keys {
    Uniform(Uniform),
    Skewed(Skewed),
}

impl Keys {
    /// Returns a distribution over this number of records; skewed if `theta` is above 0.
    pub(super) fn of(records: u64, theta: f64, seed: u64) -> Self {
        match theta > 0.0 && records > 2 {
            true => Self::Skewed(Skewed::below(records, theta, seed)),
            false => Self::Uniform(Uniform::below(records, seed)),
        }
    }

    /// Returns the same distribution with a new seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        match self {
            Self::Uniform(uniform) => Self::Uniform(uniform.with_seed(seed)),
            Self::Skewed(skewed) => Self::Skewed(skewed.with_seed(seed)),
        }
    }

    #[inline]
    pub(super) fn key(&mut self) -> u64 {
        match self {
            Self::Uniform(uniform) => uniform.key(),
            Self::Skewed(skewed) => skewed.key(),
        }
    }

    /// Draws `count` keys into the front of `keys`.
    #[inline]
    pub(super) fn draw(&mut self, count: usize, keys: &mut [u64; MOST]) {
        for key in &mut keys[..count] {
            *key = self.key();
        }
    }
}

/// The number of operations in a transaction: reads, then updates, then read-modify-writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: usize,
    pub(super) updates: usize,
    pub(super) modifies: usize,
}

impl Counts {
    pub(super) fn reads(reads: usize) -> Self {
        Self { reads, ..Self::default() }
    }

    fn all(self) -> usize {
        self.reads + self.updates + self.modifies
    }
}

/// A transaction's operations, written plainly.
#[derive(Clone)]
pub(super) struct Steps {
    table: Table<u64, u64>,
    keys: Keys,
    counts: Counts,
}

impl Steps {
    pub(super) fn on(bed: &Bed, counts: Counts, keys: Keys) -> Self {
        assert!(counts.all() <= MOST, "{counts:?} has more than {MOST} operations");
        Self { table: bed.table.clone(), keys, counts }
    }
}

impl Procedure for Steps {
    type Input = [u64; MOST];

    #[inline]
    fn draw(&mut self) -> [u64; MOST] {
        let mut keys = [0; MOST];
        self.keys.draw(self.counts.all(), &mut keys);
        keys
    }

    #[inline]
    async fn run(&self, tx: &Transaction, keys: &[u64; MOST]) -> Result<(), Error> {
        let Counts { reads, updates, modifies } = self.counts;
        let (read, written) = keys.split_at(reads);
        for key in read {
            let value = tx.get(&self.table, key).await?.ok_or_else(missing_record)?;
            std::hint::black_box(value);
        }
        for key in &written[..updates] {
            tx.update(&self.table, key, &!*key).await?;
        }
        for key in &written[updates..updates + modifies] {
            let value = tx.get(&self.table, key).await?.ok_or_else(missing_record)?;
            tx.update(&self.table, key, &value.wrapping_add(1)).await?;
        }
        Ok(())
    }
}

/// Only the reads, each through two boxed futures.
#[derive(Clone)]
pub(super) struct Boxed(pub(super) Steps);

type BoxedValue<'a> = Pin<Box<dyn Future<Output = Result<Option<u64>, Error>> + 'a>>;

impl Boxed {
    fn get<'a>(&'a self, tx: &'a Transaction, key: &'a u64) -> BoxedValue<'a> {
        Box::pin(async move {
            let inner: BoxedValue<'_> = Box::pin(tx.get(&self.0.table, key));
            inner.await
        })
    }
}

impl Procedure for Boxed {
    type Input = [u64; MOST];

    fn draw(&mut self) -> [u64; MOST] {
        self.0.draw()
    }

    async fn run(&self, tx: &Transaction, keys: &[u64; MOST]) -> Result<(), Error> {
        for key in &keys[..self.0.counts.reads] {
            std::hint::black_box(self.get(tx, key).await?.ok_or_else(missing_record)?);
        }
        Ok(())
    }
}

/// Only the reads, by one operation of many keys.
#[derive(Clone)]
pub(super) struct Together(pub(super) Steps);

impl Procedure for Together {
    type Input = [u64; MOST];

    fn draw(&mut self) -> [u64; MOST] {
        self.0.draw()
    }

    async fn run(&self, tx: &Transaction, keys: &[u64; MOST]) -> Result<(), Error> {
        let keys = &keys[..self.0.counts.reads];
        for value in tx.multi_get(&self.0.table, keys).await? {
            std::hint::black_box(value.ok_or_else(missing_record)?);
        }
        Ok(())
    }
}
