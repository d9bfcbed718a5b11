//! redb. Its documentation names two settings: the cache size (`set_cache_size`) and the durability
//! of a transaction. The cache holds all data in memory, or half of a budget, because the process
//! uses a quarter more than the cache. Only one writer runs at a time; others wait for it.

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{each_record, pieces};
use crate::answer::{Answer, Failure, Missing, increment};
use crate::call::Call;
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Trade, only_reads, run_at_once};

const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

pub struct Redb {
    database: Database,
    setup: Setup,
}

impl Redb {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(cache(setup))?);
        let database = builder.create(setup.directory.join("records.redb"))?;
        Ok(Self { database, setup: setup.clone() })
    }

    fn durability(&self) -> Durability {
        if self.setup.synced { Durability::Immediate } else { Durability::None }
    }
}

fn cache(setup: &Setup) -> u64 {
    setup.budget.map_or_else(|| setup.ample_cache(), |budget| budget / 2)
}

impl Store for Redb {
    fn settings(&self) -> String {
        format!("a cache of {} MiB, durability: {:?}", cache(&self.setup) >> 20, self.durability())
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        let pieces: Vec<_> = pieces(records).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let mut tx = self.database.begin_write()?;
            // Without occasional durable commits, freed pages are not reused.
            let durable = number % 16 == 15 || number + 1 == pieces.len();
            tx.set_durability(if durable { Durability::Immediate } else { Durability::None })?;
            {
                let mut table = tx.open_table(RECORDS)?;
                each_record(piece.clone(), self.setup.value_bytes, |key, value| {
                    table.insert(key, value).map(drop)
                })?;
            }
            tx.commit()?;
        }
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Caller { store: self, value: Vec::new() }))
    }
}

struct Caller<'s> {
    store: &'s Redb,
    value: Vec<u8>,
}

impl Client for Caller<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let database = &self.store.database;
        let mut answer = Answer::default();
        match call {
            Call::Read(keys) => {
                let table = database.begin_read()?.open_table(RECORDS)?;
                for key in &**keys {
                    answer.add(*key, table.get(key)?.ok_or(Missing(*key))?.value());
                }
            }
            Call::Modify(keys) => {
                let mut tx = database.begin_write()?;
                tx.set_durability(self.store.durability())?;
                {
                    let mut table = tx.open_table(RECORDS)?;
                    for key in &**keys {
                        self.value.clear();
                        self.value.extend_from_slice(table.get(key)?.ok_or(Missing(*key))?.value());
                        answer.add(*key, &self.value);
                        increment(&mut self.value);
                        table.insert(key, &*self.value)?;
                    }
                }
                tx.commit()?;
            }
            Call::Trade(trade) => answer = self::trade(self.store, trade)?,
            Call::Scan { from, limit } => {
                let table = database.begin_read()?.open_table(RECORDS)?;
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                for record in table.range(*from..)?.take(limit) {
                    let (key, value) = record?;
                    answer.add(key.value(), value.value());
                }
            }
        }
        Ok(Reply { answer, conflicts: 0 })
    }
}

fn trade(store: &Redb, trade: &Trade) -> Result<Answer, Failure> {
    if trade.only_reads() {
        let table = store.database.begin_read()?.open_table(RECORDS)?;
        return run_at_once(trade, |access| match access {
            Access::Get(key) => Ok(table.get(key)?.map(|value| value.value().to_vec())),
            _ => only_reads(),
        });
    }
    let mut tx = store.database.begin_write()?;
    tx.set_durability(store.durability())?;
    let answer = {
        let mut table = tx.open_table(RECORDS)?;
        run_at_once(trade, |access| match access {
            Access::Get(key) => Ok(table.get(key)?.map(|value| value.value().to_vec())),
            Access::Put(key, value) => Ok(table.insert(key, value).map(|_| None)?),
            Access::Delete(key) => Ok(table.remove(key).map(|_| None)?),
        })?
    };
    tx.commit()?;
    Ok(answer)
}
