//! Loading a table in key order: one worker, so many consecutive records a transaction.

use braiddb::{Table, Transaction};

use super::bed::Bed;
use super::drive::{Procedure, drive};
use crate::error::Error;
use crate::harness::rounds::{Effort, Sample};
use crate::random::key_of;

/// Records one loading transaction inserts.
const BATCH: u64 = 1_000;

/// Inserts records `next..end`, a batch a transaction. The value is the record's number.
#[derive(Clone)]
struct Loading {
    table: Table<u64, u64>,
    next: u64,
    end: u64,
}

impl Procedure for Loading {
    type Input = std::ops::Range<u64>;

    fn draw(&mut self) -> Self::Input {
        let start = self.next;
        self.next = self.end.min(start + BATCH);
        assert!(start < self.next, "there are as many transactions as batches");
        start..self.next
    }

    async fn run(&self, tx: &Transaction, input: &Self::Input) -> Result<(), braiddb::Error> {
        for record in input.clone() {
            tx.insert(&self.table, &key_of(record), &record).await?;
        }
        Ok(())
    }
}

/// Loads all records of `bed`, whose table is empty.
pub(crate) fn load(bed: &Bed) -> Result<Sample, Error> {
    let loading = Loading { table: bed.table.clone(), next: 0, end: bed.records };
    let batches = Effort::Transactions(bed.records.div_ceil(BATCH));
    drive(&bed.database, 1, |_| loading.clone(), batches, 1)
}
