//! Output of a range of records in bounded memory. A step of the transaction fills a page with
//! records. A separate thread writes the previous pages, so that no worker waits for the output.

use std::io::Write;
use std::ops::Bound;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::Result;
use braiddb::{InteractiveTransaction, KeyBuffer, Transaction};
use pollster::block_on;

use crate::any_table::AnyTable;

/// Approximate size of a page in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of pages waiting to be written.
const AHEAD: usize = 2;

/// The unread part of a range of encoded keys.
#[derive(Clone, Debug)]
pub struct Range {
    pub low: Bound<KeyBuffer>,
    pub high: Bound<KeyBuffer>,
    /// Only keys with this prefix. The bounds are then unbounded.
    pub prefix: Option<KeyBuffer>,
    pub limit: u64,
    pub reverse: bool,
}

impl Range {
    /// All records.
    pub fn all() -> Self {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        Self { low, high, prefix: None, limit: u64::MAX, reverse: false }
    }
}

/// Appends a record to a page, given its encoded key and value. Returns whether the record counts.
pub trait Append: Fn(&mut Vec<u8>, &[u8], &[u8]) -> Result<bool> + Clone + Send + 'static {}

impl<F: Fn(&mut Vec<u8>, &[u8], &[u8]) -> Result<bool> + Clone + Send + 'static> Append for F {}

/// Writes the records of a range that a transaction sees, up to the range's limit of records that
/// count. Returns the number of those.
///
/// # Errors
/// Errors of reading, the first error of `append`, or an error of the output.
pub fn write(
    transaction: &InteractiveTransaction,
    table: &AnyTable,
    range: Range,
    append: impl Append,
    out: impl Write + Send,
) -> Result<u64> {
    thread::scope(|scope| {
        let (pages, made) = sync_channel(AHEAD);
        let writing = scope.spawn(|| write_pages(made, out));
        let (mut left, mut records) = (Some(range), 0);
        while let Some(range) = left.take() {
            let (table, append) = (table.clone(), append.clone());
            let step = async move |tx: &Transaction| range.page(tx, &table, append).await;
            let page = match block_on(transaction.try_step(step)) {
                Ok(page) => page,
                Err(error) => {
                    // Write the previous pages before the error is reported.
                    drop(pages);
                    writing.join().expect("it does not panic")?;
                    return Err(error);
                }
            };
            records += page.records;
            left = page.rest;
            if pages.send(page.bytes).is_err() {
                // The writing thread returns its error.
                break;
            }
        }
        drop(pages);
        writing.join().expect("it does not panic")?;
        Ok(records)
    })
}

fn write_pages(pages: Receiver<Vec<u8>>, mut out: impl Write) -> Result<()> {
    for page in pages {
        out.write_all(&page)?;
    }
    Ok(out.flush()?)
}

/// Some records, and the rest of the range.
struct Page {
    bytes: Vec<u8>,
    records: u64,
    rest: Option<Range>,
}

impl Range {
    /// Reads the next page.
    async fn page(
        mut self,
        tx: &Transaction,
        table: &AnyTable,
        append: impl Append,
    ) -> Result<Page> {
        let borrowed = |bound: &Bound<KeyBuffer>| bound.as_ref().map(|key| key.to_vec());
        let scan = match (&self.prefix, &self.low, &self.high) {
            (Some(prefix), Bound::Unbounded, Bound::Unbounded) => {
                tx.scan_prefix(&table.records, &prefix[..])?
            }
            _ => tx.scan(&table.records, (borrowed(&self.low), borrowed(&self.high)))?,
        };
        let mut scan = if self.reverse { scan.rev() } else { scan };
        let (mut bytes, mut records) = (Vec::with_capacity(PAGE_BYTES + PAGE_BYTES / 16), 0);
        while self.limit > 0
            && let Some((key, value)) = scan.next().await?
        {
            // After the first page the scan starts at a key, and checks the prefix here.
            if self.prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix)) {
                break;
            }
            if append(&mut bytes, &key, value)? {
                records += 1;
                self.limit -= 1;
            }
            if bytes.len() >= PAGE_BYTES && self.limit > 0 {
                let mut last = KeyBuffer::new();
                last.extend_from_slice(&key);
                match self.reverse {
                    true => self.high = Bound::Excluded(last),
                    false => self.low = Bound::Excluded(last),
                }
                if let (Some(prefix), Bound::Unbounded) = (&self.prefix, &self.low) {
                    self.low = Bound::Included(prefix.clone());
                }
                return Ok(Page { bytes, records, rest: Some(self) });
            }
        }
        Ok(Page { bytes, records, rest: None })
    }
}
