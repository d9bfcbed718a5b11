//! Cycles of filling a small real disk, killing the process that works on it, and emptying the
//! table. From every state that a kill leaves, the database must open with little memory, and
//! deletions, `clear`, `drop_table` and compaction must succeed and free the space for the next
//! cycle. Needs root and ext4.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use braiddb::{Database, Error, Options, Table, TableOptions};
use indicatif::ProgressBar;
use pollster::block_on;
use serde::Serialize;

use super::Command;
use super::disk::Faulty;
use super::full::{self, BATCH, VALUE_BYTES};

const MIB: u64 = 1 << 20;
const SIZES: [u64; 3] = [96 * MIB, 256 * MIB, 512 * MIB];
const MEMORY_BUDGET: u64 = 96 * MIB;
/// The memory budget with which the database is opened after a kill.
const MIN_MEMORY: u64 = 64 * MIB;
/// Longest time between the moment when the disk is full and the kill.
const MAX_LIFE: Duration = Duration::from_millis(500);
/// The maximum time until a child has filled its disk.
const PATIENCE: Duration = Duration::from_secs(900);
/// In percent of the first cycle, the bytes that must fit in each; the first must use this part of the
/// disk.
const MIN_USABLE: u64 = 95;
const MIN_FIRST: u64 = 40;
/// Maximum time in which the pages of a dropped table are freed.
const MAX_CLEANUP: Duration = Duration::from_secs(10);
const TABLE: &str = "filler";

type Filler = Table<u64, [u8]>;

/// The result of the cycles on one disk.
#[derive(Debug, Serialize)]
struct Outcome {
    kind: &'static str,
    disk_bytes: u64,
    /// Bytes of values that fitted in each cycle.
    usable_bytes: Vec<u64>,
    slowest_opening_ms: u64,
    slowest_emptying_ms: u64,
}

/// Runs `count` cycles on each disk with each kind of table.
///
/// # Errors
/// The first operation that fails, or a cycle in which less fits than in the first.
pub(super) fn run(command: &Command, count: u64, json: bool) -> Result<()> {
    let mut out = std::io::stdout();
    for disk_bytes in SIZES {
        for paged in [false, true] {
            let kind = if paged { "paged" } else { "memory" };
            let name = format!("{kind} table, disk of {} MiB", disk_bytes / MIB);
            if !name.contains(&command.load) {
                continue;
            }
            let outcome =
                cycles(command, (disk_bytes, paged, kind), count).with_context(|| name.clone())?;
            if json {
                writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
                continue;
            }
            let usable = outcome.usable_bytes.iter().map(|bytes| bytes / MIB);
            let [first, least] =
                [usable.clone().next(), usable.min()].map(Option::unwrap_or_default);
            writeln!(
                out,
                "{name}, {count} cycles: {first} MiB fitted in the first, at least {least} MiB in \
                 each; slowest opening {} ms, slowest emptying {} ms",
                outcome.slowest_opening_ms, outcome.slowest_emptying_ms
            )?;
        }
    }
    Ok(())
}

