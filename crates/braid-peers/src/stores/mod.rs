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

use crate::call::fill;

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
