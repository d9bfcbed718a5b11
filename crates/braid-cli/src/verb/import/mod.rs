//! `import`: the rows of a file into a table, all rows or none.
//!
//! A thread reads rows and collects them in runs, whose size depends on the memory. Each run is
//! sorted by key. Several runs are written to a temporary file and merged. The log then stores the
//! records in key order, and scans read them in large pieces.
//!
//! Many transactions fill a new table while it is staged, and one publishes it. A bulk operation
//! writes an existing paged table. One transaction writes any other existing table, so its rows
//! must fit into memory.

pub mod csv;
mod csv_rows;
mod encode;
mod index;
mod json_rows;
mod load;
mod merge;
#[cfg(feature = "parquet")]
mod parquet;
mod parse;
mod rows;
mod source;

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use serde::Serialize;

use self::load::Loader;
use self::parse::Sink;
use self::rows::{Rejected, Rejections, Rows};
use self::source::Source;
use crate::arguments::{Format, Import};
use crate::codec::KeyType;
use crate::exit;
use crate::output::{Output, counted};
use crate::store::StoreArguments;

/// Some programs begin a text file with this mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Number of runs: one is read while the other is loaded.
const RUNS: u64 = 2;

/// Result of an import.
#[derive(Debug, Serialize)]
struct Report {
    table: String,
    /// The type of the keys, if the table is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_type: Option<String>,
    imported: u64,
    rejected: u64,
    seconds: f64,
    rows_per_second: f64,
}

/// Division of the memory of `--memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    /// Approximate bytes of a run.
    run: u64,
    /// Memory budget of the database, or `None` for its default.
    database: Option<u64>,
}

impl Shares {
    /// Divides the bytes of `--memory`, or chooses defaults without it. `new`: the database does
    /// not exist yet.
    fn of(memory: Option<u64>, new: bool) -> Self {
        const MIB: u64 = 1 << 20;
        /// A new database is closed after the import, so cached records are of no use. An existing
        /// database may need memory for one transaction with all rows.
        const NEW_DATABASE: u64 = 192 * MIB;
        /// The buffer of the log, and a few MiB for records.
        const MIN_DATABASE: u64 = 68 * MIB;
        /// One share per run, and one for the rest of the process.
        const SHARES: u64 = RUNS + 1;
        const RUN_BYTES: std::ops::RangeInclusive<u64> = 4 * MIB..=64 * MIB;
        let Some(memory) = memory else {
            return Self { run: *RUN_BYTES.end(), database: new.then_some(NEW_DATABASE) };
        };
        let free = memory.saturating_sub(MIN_DATABASE);
        let run = (free / (2 * SHARES)).clamp(*RUN_BYTES.start(), *RUN_BYTES.end());
        Self { run, database: Some(memory - (SHARES * run).min(free)) }
    }
}

