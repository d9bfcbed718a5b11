//! `scan`.

use std::ops::Bound;
use std::process::ExitCode;

use anyhow::Result;
use braiddb::{Database, Error, InteractiveTransaction, Transaction};
use pollster::block_on;

use crate::arguments::Scan;
use crate::output::Output;
use crate::store::TextTable;

/// Bytes of output that are made in one step of the transaction, about.
const PAGE_BYTES: usize = 1 << 20;

/// Prints the records of a range.
pub fn run(db: &Database, scan: &Scan, output: &Output) -> Result<ExitCode> {
    print(&block_on(db.begin_read_only())?, scan, output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the records of a range as a transaction sees them, page by page: a range of any size takes a
/// page of memory, and no worker waits for the output.
pub fn print(transaction: &InteractiveTransaction, scan: &Scan, output: &Output) -> Result<()> {
    let name = scan.table.clone();
    let table = block_on(transaction.step(async move |tx| tx.open_table(&name).await))?;
    let mut left = Some(Range::new(scan));
    while let Some(range) = left {
        let (table, output) = (table.clone(), *output);
        let step = async move |tx: &Transaction| range.page(tx, &table, output).await;
        let (page, rest) = block_on(transaction.step(step))?;
        output.page(&page)?;
        left = rest;
    }
    Ok(())
}

/// What is left of a range.
#[derive(Clone, Debug)]
struct Range {
    low: Bound<String>,
    high: Bound<String>,
    prefix: Option<String>,
    limit: u64,
    reverse: bool,
}

impl Range {
    /// A range as the arguments tell it.
    fn new(scan: &Scan) -> Self {
        let bound =
            |included: &Option<String>, excluded: &Option<String>| match (included, excluded) {
                (Some(key), _) => Bound::Included(key.clone()),
                (None, Some(key)) => Bound::Excluded(key.clone()),
                (None, None) => Bound::Unbounded,
            };
        Self {
            low: bound(&scan.from, &scan.after),
            high: bound(&scan.to, &scan.before),
            prefix: scan.prefix.clone(),
            limit: scan.limit.unwrap_or(u64::MAX),
            reverse: scan.reverse,
        }
    }

    /// The next page of records, and what is left of the range after it.
    async fn page(
        mut self,
        tx: &Transaction,
        table: &TextTable,
        output: Output,
    ) -> Result<(Vec<u8>, Option<Self>), Error> {
        let scan = match (&self.prefix, &self.low, &self.high) {
            (Some(prefix), Bound::Unbounded, Bound::Unbounded) => tx.scan_prefix(table, prefix)?,
            _ => tx.scan(table, (self.low.clone(), self.high.clone()))?,
        };
        let scan = scan.limit(self.limit);
        let mut scan = if self.reverse { scan.rev() } else { scan };
        let mut page = Vec::with_capacity(PAGE_BYTES);
        while let Some((key, value)) = scan.next().await? {
            // After the first page a prefix is where the range starts, and is looked for in what follows.
            if self.prefix.as_ref().is_some_and(|prefix| !key.starts_with(&**prefix)) {
                break;
            }
            output.format_record(&mut page, &key, value);
            self.limit -= 1;
            if page.len() >= PAGE_BYTES && self.limit > 0 {
                match self.reverse {
                    true => self.high = Bound::Excluded(key),
                    false => self.low = Bound::Excluded(key),
                }
                if let (Some(prefix), Bound::Unbounded) = (&self.prefix, &self.low) {
                    self.low = Bound::Included(prefix.clone());
                }
                return Ok((page, Some(self)));
            }
        }
        Ok((page, None))
    }
}
