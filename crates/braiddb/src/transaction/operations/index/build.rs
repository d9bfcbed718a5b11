//! Index build: fills a secondary index with existing records in many short, concurrent
//! transactions.

use std::ops::Bound;

use super::keys::keys_of;
use crate::record::{Records, Secondary};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::{IndexError, OperationError};
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::operations::paged::check_fits;
use crate::transaction::operations::scan_bounds::ScanBounds;
use crate::types::KeyBuffer;

/// The work of one transaction of an index build.
#[derive(Debug)]
pub(crate) struct IndexBuildStep {
    /// Number of records processed.
    pub(crate) records: u64,
    /// The key of the last one; `None` if no records are left.
    pub(crate) last: Option<KeyBuffer>,
}

impl ActiveTransaction {
    /// Creates the missing entries of the next records of a table, up to `most` records.
    ///
    /// A transaction that writes one of the records after this one began inserts its new keys, and
    /// removes its old ones whether or not their entries exist. So of two transactions that write
    /// an entry for one record, one fails.
    ///
    /// # Errors
    /// `Conflict`; `DuplicateKey`; `Panicked`; those of a scan and a write.
    pub(crate) async fn fill_index(
        &self,
        table: &Records,
        index: &Secondary,
        after: Option<KeyBuffer>,
        most: u64,
    ) -> Result<IndexBuildStep, OperationError> {
        // The build may have been dropped, and the index as well. A drop of the index waits only
        // for transactions that began before the index was marked.
        if index.is_dropped() {
            let (table, index) = (table.name().to_string(), index.name().to_owned());
            return Err(IndexError::NotFound { table, index }.into());
        }
        if self.mode().is_read_only() {
            return Err(self.refused_write(table));
        }
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(table, ScanBounds { low, high: Bound::Unbounded });
        scan.expect_records(most);
        let (mut records, mut last) = (0, None);
        while records < most {
            if !scan.load().await? {
                return Ok(IndexBuildStep { records, last: None });
            }
            let (primary, stored) = scan.current().expect("loaded");
            if self.unexpired(table, stored).is_some() {
                for part in keys_of(table, index, Some(stored))? {
                    self.make_entry(table, index, &part, primary).await?;
                }
            } else {
                // An expired record needs no entry, and its keys might conflict with others.
                self.write_indexed(table, primary, WriteIntent::Expire, None).await?;
            }
            (records, last) = (records + 1, Some(KeyBuffer::from_slice(primary)));
            scan.pass();
        }
        Ok(IndexBuildStep { records, last })
    }

    /// Creates the entry of a record if it is missing.
    async fn make_entry(
        &self,
        table: &Records,
        index: &Secondary,
        part: &[u8],
        primary: &[u8],
    ) -> Result<(), OperationError> {
        let (entries, key) = (index.entries(), index.entry_key(part, primary));
        check_fits(entries, &key)?;
        let value = index.entry_value(primary);
        if !index.is_unique() {
            if !self.contains(entries, &key).await? {
                self.write_record(entries, &key, WriteIntent::Insert(value)).await?;
            }
            return Ok(());
        }
        let owner = loop {
            let Some(owner) = self.owner_of(index, &key).await? else {
                self.write_record(entries, &key, WriteIntent::Insert(value)).await?;
                return Ok(());
            };
            if *owner == *primary {
                return Ok(());
            }
            // The owner may have expired since it was inserted.
            if !table.expires()
                || !self.write_indexed(table, &owner, WriteIntent::Expire, None).await?
            {
                break owner;
            }
        };
        let records = Box::new([&*owner, primary].map(|record| table.encoded_key(record)));
        let key = entries.encoded_key(part);
        let (table, index) = (table.name().to_string(), index.name().to_owned());
        Err(IndexError::DuplicateKey { table, index, key, records }.into())
    }
}
