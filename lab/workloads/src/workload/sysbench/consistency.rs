//! The invariants of the tables: all rows are present and complete, and the index finds each row by
//! its `k`.

use braiddb::{Database, Transaction};

use super::rows::{Rows, Tables, is_whole};
use crate::error::Error;

/// Checks all tables, each of `size` rows, in one transaction. Returns the sum of all `k`.
///
/// # Errors
/// Returns [`Error::Wrong`] with the first violation.
pub(super) fn check(database: &Database, tables: &Tables, size: u32) -> Result<i64, Error> {
    let tables = tables.clone();
    let check = async move |tx: &Transaction| {
        let mut sum = 0;
        for rows in tables.iter() {
            sum += check_one(tx, rows, size).await?;
        }
        Ok::<_, Error>(sum)
    };
    Ok(pollster::block_on(database.transaction().read_only(true).try_run(check))?.value)
}

async fn check_one(tx: &Transaction, rows: &Rows, size: u32) -> Result<i64, Error> {
    let mut found = tx.scan(&rows.table, ..)?;
    let (mut sum, mut expected) = (0, Vec::with_capacity(size as usize));
    for id in 1..=size {
        let Some((_, row)) = found.next().await?.filter(|(there, _)| *there == id) else {
            return Err(Error::Wrong(format!("there is no row {id}")));
        };
        if !is_whole(row) {
            return Err(Error::Wrong(format!("row {id} is not whole: {row:?}")));
        }
        sum += i64::from(row.k());
        expected.push((row.k(), id));
    }
    if let Some((id, _)) = found.next().await? {
        return Err(Error::Wrong(format!("there is a row {id}, which is one too many")));
    }
    expected.sort_unstable();
    let mut entries = tx.entries_by(&rows.by_k, ..)?;
    for (k, id) in expected {
        let entry = entries.next().await?;
        if entry != Some((k, id)) {
            let told = format!("row {id} has k {k}, but the index has {entry:?}");
            return Err(Error::Wrong(told));
        }
    }
    match entries.next().await? {
        Some(entry) => Err(Error::Wrong(format!("the index entry {entry:?} has no row"))),
        None => Ok(sum),
    }
}
