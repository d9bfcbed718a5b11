//! Loads tables in key order. Each transaction inserts a piece of consecutive records and is a
//! separate source, because a worker runs one source after the other. If all pieces were one
//! source, the worker would interleave them, and keys would arrive out of order.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use braiddb::{Database, SourceRun, Transaction};

use super::fixture::Bed;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::rounds::Sample;
use crate::random::key_of;

/// The number of records that one loading transaction inserts.
const PIECE: u64 = 1_000;
/// The number of pieces sent ahead.
const AHEAD: usize = 64;

/// Runs `insert` for all records, in transactions of this size, with the pieces in turn on this
/// number of workers.
pub(crate) fn load_in_pieces(
    database: &Database,
    workers: usize,
    records: Range<u64>,
    piece: u64,
    insert: impl AsyncFn(&Transaction, &Range<u64>) -> Result<(), braiddb::Error>
    + Clone
    + Send
    + 'static,
) -> Result<(), Error> {
    let mut running: VecDeque<SourceRun> = VecDeque::with_capacity(AHEAD);
    for (start, worker) in records.clone().step_by(piece as usize).zip((0..workers).cycle()) {
        if running.len() == AHEAD {
            running.pop_front().expect("there are so many").wait()?;
        }
        let piece = start..records.end.min(start + piece);
        running.push_back(database.run_source(worker, [piece], insert.clone())?);
    }
    Ok(running.into_iter().try_for_each(SourceRun::wait)?)
}

/// Loads all records of `bed`, whose table is empty. The value is the record's number.
pub(crate) fn load(bed: &Bed) -> Result<Sample, Error> {
    let begin = Instant::now();
    let table = bed.table.clone();
    let insert = async move |tx: &Transaction, records: &Range<u64>| {
        for record in records.clone() {
            tx.insert(&table, &key_of(record), &record).await?;
        }
        Ok(())
    };
    load_in_pieces(&bed.database, 1, 0..bed.records, PIECE, insert)?;
    let pieces = bed.records.div_ceil(PIECE);
    Ok(Sample::plain(pieces, begin.elapsed(), Latencies::one_in(1)))
}

/// Loads `records` records from an iterator into a new table.
pub(crate) fn load_staged(database: &Database, records: u64) -> Result<Sample, Error> {
    let begin = Instant::now();
    let staged = pollster::block_on(database.stage_table::<u64, u64>("records"))?;
    let rows = (0..records).map(|record| (key_of(record), record));
    let mut batches = 0;
    pollster::block_on(staged.load(rows, |_| batches += 1))?;
    pollster::block_on(staged.publish())?;
    Ok(Sample::plain(batches, begin.elapsed(), Latencies::one_in(1)))
}
