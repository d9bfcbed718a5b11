//! LMDB, through `heed`. The settings follow its documentation (`lmdb.h`): integer keys
//! (MDB_INTEGERKEY), appended during loading (MDB_APPEND); MDB_NOSYNC, MDB_WRITEMAP and
//! MDB_MAPASYNC without durability; MDB_NORDAHEAD if the data is larger than memory. LMDB uses the
//! page cache, so there is no cache to configure.

use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, WithoutTls};

use super::{each_record, pieces};
use crate::answer::{Answer, Failure, Missing, increment};
use crate::call::Call;
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Trade, only_reads, run_at_once};

type Records = Database<U64<NativeEndian>, Bytes, IntegerComparator>;

pub struct Lmdb {
    env: Env<WithoutTls>,
    records: Records,
    setup: Setup,
    map_bytes: usize,
}

impl Lmdb {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let map_bytes =
            usize::try_from(setup.data_bytes * 4 + (1 << 30))?.next_multiple_of(1 << 20);
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes).max_readers(setup.clients as u32 + 16);
        // SAFETY: the flags trade durability for speed, as requested here. Only this process uses
        // the directory, so no other code changes or truncates the map while it is in use.
        let env = unsafe { options.flags(flags(setup)).open(&setup.directory)? };
        let mut tx = env.write_txn()?;
        let options = env.database_options().types().key_comparator::<IntegerComparator>();
        let records = options.create(&mut tx)?;
        tx.commit()?;
        Ok(Self { env, records, setup: setup.clone(), map_bytes })
    }
}

fn flags(setup: &Setup) -> EnvFlags {
    let mut flags = EnvFlags::empty();
    if !setup.synced {
        flags |= EnvFlags::NO_SYNC;
        if setup.budget.is_none() {
            flags |= EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC;
        }
    }
    if setup.budget.is_some() {
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    flags
}

impl Store for Lmdb {
    fn settings(&self) -> String {
        let flags = flags(&self.setup);
        format!("a map of {} MiB, integer keys, {flags:?}", self.map_bytes >> 20)
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        for piece in pieces(records) {
            let mut tx = self.env.write_txn()?;
            each_record(piece, self.setup.value_bytes, |key, value| {
                self.records.put_with_flags(&mut tx, PutFlags::APPEND, &key, value)
            })?;
            tx.commit()?;
        }
        Ok(self.env.force_sync()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Caller { store: self, value: Vec::new() }))
    }
}

struct Caller<'s> {
    store: &'s Lmdb,
    value: Vec<u8>,
}

impl Client for Caller<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let Lmdb { env, records, .. } = self.store;
        let mut answer = Answer::default();
        match call {
            Call::Read(keys) => {
                let tx = env.read_txn()?;
                for key in &**keys {
                    answer.add(*key, records.get(&tx, key)?.ok_or(Missing(*key))?);
                }
            }
            Call::Modify(keys) => {
                let mut tx = env.write_txn()?;
                for key in &**keys {
                    let value = records.get(&tx, key)?.ok_or(Missing(*key))?;
                    answer.add(*key, value);
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    increment(&mut self.value);
                    records.put(&mut tx, key, &self.value)?;
                }
                tx.commit()?;
            }
            Call::Trade(trade) => answer = self::trade(self.store, trade)?,
            Call::Scan { from, limit } => {
                let tx = env.read_txn()?;
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                for record in records.range(&tx, &(*from..))?.take(limit) {
                    let (key, value) = record?;
                    answer.add(key, value);
                }
            }
        }
        Ok(Reply { answer, conflicts: 0 })
    }
}

fn trade(store: &Lmdb, trade: &Trade) -> Result<Answer, Failure> {
    let Lmdb { env, records, .. } = store;
    if trade.only_reads() {
        let tx = env.read_txn()?;
        return run_at_once(trade, |access| match access {
            Access::Get(key) => Ok(records.get(&tx, &key)?.map(<[u8]>::to_vec)),
            _ => only_reads(),
        });
    }
    let mut tx = env.write_txn()?;
    let answer = run_at_once(trade, |access| match access {
        Access::Get(key) => Ok(records.get(&tx, &key)?.map(<[u8]>::to_vec)),
        Access::Put(key, value) => Ok(records.put(&mut tx, &key, value).map(|()| None)?),
        Access::Delete(key) => Ok(records.delete(&mut tx, &key).map(|_| None)?),
    })?;
    tx.commit()?;
    Ok(answer)
}
