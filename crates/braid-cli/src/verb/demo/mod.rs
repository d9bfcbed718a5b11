//! `demo`: flights between the world's airports, one at a time and braided, on disk and in memory.

mod flights;
mod interruption;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use braiddb::{Database, Options};
use indicatif::ProgressBar;
use pollster::block_on;
use serde::Serialize;
use tempfile::TempDir;

use self::flights::{Flights, World};
use self::interruption::Interruption;
use crate::arguments::Demo;
use crate::output::Output;

/// Flights in progress at the same time, where they are braided.
const CONCURRENCY: usize = 1024;
/// Temporary directory that is usually on a disk.
const DISK: &str = "/var/tmp";
/// Unit of the table.
const UNIT: &str = "flights per second";
/// File that `braid import` may read next.
const AIRPORTS_FILE: &str = "examples/data/airports.csv";

/// Result of the demonstration.
#[derive(Debug, Serialize)]
struct Report {
    airports: u64,
    /// Seconds of the import into the database on disk.
    import_seconds: f64,
    directory: PathBuf,
    /// The directory is on a file system in memory, where durability costs nothing.
    is_directory_in_memory: bool,
    durable: Rounds,
    in_memory: Rounds,
    /// Acknowledged flights, all of which the databases hold.
    checked_flights: u64,
}

/// Result of the two rounds on one database.
#[derive(Debug, Serialize)]
struct Rounds {
    one_at_a_time: Round,
    braided: Round,
    speedup: f64,
}

#[derive(Debug, Serialize)]
struct Round {
    concurrency: usize,
    flights: u64,
    seconds: f64,
    flights_per_second: f64,
}

