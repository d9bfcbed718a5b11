//! The stores, one in each file: setup, loading and calls. Each names the documentation that its
//! settings follow.

pub mod braid;
pub mod fjall;
pub mod lmdb;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;

use std::ops::Range;

use braid_workloads::random::key_of;

use crate::answer::{Answer, Failure};
use crate::call::fill;
use crate::store::{Reply, Setup};

/// The number of records that one loading transaction writes.
const PIECE: u64 = 1_000;

/// Returns the pieces of a load, in order.
fn pieces(records: u64) -> impl Iterator<Item = Range<u64>> {
    (0..records).step_by(PIECE as usize).map(move |from| from..records.min(from + PIECE))
}

/// Passes the key and the value of each record in a piece to `put`.
fn each_record<E>(
    piece: Range<u64>,
    value_bytes: usize,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut value = Vec::with_capacity(value_bytes);
    for record in piece {
        fill(record, value_bytes, &mut value);
        put(key_of(record), &value)?;
    }
    Ok(())
}

/// Attempts a transaction until it commits. An attempt returns `None` after a conflict.
fn until_committed(
    mut attempt: impl FnMut() -> Result<Option<Answer>, Failure>,
) -> Result<Reply, Failure> {
    let mut conflicts = 0;
    loop {
        if let Some(answer) = attempt()? {
            return Ok(Reply { answer, conflicts });
        }
        conflicts += 1;
    }
}

/// Returns the size of a memtable within a budget, if any; several memtables may exist at a time.
fn memtable(setup: &Setup) -> Option<u64> {
    setup.budget.map(|budget| (budget / 16).max(1 << 20))
}

/// Describes the size of a memtable.
fn memtable_words(setup: &Setup) -> String {
    memtable(setup).map_or("its default".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
}
