//! Transactions of the core workloads, with the number, kinds and shares of operations that the
//! workload prescribes.

use std::sync::Arc;

use braiddb::{Error as Failure, Table, Transaction};
use clap::ValueEnum;

use super::distribution::{Chooser, Distribution, key_of};
use super::numbers::Numbers;
use crate::engine::drive::Procedure;
use crate::workload::missing_record;

/// The number of fields in a record, and of bytes in each; a record is one value of consecutive
/// fields.
pub(super) const FIELDS: usize = 10;
pub(super) const FIELD_BYTES: usize = 100;
/// The maximum number of records in a scan.
const MAX_SCAN: u64 = 100;

/// The core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Core {
    /// Half reads, half updates.
    A,
    /// 95 of 100 reads, the others updates.
    B,
    /// Reads only.
    C,
    /// 95 of 100 reads, of what was inserted last; the others insertions.
    D,
    /// 95 of 100 scans, the others insertions.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl Core {
    pub(super) fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
            Self::C => 'c',
            Self::D => 'd',
            Self::E => 'e',
            Self::F => 'f',
        }
    }

    /// Returns the prescribed distribution, or `asked` if the workload prescribes none.
    pub(super) fn distribution(self, asked: Distribution) -> Distribution {
        if self == Self::D { Distribution::Latest } else { asked }
    }
}

/// The table and its number of records.
#[derive(Clone)]
pub(super) struct Records {
    pub(super) table: Table<u64, [u8]>,
    pub(super) numbers: Arc<Numbers>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read(u64),
    Update(u64),
    /// Insert the record with this number; the other operations have keys.
    Insert(u64),
    Scan(u64, u64),
    ReadModifyWrite(u64),
}

/// The operations of one transaction. The engine drops it at commit; a failure ends the
/// measurement.
pub(super) struct Operations {
    operations: Vec<Operation>,
    numbers: Arc<Numbers>,
}

impl Drop for Operations {
    fn drop(&mut self) {
        for operation in &self.operations {
            if let Operation::Insert(number) = operation {
                self.numbers.acknowledge(*number);
            }
        }
    }
}

/// Draws and runs transactions of one workload.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) core: Core,
    pub(super) records: Records,
    pub(super) chooser: Chooser,
    pub(super) random: fastrand::Rng,
    pub(super) operations: usize,
    /// The value to write: random bytes, the same each time.
    pub(super) value: Arc<[u8]>,
}

impl Client {
    fn operation(&mut self) -> Operation {
        let percent = self.random.u32(0..100);
        let (core, inserts) = (self.core, matches!(self.core, Core::D | Core::E));
        if inserts && percent >= 95 {
            return Operation::Insert(self.records.numbers.next());
        }
        let records = self.records.numbers.acknowledged();
        let key = key_of(self.chooser.record(records, &mut self.random));
        match core {
            Core::A if percent >= 50 => Operation::Update(key),
            Core::B if percent >= 95 => Operation::Update(key),
            Core::E => Operation::Scan(key, self.random.u64(1..=MAX_SCAN)),
            Core::F if percent >= 50 => Operation::ReadModifyWrite(key),
            _ => Operation::Read(key),
        }
    }

    async fn run_one(&self, tx: &Transaction, operation: Operation) -> Result<(), Failure> {
        let table = &self.records.table;
        match operation {
            Operation::Read(key) => {
                // All fields.
                let record = tx.get(table, &key).await?.ok_or_else(missing_record)?;
                std::hint::black_box(record);
            }
            Operation::Update(key) => tx.update(table, &key, &self.value).await?,
            Operation::Insert(number) => tx.insert(table, &key_of(number), &self.value).await?,
            Operation::Scan(key, length) => {
                let mut scan = tx.scan(table, key..)?.limit(length);
                while let Some(record) = scan.next().await? {
                    std::hint::black_box(record);
                }
            }
            Operation::ReadModifyWrite(key) => {
                let record = tx.get(table, &key).await?.ok_or_else(missing_record)?;
                let mut record = record.to_vec();
                let field = (key % FIELDS as u64) as usize * FIELD_BYTES;
                record[field..field + FIELD_BYTES].copy_from_slice(&self.value[..FIELD_BYTES]);
                tx.update(table, &key, &record).await?;
            }
        }
        Ok(())
    }
}

impl Procedure for Client {
    type Input = Operations;

    fn draw(&mut self) -> Operations {
        let operations = (0..self.operations).map(|_| self.operation()).collect();
        Operations { operations, numbers: self.records.numbers.clone() }
    }

    async fn run(&self, tx: &Transaction, operations: &Operations) -> Result<(), Failure> {
        for operation in &operations.operations {
            self.run_one(tx, *operation).await?;
        }
        Ok(())
    }
}