/// Runs the demonstration, checks the databases, and prints the rates.
pub fn run(demo: &Demo, output: &Output) -> Result<ExitCode> {
    let time = Duration::from_secs_f64(demo.seconds);
    let interruption = Interruption::watch()?;
    let directory = temporary_directory(demo.dir.as_deref())?;
    let open = || {
        let db = Database::open(directory.path(), Options::default())?;
        block_on(World::open(db, interruption.clone()))
    };
    // Hidden unless standard error is a terminal.
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));

    bar.set_message("importing the world's airports");
    let (begin, world) = (Instant::now(), open()?);
    block_on(world.import())?;
    let (airports, import_seconds) = (world.airports(), begin.elapsed().as_secs_f64());
    let (durable, flown) = rounds(&world, time, "durable", &bar)?;
    world.close()?;
    bar.set_message("checking the database after opening it again");
    let world = open()?;
    block_on(world.check(flown)).context("after opening the database again")?;
    world.close()?;
    let mut checked_flights = flown.count;

    bar.set_message("importing the world's airports into memory");
    let db = Database::in_memory(Options::default())?;
    let world = block_on(World::open(db, interruption.clone()))?;
    block_on(world.import())?;
    let (in_memory, flown) = rounds(&world, time, "in memory", &bar)?;
    world.close()?;
    checked_flights += flown.count;
    bar.finish_and_clear();

    let report = Report {
        airports,
        import_seconds,
        is_directory_in_memory: is_in_memory(directory.path()),
        directory: directory.path().to_owned(),
        durable,
        in_memory,
        checked_flights,
    };
    directory.close().context("cannot remove the temporary database")?;
    match output.json {
        true => output.document(&report)?,
        false => output.line(&report.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Flies one at a time, then braided, and checks the database. Returns the rates and all flights.
fn rounds(
    world: &World,
    time: Duration,
    storage: &str,
    bar: &ProgressBar,
) -> Result<(Rounds, Flights)> {
    let mut flown = Flights::default();
    let mut round = |name: &str, concurrency| -> Result<Round> {
        bar.set_message(format!("flying, {storage}, {name}"));
        let (begin, before) = (Instant::now(), flown.count);
        block_on(world.fly_until(begin + time, concurrency, &mut flown))?;
        let (flights, seconds) = (flown.count - before, begin.elapsed().as_secs_f64());
        Ok(Round { concurrency, flights, seconds, flights_per_second: flights as f64 / seconds })
    };
    let (one_at_a_time, braided) = (round("one at a time", 1)?, round("braided", CONCURRENCY)?);
    bar.set_message(format!("checking the flights, {storage}"));
    block_on(world.check(flown))?;
    let speedup = braided.flights_per_second / one_at_a_time.flights_per_second;
    Ok((Rounds { one_at_a_time, braided, speedup }, flown))
}

impl Report {
    fn text(&self) -> String {
        let row = |name: &str, rounds: &Rounds| {
            let one = grouped(rounds.one_at_a_time.flights_per_second as u64);
            let braided = grouped(rounds.braided.flights_per_second as u64);
            format!("  {name:<20} {one:>14} {braided:>14} {:>9.1} x", rounds.speedup)
        };
        let (airports, checked) = (grouped(self.airports), grouped(self.checked_flights));
        let mut lines = vec![
            format!("Imported {airports} airports in {:.2} s.", self.import_seconds),
            "Each flight is a serializable transaction: it reads two airports, and moves an \
             aircraft."
                .to_owned(),
            String::new(),
            format!("  {:<20} {:>14} {:>14} {:>11}", UNIT, "one at a time", "braided", "speedup"),
            row("durable, on disk", &self.durable),
            row("in memory", &self.in_memory),
            String::new(),
            "One at a time: a flight begins when the previous one is acknowledged.".to_owned(),
            format!(
                "Braided: {CONCURRENCY} flights are in progress, and share writes to the disk."
            ),
            format!("Checked: all {checked} acknowledged flights are in the databases, each once."),
            "The durable ones were counted again after closing and opening the database."
                .to_owned(),
            String::new(),
        ];
        if self.is_directory_in_memory {
            lines.extend([
                format!("{} is in memory (tmpfs), so durable", self.directory.display()),
                "flights did not wait for a disk. Choose a disk with --dir.".to_owned(),
                String::new(),
            ]);
        }
        lines.push("Try next:".to_owned());
        lines.extend(next_commands().map(|command| format!("  {command}")));
        lines.join("\n")
    }
}

/// Commands that a newcomer may run next.
fn next_commands() -> [String; 3] {
    let braid = match std::env::var_os("CARGO_MANIFEST_DIR") {
        // `cargo run` sets it; the command need not be installed.
        Some(_) => "cargo run --release --",
        None => "braid",
    };
    let import = match Path::new(AIRPORTS_FILE).is_file() {
        true => format!("{AIRPORTS_FILE} --table airports --key icao"),
        false => "FILE.csv --table TABLE --key COLUMN".to_owned(),
    };
    let scan = match Path::new(AIRPORTS_FILE).is_file() {
        true => "airports --prefix LJ --limit 5",
        false => "TABLE --limit 5",
    };
    [format!("{braid} import {import}"), format!("{braid} scan {scan}"), format!("{braid} --help")]
}

/// Creates a directory for the database, which is removed on drop. By default it is in the system's
/// temporary directory, or in /var/tmp if that is a file system in memory.
fn temporary_directory(chosen: Option<&Path>) -> Result<TempDir> {
    let mut parent = chosen.map_or_else(std::env::temp_dir, Path::to_owned);
    if chosen.is_none() && is_in_memory(&parent) && Path::new(DISK).is_dir() {
        parent = DISK.into();
    }
    let directory = tempfile::Builder::new().prefix("braid-demo-").tempdir_in(&parent);
    directory.context(
        "cannot create the temporary database; choose an existing, writable directory with --dir",
    )
}

/// Returns whether a path is on a file system in memory.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::statfs(path).is_ok_and(|about| [TMPFS, RAMFS].contains(&(about.f_type as u64)))
}

/// A number with a space between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        let shown = [0, 999, 1000, 28_298, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1 000", "28 298", "1 234 567"]);
    }
}
