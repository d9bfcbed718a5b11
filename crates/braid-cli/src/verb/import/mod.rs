//! `import`: a file's rows into a table, all or nothing.
//!
//! A thread reads rows, and gathers as many as the memory allows for one run. Each run is sorted by its keys; if there
//! are several, they are kept in a temporary file and merged from there. So records lie in the log in the order of their
//! keys, and scans read them in large pieces. A table that is new is filled by many
//! transactions while nobody sees it, and published by one; a paged one that is there already is written by a bulk operation, another
//! by a single transaction, which must fit into memory.

pub mod csv;
mod index;
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
use crate::exit;
use crate::output::{Output, counted};
use crate::store::StoreArguments;

/// What some programs put before the text of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Runs that exist at a time: one is read while the other is loaded.
const RUNS: u64 = 2;

/// What an import did.
#[derive(Debug, Serialize)]
struct Report {
    table: String,
    imported: u64,
    rejected: u64,
    seconds: f64,
    rows_per_second: f64,
}

/// How the memory of `--memory` is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    /// Bytes of a run of rows, about.
    run: u64,
    /// Bytes of the database; where there is no number, what it takes anyway.
    database: Option<u64>,
}

impl Shares {
    /// Those of what `--memory` says, or of an import that is given no bound, into a database that is `new` or not.
    fn of(memory: Option<u64>, new: bool) -> Self {
        const MIB: u64 = 1 << 20;
        /// A database that is made, and closed after the import, gains nothing by records that stay in memory. One that is
        /// there may have a table to which all rows are to be written at once.
        const NEW_DATABASE: u64 = 192 * MIB;
        /// The log's buffer, and something for records.
        const MIN_DATABASE: u64 = 68 * MIB;
        /// Those of the runs, and one for what else the process takes.
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

/// Imports a file, all of it or nothing.
pub fn run(import: &Import, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let start = Instant::now();
    let shares = Shares::of(store.memory_bytes(), !store.is_there());
    let source = Source::open(import)?;
    let name = source.name.clone();
    let unit = if source.format == Format::Parquet { "row" } else { "line" };
    let mut loader = Loader::new(import, store, shares);
    let mut rejections = thread::scope(|scope| {
        let (full, runs) = sync_channel(1);
        let (give_back, spare) = channel();
        for _ in 0..RUNS {
            give_back.send(Rows::default()).expect("it is received below");
        }
        let mut sink = Runs::new(import, shares.run, full, spare);
        let reading = scope.spawn(move || {
            let read = parse::read(source, import, &mut sink).and_then(|()| sink.send());
            (read, sink.rejections)
        });
        let mut loaded = Ok(());
        for (run, wanted) in &runs {
            loaded = loader.load(run, wanted).map(|spare| {
                // The reader may have come to its end.
                _ = spare.map(|spare| give_back.send(spare));
            });
            if loaded.is_err() {
                break;
            }
        }
        // So that the reader stops.
        drop((runs, give_back));
        let (read, rejections) = reading.join().expect("it does not panic");
        loaded.and(read)?;
        if rejections.count == 0 || import.skip_rejected {
            loader.end()?;
        }
        Ok(rejections)
    })
    .inspect_err(|_: &anyhow::Error| {
        // What went wrong first is told. What cannot be taken back now is when the database is opened next.
        _ = loader.take_back();
    })?;
    rejections.append(&mut loader.rejections);
    rejections.tell(&name, unit);
    let rejected = rejections.count;
    if rejected > 0 && !import.skip_rejected {
        eprintln!(
            "braid: nothing was imported, {} {} rejected; mend what is wrong, or import the others with \
             --skip-rejected",
            counted(rejected, "row"),
            if rejected == 1 { "was" } else { "were" }
        );
        loader.take_back()?;
        return Ok(exit::rejected());
    }
    let imported = loader.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    let rows_per_second = imported as f64 / seconds;
    if output.json {
        let table = import.table.clone();
        output.document(&Report { table, imported, rejected, seconds, rows_per_second })?;
    } else {
        output.line(&format!(
            "imported {} into {:?} in {seconds:.2} s ({rows_per_second:.0} rows/s), rejected {rejected}",
            counted(imported, "row"),
            import.table
        ))?;
    }
    Ok(if rejected == 0 { ExitCode::SUCCESS } else { exit::rejected() })
}

/// Gathers rows in runs, and sends these.
struct Runs {
    run: Rows,
    bytes: u64,
    full: SyncSender<(Rows, bool)>,
    spare: Receiver<Rows>,
    rejections: Rejections,
    skip_rejected: bool,
}

impl Runs {
    fn new(
        import: &Import,
        bytes: u64,
        full: SyncSender<(Rows, bool)>,
        spare: Receiver<Rows>,
    ) -> Self {
        let run = spare.recv().expect("some were sent");
        let (rejections, skip_rejected) = (Rejections::default(), import.skip_rejected);
        Self { run, bytes, full, spare, rejections, skip_rejected }
    }

    /// Sends the run, and says whether it is to be loaded: not if nothing will be imported.
    fn send(&mut self) -> Result<()> {
        let wanted = self.rejections.count == 0 || self.skip_rejected;
        let sent = self.full.send((std::mem::take(&mut self.run), wanted));
        match (sent, self.spare.recv()) {
            (Ok(()), Ok(spare)) => {
                self.run = spare;
                Ok(())
            }
            // Whoever loads them says why.
            _ => bail!("no more rows are wanted"),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_and_the_runs_share_the_memory() {
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
