//! Braid with its default settings, except for memory: `docs/benchmarks.md` lists measurements with
//! others.

use std::ops::Range;

use braid_workloads::engine::drive::Procedure;
use braiddb::{Database, Durability, Error, Options, Table, TableOptions, Transaction, Tuning};

use super::{each_record, pieces};
use crate::answer::{Answer, Failure, increment};
use crate::call::{Call, Calls, KINDS};
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Accessed};

/// The size of the log's ring in a small budget.
const SMALL_RING: usize = 32 << 20;
/// The number of loads in progress at a time.
const LOADING: usize = 16;

/// A database with one table.
pub struct Braid {
    pub database: Database,
    table: Table<u64, [u8]>,
    setup: Setup,
}

impl Braid {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let durability = if setup.synced { Durability::Group } else { Durability::Relaxed };
        let mut options = Options::default()
            .workers(setup.workers)
            .durability(durability)
            .memory_budget(setup.budget.map(budget))
            .tuning(Tuning::default().pin(setup.pin));
        if setup.budget.is_some() {
            // The peers' number of clients also limits the concurrent transactions, because each
            // holds copies of the records that it read.
            let waiting = setup.clients.div_ceil(setup.workers);
            options = options.tune(|tuning| tuning.log_ring_bytes(SMALL_RING).cold_width(waiting));
        }
        let database = Database::open(&setup.directory, options)?;
        let made = TableOptions::default();
        let made = if setup.paged { made.paged() } else { made };
        let table = pollster::block_on(database.open_or_create_table_with("records", made))?;
        Ok(Self { database, table, setup: setup.clone() })
    }

    /// Returns a stored procedure: a source that runs calls without separate requests.
    pub fn procedure(&self, calls: Calls) -> Stored {
        Stored { calls, table: self.table.clone() }
    }

    /// Makes one call like any program: awaits the answer to a request.
    pub async fn request(&self, call: Call) -> Result<Reply, Error> {
        let table = self.table.clone();
        // Declared as read-only, as to the peers; repeated until it commits.
        let transaction = self.database.transaction().read_only(call.only_reads());
        let run =
            transaction.max_attempts(u32::MAX).run(async move |tx| run(tx, &table, &call).await);
        let outcome = run.await?;
        Ok(Reply { answer: outcome.value, conflicts: u64::from(outcome.attempts - 1) })
    }
}

/// Returns the engine's part of a budget for a whole process, which also covers stacks and the
/// allocator.
fn budget(process: u64) -> u64 {
    (process / 4 * 3).saturating_sub(16 << 20)
}

impl Store for Braid {
    fn settings(&self) -> String {
        let Setup { workers, synced, paged, .. } = self.setup;
        let table = if paged { ", a paged table" } else { "" };
        let durability = if synced { "group commit" } else { "relaxed" };
        let memory = match self.setup.budget {
            Some(process) => format!(
                "{} MiB for records, indexes and the log's ring of {} MiB",
                budget(process) >> 20,
                SMALL_RING >> 20
            ),
            None => "no bound".to_owned(),
        };
        let waiting = match self.setup.budget {
            Some(_) => format!(
                ", {} transactions a worker wait for the disk",
                self.setup.clients.div_ceil(workers)
            ),
            None => String::new(),
        };
        format!(
            "{workers} workers, durability: {durability}, memory: {memory}{waiting}{table}; else its defaults"
        )
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        let value_bytes = self.setup.value_bytes;
        let mut running = std::collections::VecDeque::new();
        for piece in pieces(records) {
            if running.len() == LOADING {
                pollster::block_on(running.pop_front().expect("there are so many"))?;
            }
            let table = self.table.clone();
            let load =
                async move |tx: &Transaction| load(tx, &table, piece.clone(), value_bytes).await;
            running.push_back(Box::pin(self.database.run(load)));
        }
        running.into_iter().try_for_each(pollster::block_on)?;
        pollster::block_on(self.database.checkpoint())?;
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Blocking(self)))
    }

    fn braid(&self) -> Option<&Braid> {
        Some(self)
    }

    fn close(&self) -> Result<(), Failure> {
        Ok(self.database.close()?)
    }
}

async fn load(
    tx: &Transaction,
    table: &Table<u64, [u8]>,
    piece: Range<u64>,
    value_bytes: usize,
) -> Result<(), Error> {
    let mut records = Vec::with_capacity((piece.end - piece.start) as usize);
    let kept: Result<(), Error> = each_record(piece, value_bytes, |key, value| {
        records.push((key, value.to_vec()));
        Ok(())
    });
    kept?;
    for (key, value) in &records {
        tx.insert(table, key, value).await?;
    }
    Ok(())
}

/// A client thread that waits for each answer.
struct Blocking<'s>(&'s Braid);

impl Client for Blocking<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        Ok(pollster::block_on(self.0.request(*call))?)
    }
}

/// Calls as the transactions of a source.
#[derive(Clone)]
pub struct Stored {
    calls: Calls,
    table: Table<u64, [u8]>,
}

impl Procedure for Stored {
    type Input = Call;
    const KINDS: &'static [&'static str] = &KINDS;

    #[inline]
    fn draw(&mut self) -> Call {
        self.calls.draw()
    }

    #[inline]
    fn kind(call: &Call) -> usize {
        call.kind()
    }

    #[inline]
    async fn run(&self, tx: &Transaction, call: &Call) -> Result<(), Error> {
        std::hint::black_box(run(tx, &self.table, call).await?);
        Ok(())
    }
}

#[inline]
async fn run(tx: &Transaction, table: &Table<u64, [u8]>, call: &Call) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    match call {
        Call::Read(keys) => {
            for key in &**keys {
                let value = tx.get(table, key).await?.ok_or_else(|| table.key_not_found(key))?;
                answer.add(*key, value);
            }
        }
        Call::Modify(keys) => {
            for key in &**keys {
                let value = tx.get(table, key).await?.ok_or_else(|| table.key_not_found(key))?;
                answer.add(*key, value);
                let mut value = value.to_vec();
                increment(&mut value);
                tx.update(table, key, &value).await?;
            }
        }
        Call::Trade(trade) => answer = trade.run(&mut InTransaction { tx, table }).await?,
        Call::Scan { from, limit } => {
            let mut scan = tx.scan(table, *from..)?.limit(*limit);
            while let Some((key, value)) = scan.next().await? {
                answer.add(key, value);
            }
        }
    }
    Ok(answer)
}

/// The table in a transaction.
struct InTransaction<'t> {
    tx: &'t Transaction,
    table: &'t Table<u64, [u8]>,
}

impl Accessed for InTransaction<'_> {
    type Failure = Error;

    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Error> {
        match access {
            Access::Get(key) => Ok(self.tx.get(self.table, &key).await?.map(<[u8]>::to_vec)),
            Access::Put(key, value) => {
                self.tx.put(self.table, &key, value).await?;
                Ok(None)
            }
            Access::Delete(key) => {
                self.tx.delete(self.table, &key).await?;
                Ok(None)
            }
        }
    }

    fn missing(key: u64) -> Error {
        Error::Panicked(format!("the record {key} is missing"))
    }
}