/// Imports all rows of a file or none.
pub fn run(import: &Import, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let start = Instant::now();
    let shares = Shares::of(store.memory_bytes(), !store.is_there());
    let source = Source::open(import)?;
    let name = source.name.clone();
    let unit = if source.format == Format::Parquet { "row" } else { "line" };
    let mut loader = Loader::new(import, store, source.format, shares);
    let mut rejections = thread::scope(|scope| {
        let (full, runs) = sync_channel(1);
        let (give_back, spare) = channel();
        for _ in 0..RUNS {
            give_back.send(Rows::default()).expect("the receiver exists");
        }
        let mut sink = Runs::new(import, shares.run, full, spare);
        let reading = scope.spawn(move || {
            let read = parse::read(source, import, &mut sink).and_then(|()| sink.send());
            (read, sink.rejections)
        });
        let mut loaded = Ok(());
        for run in &runs {
            loaded = loader.load(run).map(|spare| {
                // Fails if the reader has finished.
                _ = spare.map(|spare| give_back.send(spare));
            });
            if loaded.is_err() {
                break;
            }
        }
        // Stops the reader.
        drop((runs, give_back));
        let (read, rejections) = reading.join().expect("no panic");
        loaded.and(read)?;
        if rejections.count == 0 || import.skip_rejected {
            loader.end()?;
        }
        Ok(rejections)
    })
    .inspect_err(|_: &anyhow::Error| {
        // Reports the first error. If the rollback fails, the next opening deletes the rows.
        _ = loader.roll_back();
    })?;
    rejections.append(&mut loader.rejections);
    rejections.print(&name, unit);
    let rejected = rejections.count;
    if rejected > 0 && !import.skip_rejected {
        eprintln!(
            "braid: nothing was imported, because {} {} rejected; correct the file, or import the \
             valid rows with --skip-rejected",
            counted(rejected, "row"),
            if rejected == 1 { "was" } else { "were" }
        );
        loader.roll_back()?;
        return Ok(exit::rejected());
    }
    let key_type = loader.new_key_type().map(str::to_owned);
    let imported = loader.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    let rows_per_second = imported as f64 / seconds;
    if output.json {
        let table = import.table.clone();
        output.document(&Report {
            table,
            key_type,
            imported,
            rejected,
            seconds,
            rows_per_second,
        })?;
    } else {
        output.line(&format!(
            "imported {} into {:?}{} in {seconds:.2} s ({rows_per_second:.0} rows/s), rejected \
             {rejected}",
            counted(imported, "row"),
            import.table,
            key_type.map_or_else(String::new, |kind| format!(", a new table with keys of {kind},"))
        ))?;
    }
    Ok(if rejected == 0 { ExitCode::SUCCESS } else { exit::rejected() })
}

/// A run for the loader.
struct Run {
    rows: Rows,
    /// No rejected row has canceled the import.
    is_wanted: bool,
    /// The types of the columns of the key that the file names.
    key_types: Vec<Option<KeyType>>,
}

/// Collects rows in runs, and sends the runs to the loader.
struct Runs {
    run: Rows,
    bytes: u64,
    key_types: Vec<Option<KeyType>>,
    full: SyncSender<Run>,
    spare: Receiver<Rows>,
    rejections: Rejections,
    skip_rejected: bool,
}

impl Runs {
    fn new(import: &Import, bytes: u64, full: SyncSender<Run>, spare: Receiver<Rows>) -> Self {
        let run = spare.recv().expect("the channel holds the empty runs");
        let (rejections, skip_rejected) = (Rejections::default(), import.skip_rejected);
        Self { run, bytes, key_types: Vec::new(), full, spare, rejections, skip_rejected }
    }

    /// Sends the run.
    fn send(&mut self) -> Result<()> {
        let is_wanted = self.rejections.count == 0 || self.skip_rejected;
        let (rows, key_types) = (std::mem::take(&mut self.run), self.key_types.clone());
        let sent = self.full.send(Run { rows, is_wanted, key_types });
        match (sent, self.spare.recv()) {
            (Ok(()), Ok(spare)) => {
                self.run = spare;
                Ok(())
            }
            // The loader returns its error.
            _ => bail!("the import has failed"),
        }
    }
}

impl Sink for Runs {
    fn take(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<()> {
        self.run.push(line, key, value);
        if self.run.bytes() as u64 >= self.bytes {
            self.send()?;
        }
        Ok(())
    }

    fn reject(&mut self, rejected: Rejected) {
        self.rejections.add(rejected);
    }

    fn set_key_types(&mut self, types: Vec<Option<KeyType>>) {
        self.key_types = types;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_and_runs_share_the_memory() {
        const MIB: u64 = 1 << 20;
        assert_eq!(Shares::of(None, false), Shares { run: 64 * MIB, database: None });
        assert_eq!(Shares::of(None, true), Shares { run: 64 * MIB, database: Some(192 * MIB) });
        for (memory, run) in [(65, 4), (70, 4), (92, 4), (128, 10), (1024, 64), (8192, 64)] {
            let shares = Shares::of(Some(memory * MIB), memory % 2 == 0);
            assert_eq!(shares.run / MIB, run, "{memory}");
            let database = shares.database.unwrap();
            assert!(database >= 65 * MIB && database <= memory * MIB, "{memory}: {shares:?}");
            if memory > 80 {
                assert_eq!(database + (RUNS + 1) * shares.run, memory * MIB);
            }
        }
    }
}
