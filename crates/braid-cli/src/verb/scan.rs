//! `scan`.

use std::ops::Bound;
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::Result;
use braiddb::{Database, Error, Transaction};

use crate::arguments::Scan;
use crate::output::Output;
use crate::store::{self, TextTable};

/// Prints the records of a range as they are read.
pub fn run(db: &Database, scan: &Scan, output: &Output) -> Result<ExitCode> {
    let table = store::existing_table(db, &scan.table)?;
    let range = Range::new(scan);
    let (sender, records) = mpsc::channel();
    let reading = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            db.run_blocking(async move |tx| {
                let sender = sender.clone();
                range.visit(tx, &table, move |key, value| sender.send((key, value)).is_ok()).await
            })
        });
        for (key, value) in records {
            output.record(&key, &value)?;
        }
        reader.join().expect("the reader does not panic").map_err(anyhow::Error::from)
    });
    reading?;
    Ok(ExitCode::SUCCESS)
}

/// A range as the arguments tell it.
#[derive(Clone, Debug)]
pub struct Range {
    low: Bound<String>,
    high: Bound<String>,
    prefix: Option<String>,
    pub limit: u64,
    pub reverse: bool,
}

impl Range {
    pub fn new(scan: &Scan) -> Self {
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

    /// Hands each record of the range to `take`, until it wants no more.
    pub async fn visit(
        &self,
        tx: &Transaction,
        table: &TextTable,
        mut take: impl FnMut(String, String) -> bool,
    ) -> Result<(), Error> {
        let scan = match &self.prefix {
            Some(prefix) => tx.scan_prefix(table, prefix)?,
            None => tx.scan(table, (self.low.clone(), self.high.clone()))?,
        };
        let scan = scan.limit(self.limit);
        let mut scan = if self.reverse { scan.rev() } else { scan };
        while let Some((key, value)) = scan.next().await? {
            if !take(key, value.to_owned()) {
                break;
            }
        }
        Ok(())
    }
}
