//! Driving transactions through the engine: typed sources, whose futures live unboxed in the
//! workers' slots. All that depends on the shape of the engine's sources is in this file.

use std::time::{Duration, Instant};

use braiddb::{Database, Transaction};

use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::rounds::{Effort, Sample, Subject};

/// A stored procedure: draws its inputs, then runs as a transaction, again if it met a conflict.
pub(crate) trait Procedure: Clone + Send + 'static {
    /// What one transaction works on.
    type Input: Clone + Send + 'static;
    /// Draws the next transaction's inputs.
    fn draw(&mut self) -> Self::Input;
    /// The transaction itself.
    async fn run(
        &self,
        transaction: &Transaction,
        input: &Self::Input,
    ) -> Result<(), braiddb::Error>;
}

/// Runs the procedures that `make` makes, one a worker, on the first `workers` workers.
pub(crate) fn drive<P: Procedure>(
    database: &Database,
    workers: usize,
    mut make: impl FnMut(usize) -> P,
    effort: Effort,
    timed_one_in: u32,
) -> Result<Sample, Error> {
    let mut latencies = Latencies::one_in(timed_one_in);
    let begin = Instant::now();
    let mut p = make(workers - 1);
    let mut transactions = 0;
    loop {
        match effort {
            Effort::Transactions(n) if transactions >= n => break,
            Effort::Seconds(s) if begin.elapsed() >= Duration::from_secs_f64(s) => break,
            _ => {}
        }
        let start = latencies.start();
        let input = p.draw();
        let p = p.clone();
        database.run_blocking(async move |tx: &Transaction| p.run(tx, &input).await)?;
        latencies.finish(start);
        transactions += 1;
    }
    Ok(Sample { transactions, conflicts: 0, elapsed: begin.elapsed(), latencies })
}

/// A subject that runs a procedure on a database.
pub(crate) struct Driven<M> {
    name: String,
    database: Database,
    workers: usize,
    make: M,
    timed_one_in: u32,
    seed: u64,
}

impl<P: Procedure, M: FnMut(u64) -> P> Driven<M> {
    /// A subject on the first `workers` workers of `database`. `make` makes a worker's procedure;
    /// it is called with a seed that is new for every worker and round.
    pub(crate) fn new(name: &str, database: &Database, workers: usize, seed: u64, make: M) -> Self {
        let (name, database) = (name.to_owned(), database.clone());
        Self { name, database, workers, make, timed_one_in: 16, seed: seed << 32 }
    }

    /// Times every `period`-th transaction (16 if this is not called).
    pub(crate) fn time_one_in(self, period: u32) -> Self {
        Self { timed_one_in: period, ..self }
    }
}

impl<P: Procedure, M: FnMut(u64) -> P> Subject for Driven<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let Self { database, make, seed, .. } = self;
        let make = |_worker| {
            *seed += 1;
            make(*seed)
        };
        drive(database, self.workers, make, effort, self.timed_one_in)
    }
}
