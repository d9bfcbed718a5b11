//! fjall, with optimistic (serializable) transactions. The settings follow its documentation: a
//! cache that holds all data if it fits into memory, otherwise a quarter of memory; filters for
//! point reads that hit (`expect_point_read_hits`); `PersistMode::SyncData` for durable commits,
//! `PersistMode::Buffer` (handed to the system) for others.

use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};

use super::{each_record, memtable, memtable_words, pieces, until_committed};
use crate::answer::{Answer, Failure, Missing, increment};
use crate::call::Call;
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Trade, only_reads, run_at_once};

pub struct Fjall {
    database: OptimisticTxDatabase,
    records: OptimisticTxKeyspace,
    setup: Setup,
}

impl Fjall {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let database =
            OptimisticTxDatabase::builder(&setup.directory).cache_size(cache(setup)).open()?;
        let options = || {
            let options = KeyspaceCreateOptions::default().expect_point_read_hits(true);
            match memtable(setup) {
                Some(bytes) => options.max_memtable_size(bytes),
                None => options,
            }
        };
        let records = database.keyspace("records", options)?;
        Ok(Self { database, records, setup: setup.clone() })
    }

    fn persist_mode(&self) -> PersistMode {
        if self.setup.synced { PersistMode::SyncData } else { PersistMode::Buffer }
    }
}

fn cache(setup: &Setup) -> u64 {
    setup.budget.map_or_else(|| setup.ample_cache(), |budget| budget / 4)
}

impl Store for Fjall {
    fn settings(&self) -> String {
        format!(
            "a cache of {} MiB, a memtable of {}, point reads expected to hit, persist mode: {:?}",
            cache(&self.setup) >> 20,
            memtable_words(&self.setup),
            self.persist_mode()
        )
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        for piece in pieces(records) {
            let mut tx = self.database.write_tx()?;
            each_record(piece, self.setup.value_bytes, |key, value| {
                tx.insert(&self.records, key.to_be_bytes(), value);
                Ok::<_, Failure>(())
            })?;
            if tx.commit()?.is_err() {
                return Err("a load met a conflict without another writer".into());
            }
        }
        self.records.inner().rotate_memtable_and_wait()?;
        self.records.inner().major_compact()?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Caller { store: self, value: Vec::new() }))
    }
}

struct Caller<'s> {
    store: &'s Fjall,
    value: Vec<u8>,
}

impl Caller<'_> {
    /// Returns `None` after a conflict.
    fn modify(&mut self, keys: &[u64]) -> Result<Option<Answer>, Failure> {
        let Fjall { database, records, .. } = self.store;
        let mut answer = Answer::default();
        let mut tx = database.write_tx()?.durability(Some(self.store.persist_mode()));
        for key in keys {
            let value = tx.get(records, key.to_be_bytes())?.ok_or(Missing(*key))?;
            answer.add(*key, &value);
            self.value.clear();
            self.value.extend_from_slice(&value);
            increment(&mut self.value);
            tx.insert(records, key.to_be_bytes(), &*self.value);
        }
        Ok(tx.commit()?.is_ok().then_some(answer))
    }
}

impl Client for Caller<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let Fjall { database, records, .. } = self.store;
        let mut answer = Answer::default();
        match call {
            Call::Read(keys) => {
                let tx = database.read_tx();
                for key in &**keys {
                    let value = tx.get(records, key.to_be_bytes())?.ok_or(Missing(*key))?;
                    answer.add(*key, &value);
                }
            }
            Call::Trade(trade) => return until_committed(|| self::trade(self.store, trade)),
            Call::Modify(keys) => return until_committed(|| self.modify(keys)),
            Call::Scan { from, limit } => {
                let tx = database.read_tx();
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                for record in tx.range(records, from.to_be_bytes()..).take(limit) {
                    let (key, value) = record.into_inner()?;
                    answer.add(u64::from_be_bytes(key[..].try_into()?), &value);
                }
            }
        }
        Ok(Reply { answer, conflicts: 0 })
    }
}

/// Returns `None` after a conflict.
fn trade(store: &Fjall, trade: &Trade) -> Result<Option<Answer>, Failure> {
    let Fjall { database, records, .. } = store;
    if trade.only_reads() {
        let tx = database.read_tx();
        let answer = run_at_once(trade, |access| match access {
            Access::Get(key) => Ok(tx.get(records, key.to_be_bytes())?.map(|value| value.to_vec())),
            _ => only_reads(),
        });
        return answer.map(Some);
    }
    let mut tx = database.write_tx()?.durability(Some(store.persist_mode()));
    let answer = run_at_once(trade, |access| {
        match access {
            Access::Get(key) => {
                return Ok(tx.get(records, key.to_be_bytes())?.map(|value| value.to_vec()));
            }
            Access::Put(key, value) => tx.insert(records, key.to_be_bytes(), value),
            Access::Delete(key) => tx.remove(records, key.to_be_bytes()),
        }
        Ok(None)
    })?;
    Ok(tx.commit()?.is_ok().then_some(answer))
}
