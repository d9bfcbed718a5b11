//! `scan`.

use std::ops::Bound;
use std::process::ExitCode;

use anyhow::{Result, bail};
use braiddb::{Database, Error, InteractiveTransaction, KeyBuffer, Transaction};
use pollster::block_on;

use crate::arguments::Scan;
use crate::output::Output;
use crate::store::AnyTable;

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
    let table = block_on(transaction.step(async move |tx| AnyTable::open(tx, &name).await))?;
    let mut left = Some(Range::new(scan, &table)?);
    while let Some(range) = left {
        let (table, output) = (table.clone(), *output);
        let step = async move |tx: &Transaction| range.page(tx, &table, output).await;
        let (page, rest) = block_on(transaction.step(step))?;
        output.page(&page)?;
        left = rest;
    }
    Ok(())
}

/// What is left of a range of encoded keys.
#[derive(Clone, Debug)]
struct Range {
    low: Bound<KeyBuffer>,
    high: Bound<KeyBuffer>,
    prefix: Option<KeyBuffer>,
    limit: u64,
    reverse: bool,
}

impl Range {
    /// A range as the arguments tell it.
    ///
    /// # Errors
    /// If they tell no keys of the table.
    fn new(scan: &Scan, table: &AnyTable) -> Result<Self> {
        let encode = |word: &String| table.key.encode(word);
        let bound = |included: &Option<String>, excluded: &Option<String>| {
            Ok::<_, anyhow::Error>(match (included, excluded) {
                (Some(key), _) => Bound::Included(encode(key)?),
                (None, Some(key)) => Bound::Excluded(encode(key)?),
                (None, None) => Bound::Unbounded,
            })
        };
        if scan.prefix.is_some() && !table.key.is_text() {
            bail!(
                "--prefix is for keys of text, and those of {:?} are not; use --from and --to",
                scan.table
            );
        }
        Ok(Self {
            low: bound(&scan.from, &scan.after)?,
            high: bound(&scan.to, &scan.before)?,
            prefix: scan.prefix.as_ref().map(encode).transpose()?,
            limit: scan.limit.unwrap_or(u64::MAX),
            reverse: scan.reverse,
        })
    }

    /// The next page of records, and what is left of the range after it.
    async fn page(
        mut self,
        tx: &Transaction,
        table: &AnyTable,
        output: Output,
    ) -> Result<(Vec<u8>, Option<Self>), Error> {
        let records = &table.records;
        let borrowed = |bound: &Bound<KeyBuffer>| bound.as_ref().map(|key| key.to_vec());
        let scan = match (&self.prefix, &self.low, &self.high) {
            (Some(prefix), Bound::Unbounded, Bound::Unbounded) => {
                tx.scan_prefix(records, prefix)?
            }
            _ => tx.scan(records, (borrowed(&self.low), borrowed(&self.high)))?,
        };
        let scan = scan.limit(self.limit);
        let mut scan = if self.reverse { scan.rev() } else { scan };
        let mut page = Vec::with_capacity(PAGE_BYTES);
        while let Some((key, value)) = scan.next().await? {
            // After the first page a prefix is where the range starts, and is looked for in what follows.
            if self.prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix)) {
                break;
            }
            output.format_record(&mut page, table, &key, value)?;
            self.limit -= 1;
            if page.len() >= PAGE_BYTES && self.limit > 0 {
                let mut last = KeyBuffer::new();
                last.extend_from_slice(&key);
                match self.reverse {
                    true => self.high = Bound::Excluded(last),
                    false => self.low = Bound::Excluded(last),
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
