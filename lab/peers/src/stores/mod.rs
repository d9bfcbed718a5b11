//! One file a store: how it is set up, filled and called. Each names the documentation that its settings follow.

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

/// Records that one loading transaction writes.
const PIECE: u64 = 1_000;

/// The pieces of a load, in order.
fn pieces(records: u64) -> impl Iterator<Item = Range<u64>> {
    (0..records).step_by(PIECE as usize).map(move |from| from..records.min(from + PIECE))
}

/// Hands each record of a piece to `put`: its key and its value.
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

/// Makes attempts at a transaction, each of which gives `None` after a conflict, until one commits.
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

/// Bytes of a memtable within a budget, if there is one: several may be there at a time.
fn memtable(setup: &Setup) -> Option<u64> {
    setup.budget.map(|budget| (budget / 16).max(1 << 20))
}

/// The same in words.
fn memtable_words(setup: &Setup) -> String {
    memtable(setup).map_or("its default".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
}
