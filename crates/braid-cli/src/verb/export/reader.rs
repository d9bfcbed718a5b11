//! The records that an export reads: those of its question, in key order or sorted.

use std::io::Write;

use anyhow::Result;
use braiddb::InteractiveTransaction;

use super::row_format::RowFormat;
use crate::any_table::AnyTable;
use crate::arguments::Export;
use crate::query::{ColumnNames, Query, Record};
use crate::verb::pages::Range;

/// Reads the records of an export. Each pass returns the same records.
pub struct Reader<'t> {
    transaction: &'t InteractiveTransaction,
    pub table: AnyTable,
    pub query: Query,
    pub names: ColumnNames,
}

impl<'t> Reader<'t> {
    /// # Errors
    /// If the question is malformed.
    pub fn new(
        transaction: &'t InteractiveTransaction,
        table: AnyTable,
        export: &Export,
    ) -> Result<Self> {
        let mut names = ColumnNames::default();
        if let Some(key) = &export.key {
            names.key.clone_from(key);
        }
        if let Some(value) = &export.value {
            names.value.clone_from(value);
        }
        let query = Query::new(table.clone(), names.clone(), &export.questions)?;
        Ok(Self { transaction, table, query, names })
    }

    /// Writes all records as rows. Returns their number.
    pub fn write(&self, rows: &RowFormat, out: impl Write + Send) -> Result<u64> {
        let (query, rows) = (self.query.clone(), rows.clone());
        let append = move |page: &mut Vec<u8>, key: &[u8], value: &[u8]| {
            rows.append(page, &query, key, value)?;
            Ok(true)
        };
        self.query.write(self.transaction, Range::all(), append, out)
    }

    /// Passes each record to a function.
    pub fn each(
        &self,
        see: impl Fn(&Record<'_>) -> Result<()> + Clone + Send + 'static,
    ) -> Result<()> {
        let query = self.query.clone();
        let append = move |_: &mut Vec<u8>, key: &[u8], value: &[u8]| {
            see(&query.record(key, value)?)?;
            Ok(false)
        };
        self.query.write(self.transaction, Range::all(), append, std::io::sink())?;
        Ok(())
    }

    /// Counts the records.
    pub fn count(&self) -> Result<u64> {
        let append = |_: &mut Vec<u8>, _: &[u8], _: &[u8]| Ok(true);
        self.query.write(self.transaction, Range::all(), append, std::io::sink())
    }

    /// The names of the columns of the first record, or `None` without records.
    pub fn first_columns(&self) -> Result<Option<Vec<String>>> {
        let query = self.query.clone();
        let append = move |page: &mut Vec<u8>, key: &[u8], value: &[u8]| {
            serde_json::to_writer(page, &query.record(key, value)?.columns())?;
            Ok(true)
        };
        let (mut first, range) = (Vec::new(), Range { limit: 1, ..Range::all() });
        self.query.write(self.transaction, range, append, &mut first)?;
        Ok(if first.is_empty() { None } else { Some(serde_json::from_slice(&first)?) })
    }
}
