//! Unknown columns of a question are errors that list the columns that exist.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use braiddb::InteractiveTransaction;

use super::Query;
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
    /// until all columns were found. A table without records has any column.
    ///
    /// # Errors
    /// If a column does not exist; errors of reading.
    pub(super) fn check_names(&self, transaction: &InteractiveTransaction) -> Result<()> {
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
        match search.missing.first() {
            Some(name) if search.records > 0 => {
                let existing = listed(search.existing.iter().map(String::as_str));
                bail!(
                    "no record of table {:?} has a column {name:?}; the columns are {existing}",
                    self.table.name
                )
            }
            _ => Ok(()),
        }
    }
}
