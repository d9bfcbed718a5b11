//! A database with hot records in memory and cold ones on disk.

use braiddb::{Database, Options, Overload, Policy, Table, TableOptions, Transaction, Width};

use crate::engine::fixture::Bed;
use crate::error::Error;
use crate::harness::place::Place;
use crate::random::key_of;

/// The number of hot records for each cold one.
const HOT_PER_COLD: u64 = 100;

/// Returns the number of cold records for `hot` hot ones.
pub(super) fn cold_records(hot: u64) -> u64 {
    (hot / HOT_PER_COLD).max(100)
}

#[derive(Clone)]
pub(super) struct HotCold {
    pub(super) hot: Bed,
    /// Read from disk every time.
    pub(super) cold: Table<u64, [u8]>,
    pub(super) cold_records: u64,
}

impl HotCold {
    /// Creates `records` hot records, and a hundredth as many cold ones of `value_bytes`.
    pub(super) fn build(
        place: &Place,
        name: &str,
        options: Options,
        records: u64,
        value_bytes: usize,
    ) -> Result<Self, Error> {
        let directory = place.join(name);
        let cold_records = cold_records(records);
        let loading = options.clone().tune(|tuning| {
            tuning.policy(Policy::DualQueue).hot_width(Width::Auto).overload(Overload::Wait)
        });
        let database = Database::open(&directory, loading)?;
        let table = pollster::block_on(database.run(async |tx: &Transaction| {
            let uncached = TableOptions::default().cache_cold(false);
            tx.create_table_with::<u64, [u8]>("cold", uncached).await
        }))?;
        let load = database.run_source(0, 0..cold_records, async move |tx, record: &u64| {
            tx.insert(&table, &key_of(*record), &vec![*record as u8; value_bytes]).await
        });
        load?.wait()?;
        pollster::block_on(database.checkpoint())?;
        database.close()?;
        drop(database);
        // After reopening, the cold records are only on disk.
        let database = Database::open(&directory, options)?;
        let cold = pollster::block_on(database.open_table("cold"))?;
        Ok(Self { hot: Bed::fill(database, records)?, cold, cold_records })
    }
}
