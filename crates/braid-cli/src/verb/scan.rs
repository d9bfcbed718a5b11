//! `scan`.

use std::ops::Bound;
use std::process::ExitCode;

use anyhow::Result;
use braiddb::{Database, InteractiveTransaction};
use pollster::block_on;

use super::pages::Range;
use crate::any_table::AnyTable;
use crate::arguments::Scan;
use crate::output::{self, Output};
use crate::query::{ColumnNames, Query};

/// Prints the records of a range.
pub fn run(db: &Database, scan: &Scan, output: &Output) -> Result<ExitCode> {
    print(&block_on(db.transaction().read_only(true).begin())?, scan, output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the records of a range that a transaction sees.
pub fn print(transaction: &InteractiveTransaction, scan: &Scan, output: &Output) -> Result<()> {
    let name = scan.table.clone();
    let table = block_on(transaction.step(async move |tx| AnyTable::open(tx, &name).await))?;
    let (range, output) = (range(scan, &table)?, *output);
    let query = Query::new(table.clone(), ColumnNames::default(), &scan.questions)?;
    let row = query.clone();
    let append = move |page: &mut Vec<u8>, key: &[u8], value: &[u8]| {
        match &row.columns {
            None => output.format_record(page, &table, key, value)?,
            Some(columns) => output.format_columns(page, columns, &row.record(key, value)?),
        }
        Ok(true)
    };
    let records = query.write(transaction, range, append, output::stdout()?)?;
    match (query.count, output.json) {
        (false, _) => Ok(()),
        (true, false) => output.line(&records.to_string()),
        (true, true) => output.document(&serde_json::json!({ "count": records })),
    }
}

/// The range that the arguments describe.
///
/// # Errors
/// If a bound is not a key of the table.
fn range(scan: &Scan, table: &AnyTable) -> Result<Range> {
    let encode = |word: &String| table.key.encode(word);
    let bound = |included: &Option<String>, excluded: &Option<String>| {
        Ok::<_, anyhow::Error>(match (included, excluded) {
            (Some(key), _) => Bound::Included(encode(key)?),
            (None, Some(key)) => Bound::Excluded(encode(key)?),
            (None, None) => Bound::Unbounded,
        })
    };
    Ok(Range {
        low: bound(&scan.from, &scan.after)?,
        high: bound(&scan.to, &scan.before)?,
        prefix: scan.prefix.as_ref().map(|word| table.key.encode_prefix(word)).transpose()?,
        limit: scan.limit.unwrap_or(u64::MAX),
        reverse: scan.reverse,
    })
}
