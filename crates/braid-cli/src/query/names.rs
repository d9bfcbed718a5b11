//! Unknown columns of a question are errors that list the columns that exist.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use braiddb::InteractiveTransaction;

use super::{ColumnNames, Query};
use crate::codec::ValueType;
use crate::shown::{MAX_NAMES, listed};
use crate::verb::pages::{self, Range};

/// The columns that were not found yet, and those that exist.
#[derive(Debug, Default)]
struct Search {
    missing: Vec<String>,
    existing: Vec<String>,
    /// Number of records that were read.
    records: u64,
}

/// Ends the search: all columns were found.
#[derive(Debug)]
struct Found;

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all columns were found")
    }
}

impl std::error::Error for Found {}

impl Query {
    /// Checks that each column of the question exists in a record of the table. Reads records only
    /// until all columns were found. A table without records has the columns of its type; if the
    /// catalog does not know them, it has any column.
    ///
    /// # Errors
    /// If a column does not exist; errors of reading.
    pub fn check_names(&self, transaction: &InteractiveTransaction) -> Result<()> {
        let conditions = self.conditions.iter().map(|condition| &condition.column);
        let order = self.order.iter().map(|order| &order.column);
        let asked = conditions.chain(order).chain(self.columns.iter().flatten());
        let missing: Vec<String> = asked.cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let search = Arc::new(Mutex::new(Search { missing, ..Search::default() }));
        let (query, shared) = (self.clone(), search.clone());
        let look = move |_: &mut Vec<u8>, key: &[u8], value: &[u8]| {
            let record = query.record(key, value)?;
            let mut search = shared.lock().unwrap_or_else(PoisonError::into_inner);
            search.records += 1;
            search.missing.retain(|name| record.column(name).is_none());
            if search.missing.is_empty() {
                return Err(Found.into());
            }
            for name in record.columns() {
                if search.existing.len() <= MAX_NAMES && !search.existing.contains(&name) {
                    search.existing.push(name);
                }
            }
            Ok(false)
        };
        let looked = pages::write(transaction, &self.table, Range::all(), look, std::io::sink());
        if let Err(error) = looked
            && !error.is::<Found>()
        {
            return Err(error);
        }
        let search = search.lock().unwrap_or_else(PoisonError::into_inner);
        let has_records = search.records > 0;
        let missing = match has_records {
            true => search.missing.first(),
            false => search.missing.iter().find(|name| !self.may_have(name)),
        };
        let Some(name) = missing else { return Ok(()) };
        let existing = match has_records {
            true => search.existing.clone(),
            false => self.columns_of_type(),
        };
        let is_order = self.order.iter().any(|order| order.column == *name);
        if let Some((column, direction)) = name.rsplit_once(':').filter(|_| is_order)
            && existing.iter().any(|name| Some(&**name) == column.split('.').next())
        {
            bail!(
                "--order {name:?}: {direction:?} is no direction; write {column}:asc or {column}:desc"
            );
        }
        let existing = listed(existing.iter().map(String::as_str));
        let table = &self.table.name;
        match has_records {
            true => bail!(
                "no record of table {table:?} has a column {name:?}; the columns are {existing}"
            ),
            false => bail!(
                "table {table:?} has no records, and its type has no column {name:?}; the columns \
                 are {existing}"
            ),
        }
    }

    /// Returns whether a record of the table may have a column, by the types in the catalog.
    fn may_have(&self, column: &str) -> bool {
        let ValueType::Postcard(kind) = &self.table.value else { return true };
        let ColumnNames { key, value } = &self.names;
        if key.iter().any(|name| name == column) || column == value || kind.may_have(column) {
            return true;
        }
        match column.split_once('.') {
            Some((first, path)) if key[..] == [first] => self.table.key.may_have(path),
            Some((first, path)) => first == value && kind.may_have(path),
            None => false,
        }
    }

    /// The columns of the types in the catalog.
    fn columns_of_type(&self) -> Vec<String> {
        let mut columns = self.names.key.clone();
        if let ValueType::Postcard(kind) = &self.table.value {
            columns.extend(kind.all_fields());
        }
        if columns.len() == self.names.key.len() {
            columns.push(self.names.value.clone());
        }
        columns
    }
}