fn cycles(
    command: &Command,
    (disk_bytes, paged, kind): (u64, bool, &'static str),
    count: u64,
) -> Result<Outcome> {
    let root = command.directory()?;
    let disk = Faulty::of_bytes(root.path(), disk_bytes)?;
    let dir = disk.database();
    let mut random = fastrand::Rng::with_seed(command.seed);
    let mut outcome = Outcome {
        kind,
        disk_bytes,
        usable_bytes: Vec::new(),
        slowest_opening_ms: 0,
        slowest_emptying_ms: 0,
    };
    let progress = ProgressBar::new(count);
    for cycle in 0..count {
        let life = Duration::from_micros(random.u64(0..MAX_LIFE.as_micros() as u64));
        let heard = one_child(command, &dir, paged, (life, random.u64(..)))
            .with_context(|| format!("filling, cycle {cycle}"))?;
        outcome.usable_bytes.push(heard.fitted as u64 * VALUE_BYTES as u64);
        let start = Instant::now();
        let db = Database::open(&dir, options(command, MIN_MEMORY))
            .with_context(|| format!("opening after a kill, cycle {cycle}"))?;
        outcome.slowest_opening_ms =
            outcome.slowest_opening_ms.max(start.elapsed().as_millis() as u64);
        let start = Instant::now();
        let way = ["deletions", "clear", "drop"][cycle as usize % 3];
        empty(&db, paged, way, &heard)
            .with_context(|| format!("{way} and compaction, cycle {cycle}"))?;
        db.close().context("closing")?;
        outcome.slowest_emptying_ms =
            outcome.slowest_emptying_ms.max(start.elapsed().as_millis() as u64);
        let (first, now) = (outcome.usable_bytes[0], outcome.usable_bytes[cycle as usize]);
        ensure!(first * 100 >= disk_bytes * MIN_FIRST, "only {first} bytes fit at first");
        ensure!(
            now * 100 >= first * MIN_USABLE,
            "cycle {cycle}: {now} bytes fit, {first} did at first"
        );
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(outcome)
}

fn options(command: &Command, memory_budget: u64) -> Options {
    Options::default().workers(command.workers).memory_budget(Some(memory_budget))
}

fn open_table(db: &Database, paged: bool) -> Result<Filler, Error> {
    db.run_blocking(async move |tx| {
        let options = TableOptions::default();
        let options = if paged { options.paged() } else { options };
        tx.open_or_create_table_with(TABLE, options).await
    })
}

/// Checks the contents, removes all records in one of the ways that a user has, and compacts. Each
/// must succeed.
fn empty(db: &Database, paged: bool, way: &str, heard: &Heard) -> Result<()> {
    let table = open_table(db, paged).context("opening the table")?;
    let found = full::contents(db, &table).context("reading")?;
    if let Some((key, _)) = found.iter().find(|(_, is_right)| !is_right) {
        bail!("record {key} has other bytes than were written");
    }
    let found: BTreeSet<u64> = found.into_iter().map(|(key, _)| key).collect();
    let lost = heard.kept.difference(&found).next();
    ensure!(lost.is_none(), "acknowledged record {lost:?} is lost");
    let back = heard.gone.intersection(&found).next();
    ensure!(back.is_none(), "record {back:?} is back after an acknowledged deletion");
    match way {
        "deletions" => {
            // Scattered, so that every page changes before any is empty.
            for start in 0..4 {
                let some: Vec<u64> = found.iter().copied().skip(start).step_by(4).collect();
                for batch in some.chunks(BATCH as usize) {
                    full::delete_batch(db, &table, batch.to_vec()).context("deleting")?;
                }
            }
        }
        "clear" => _ = block_on(db.clear(&table)).context("clearing")?,
        _ => block_on(db.drop_table(TABLE)).context("dropping")?,
    }
    full::compact(db).context("compacting")?;
    let left = full::contents(db, &open_again(db, paged)?)?.len();
    ensure!(left == 0, "{left} records are left");
    Ok(())
}

/// Opens or creates the table. The pages of a dropped one are freed in the background, so this is
/// tried again for some time on a full disk.
fn open_again(db: &Database, paged: bool) -> Result<Filler> {
    let start = Instant::now();
    loop {
        match open_table(db, paged) {
            Err(Error::DiskFull(_)) if start.elapsed() < MAX_CLEANUP => {
                std::thread::sleep(Duration::from_millis(100));
                full::compact(db).context("compacting again")?;
            }
            opened => return Ok(opened?),
        }
    }
}

/// The output of a child until it was killed.
#[derive(Debug, Default)]
struct Heard {
    /// Keys of records that were written, and whose deletion was not attempted.
    kept: BTreeSet<u64>,
    /// Keys of records that were deleted.
    gone: BTreeSet<u64>,
    /// Records that fitted on the disk.
    fitted: usize,
}

/// Starts a child, kills it `life` after it has filled the disk, and returns what it said.
fn one_child(
    command: &Command,
    dir: &Path,
    paged: bool,
    (life, seed): (Duration, u64),
) -> Result<Heard> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Process::new(program)
        .args(["torture", "--child", "--cycles", "1", "--dir"])
        .arg(dir)
        .args(["--workers", &command.workers.to_string()])
        .args(["--seed", &seed.to_string()])
        .args(paged.then_some("--paged"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a child")?;
    let pipe = child.stdout.take().expect("piped above");
    let (is_full, filled) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut heard = Heard::default();
        for line in BufReader::new(pipe).lines().map_while(std::io::Result::ok) {
            match line.split_once(' ').map(|(what, first)| (what, first.parse::<u64>())) {
                Some(("written", Ok(first))) => heard.kept.extend(first..first + BATCH),
                Some(("deleting", Ok(first))) => {
                    (first..first + BATCH).for_each(|key| _ = heard.kept.remove(&key));
                }
                Some(("deleted", Ok(first))) => heard.gone.extend(first..first + BATCH),
                _ => {
                    heard.fitted = heard.kept.len();
                    // The parent may have given up.
                    _ = is_full.send(());
                }
            }
        }
        heard
    });
    let filled = filled.recv_timeout(PATIENCE).context("the child did not fill its disk");
    std::thread::sleep(life);
    kill(&mut child, filled)?;
    Ok(reader.join().expect("the reader does not panic"))
}

fn kill(child: &mut Child, filled: Result<()>) -> Result<()> {
    let ended = child.try_wait().context("looking after the child")?;
    child.kill().context("killing the child")?;
    child.wait().context("waiting for the child's end")?;
    ensure!(ended.is_none(), "the child ended without a kill: {ended:?}");
    filled
}

/// Runs as the child: fills the disk, prints `full`, and continues to change records until it is
/// killed.
pub(super) fn child(command: &Command, dir: &Path) -> Result<()> {
    let db = Database::open(dir, options(command, MEMORY_BUDGET)).context("opening")?;
    let table = open_table(&db, command.paged).context("opening the table")?;
    let mut out = std::io::stdout();
    ensure!(full::contents(&db, &table)?.is_empty(), "the table is not empty");
    let (mut next, mut in_vain) = (0, 0);
    while in_vain < 3 {
        match block_on(full::write(&db, &table, (next..next + BATCH).collect())) {
            Ok(()) => {
                writeln!(out, "written {next}")?;
                (next, in_vain) = (next + BATCH, 0);
            }
            Err(Error::DiskFull(_)) => {
                in_vain += 1;
                full::compact(&db)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(next > 0, "nothing fits on the disk");
    writeln!(out, "full")?;
    let mut random = fastrand::Rng::with_seed(command.seed);
    loop {
        match random.u8(..4) {
            0 => full::compact(&db)?,
            1 => {
                let first = random.u64(..next / BATCH) * BATCH;
                writeln!(out, "deleting {first}")?;
                let batch = (first..first + BATCH).collect();
                match full::delete_batch(&db, &table, batch) {
                    Ok(()) => writeln!(out, "deleted {first}")?,
                    Err(Error::DiskFull(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            _ => match block_on(full::write(&db, &table, (next..next + BATCH).collect())) {
                Ok(()) => {
                    writeln!(out, "written {next}")?;
                    next += BATCH;
                }
                Err(Error::DiskFull(_)) => {}
                Err(error) => return Err(error.into()),
            },
        }
    }
}
