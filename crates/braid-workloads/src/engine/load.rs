//! Loading a table in key order on one worker: a batch of consecutive records a transaction, each
//! in a source of its own, because a worker runs one source after the other. Were they one source,
//! the worker would interleave the batches, and keys would not come in order.

use std::time::Instant;

use braiddb::{Database, Transaction};

use super::bed::Bed;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::rounds::Sample;
use crate::random::key_of;

/// Records one loading transaction inserts.
const BATCH: u64 = 1_000;
/// Batches sent ahead of the one that is waited for.
const AHEAD: u64 = 64;

/// Loads all records of `bed`, whose table is empty; the value is the record's number.
pub(crate) fn load(bed: &Bed) -> Result<Sample, Error> {
    let begin = Instant::now();
    let batches = bed.records.div_ceil(BATCH);
    let mut runs = std::collections::VecDeque::with_capacity(AHEAD as usize);
    for batch in 0..batches {
        if runs.len() as u64 == AHEAD {
            let oldest: braiddb::SourceRun = runs.pop_front().expect("there are so many");
            oldest.wait()?;
        }
        let records = batch * BATCH..bed.records.min((batch + 1) * BATCH);
        let table = bed.table.clone();
        let body = async move |tx: &Transaction, records: &std::ops::Range<u64>| {
            for record in records.clone() {
                tx.insert(&table, &key_of(record), &record).await?;
            }
            Ok(())
        };
        runs.push_back(bed.database.run_source(0, [records], body)?);
    }
    for run in runs {
        run.wait()?;
    }
    Ok(Sample::plain(batches, begin.elapsed(), Latencies::one_in(1)))
}

/// Loads `records` records into a new table, as a program does that has them in an iterator.
pub(crate) fn load_staged(database: &Database, records: u64) -> Result<Sample, Error> {
    let begin = Instant::now();
    let staged = pollster::block_on(database.stage_table::<u64, u64>("records"))?;
    let rows = (0..records).map(|record| (key_of(record), record));
    let mut batches = 0;
    pollster::block_on(staged.load(rows, |_| batches += 1))?;
    pollster::block_on(staged.publish())?;
    Ok(Sample::plain(batches, begin.elapsed(), Latencies::one_in(1)))
}
