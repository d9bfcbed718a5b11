//! Search of a table by its name. If no table has it, the error names tables that exist.

use std::ops::Bound;

use super::catalog::{CatalogEntry, is_reserved};
use super::error::{MissingTable, Result};
use super::table_description::TableDescription;
use super::transaction::Transaction;
use crate::sched::engine_code;
use crate::transaction::ScanBounds;

/// Maximum number of tables that an error names.
const MAX_NAMED_TABLES: usize = 8;
/// Maximum number of catalog rows that are read to find them.
const MAX_ROWS: usize = 64;

impl Transaction {
    /// Returns the description of an existing table.
    ///
    /// # Errors
    /// [`Error::TableNotFound`](super::Error) with the names of existing tables; the errors of
    /// [`Transaction::get`].
    pub(super) async fn describe_existing(&self, name: &str) -> Result<TableDescription> {
        match self.describe(name).await? {
            Some(found) => Ok(found),
            None => {
                let missing = MissingTable::new(name);
                // The error has no names if they cannot be read.
                Err(self.with_tables(missing.clone()).await.unwrap_or(missing).into())
            }
        }
    }

    /// Adds the names of the first tables.
    async fn with_tables(&self, missing: MissingTable) -> Result<MissingTable> {
        let (mut existing, mut has_more) = (Vec::new(), false);
        let catalog = self.catalog();
        let bounds = ScanBounds { low: Bound::Unbounded, high: Bound::Unbounded };
        let mut scan = self.core().scan(&catalog, bounds);
        for row in 0.. {
            if !engine_code(scan.load()).await? {
                break;
            }
            has_more = row == MAX_ROWS || existing.len() == MAX_NAMED_TABLES;
            if has_more {
                break;
            }
            let (key, bytes) = scan.current().expect("loaded");
            if let CatalogEntry::Table(table) = CatalogEntry::decode(key, bytes)?
                && !is_reserved(&table.name)
            {
                existing.push(table.name);
            }
            scan.pass();
        }
        Ok(MissingTable { existing: Some(existing), has_more, ..missing })
    }
}
