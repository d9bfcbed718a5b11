//! RocksDB, with optimistic transactions. The settings follow its wiki ("Setup Options and Basic
//! Tuning"):
//!
//! - A block cache that holds all data if it fits into memory, otherwise a sixth of memory. (With a
//!   third, as advised, the process exceeds its limit.)
//! - Blocks of 16 KiB, filters of 10 bits a key, index and filter blocks in the cache.
//! - Dynamic level sizes, LZ4, as many background jobs as cores.
//! - No filters in the last level, because point reads hit.
//!
//! Reads of several keys use MultiGet at a snapshot. Modified records are read for update, so that
//! the commit validates all of them: serializable.

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, Direction, ErrorKind, IteratorMode,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, ReadOptions, WriteOptions,
};

use super::{each_record, memtable, memtable_words, pieces, until_committed};
use crate::answer::{Answer, Failure, Missing, increment};
use crate::call::Call;
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Trade, only_reads, run_at_once};

const BLOCK_BYTES: usize = 16 << 10;
const FILTER_BITS: f64 = 10.0;

pub struct RocksDb {
    database: OptimisticTransactionDB,
    setup: Setup,
}

impl RocksDb {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(cache(setup)));
        blocks.set_block_size(BLOCK_BYTES);
        blocks.set_bloom_filter(FILTER_BITS, false);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_bytes_per_sync(1 << 20);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_optimize_filters_for_hits(true);
        options.increase_parallelism(cores());
        if let Some(bytes) = memtable(setup) {
            options.set_write_buffer_size(bytes as usize);
        }
        let database = OptimisticTransactionDB::open(&options, &setup.directory)?;
        Ok(Self { database, setup: setup.clone() })
    }

    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.setup.synced);
        options
    }
}

fn cores() -> i32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as i32)
}

fn cache(setup: &Setup) -> usize {
    setup.budget.map_or_else(|| setup.ample_cache(), |budget| budget / 6) as usize
}

impl Store for RocksDb {
    fn settings(&self) -> String {
        format!(
            "a block cache of {} MiB, blocks of {} KiB, filters of {FILTER_BITS} bits a key but in the last level, LZ4, \
             a memtable of {}, {} background jobs, sync: {}",
            cache(&self.setup) >> 20,
            BLOCK_BYTES >> 10,
            memtable_words(&self.setup),
            cores(),
            self.setup.synced
        )
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        for piece in pieces(records) {
            let mut batch = rocksdb::WriteBatchWithTransaction::<true>::default();
            each_record(piece, self.setup.value_bytes, |key, value| {
                batch.put(key.to_be_bytes(), value);
                Ok::<_, Failure>(())
            })?;
            self.database.write(batch)?;
        }
        self.database.flush()?;
        self.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(self.database.flush_wal(true)?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Caller { store: self, value: Vec::new() }))
    }
}

struct Caller<'s> {
    store: &'s RocksDb,
    value: Vec<u8>,
}

impl Caller<'_> {
    /// Returns `None` after a conflict.
    fn modify(&mut self, keys: &[u64]) -> Result<Option<Answer>, Failure> {
        let mut answer = Answer::default();
        let mut options = OptimisticTransactionOptions::default();
        options.set_snapshot(true);
        let tx = self.store.database.transaction_opt(&self.store.write_options(), &options);
        let snapshot = tx.snapshot();
        let mut reads = ReadOptions::default();
        reads.set_snapshot(&snapshot);
        for key in keys {
            let value = tx.get_for_update_opt(key.to_be_bytes(), true, &reads)?;
            let value = value.ok_or(Missing(*key))?;
            answer.add(*key, &value);
            self.value.clear();
            self.value.extend_from_slice(&value);
            increment(&mut self.value);
            tx.put(key.to_be_bytes(), &self.value)?;
        }
        drop((reads, snapshot));
        match tx.commit() {
            Ok(()) => Ok(Some(answer)),
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Client for Caller<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let database = &self.store.database;
        let mut answer = Answer::default();
        match call {
            Call::Read(keys) => {
                let snapshot = database.snapshot();
                let mut reads = ReadOptions::default();
                reads.set_snapshot(&snapshot);
                let values =
                    database.multi_get_opt(keys.iter().map(|key| key.to_be_bytes()), &reads);
                for (key, value) in keys.iter().zip(values) {
                    answer.add(*key, &value?.ok_or(Missing(*key))?);
                }
            }
            Call::Trade(trade) => return until_committed(|| self::trade(self.store, trade)),
            Call::Modify(keys) => return until_committed(|| self.modify(keys)),
            Call::Scan { from, limit } => {
                let snapshot = database.snapshot();
                let from = from.to_be_bytes();
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                for record in
                    snapshot.iterator(IteratorMode::From(&from, Direction::Forward)).take(limit)
                {
                    let (key, value) = record?;
                    answer.add(u64::from_be_bytes(key[..].try_into()?), &value);
                }
            }
        }
        Ok(Reply { answer, conflicts: 0 })
    }
}

/// Returns `None` after a conflict.
fn trade(store: &RocksDb, trade: &Trade) -> Result<Option<Answer>, Failure> {
    if trade.only_reads() {
        let snapshot = store.database.snapshot();
        let answer = run_at_once(trade, |access| match access {
            Access::Get(key) => Ok(snapshot.get(key.to_be_bytes())?),
            _ => only_reads(),
        });
        return answer.map(Some);
    }
    let mut options = OptimisticTransactionOptions::default();
    options.set_snapshot(true);
    let tx = store.database.transaction_opt(&store.write_options(), &options);
    let snapshot = tx.snapshot();
    let mut reads = ReadOptions::default();
    reads.set_snapshot(&snapshot);
    let answer = run_at_once(trade, |access| match access {
        Access::Get(key) => Ok(tx.get_for_update_opt(key.to_be_bytes(), true, &reads)?),
        Access::Put(key, value) => Ok(tx.put(key.to_be_bytes(), value).map(|()| None)?),
        Access::Delete(key) => Ok(tx.delete(key.to_be_bytes()).map(|()| None)?),
    })?;
    drop((reads, snapshot));
    match tx.commit() {
        Ok(()) => Ok(Some(answer)),
        Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
