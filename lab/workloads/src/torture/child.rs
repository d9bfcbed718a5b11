//! The child: runs writers without end and prints the acknowledged transactions.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use braiddb::{Database, Durability, Error, Options, Transaction, Tuning};
use futures_util::future::try_join3;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::ledger::{ACCOUNTS, KEPT, PARTS, Tables, part_bytes};
use super::{Command, Disk, During, SEGMENT_BYTES, full};

const CHECKPOINT_BYTES: u64 = 4 << 20;
/// The memory budget; the log's buffer takes 64 MiB of it.
const MEMORY_BUDGET: u64 = 69 << 20;
/// One transaction in this number is a bulk operation, if the tables are paged.
const BULK: u32 = 16;
/// The first output line: the database is open.
pub(super) const READY: &str = "ready";

/// Writes until it is killed or cannot write.
pub(super) fn run(command: &Command, dir: &Path) -> Result<()> {
    let Command { writers, seed, during, disk, .. } = *command;
    let db = Database::open(dir, options(command)).context("opening the database")?;
    let paged = command.paged;
    let tables = db.run_blocking(async move |tx| Tables::open(tx, paged).await)?;
    println!("{READY}");
    let writing = async {
        let mut running: FuturesUnordered<_> =
            (0..writers).map(|writer| write(&db, &tables, writer, seed)).collect();
        while let Some(result) = running.next().await {
            result?;
        }
        Ok(())
    };
    pollster::block_on(try_join3(writing, keep_up(&db, during), fill(&db, disk)))?;
    Ok(())
}

/// Returns the options of a child's database.
pub(super) fn options(command: &Command) -> Options {
    let Command { workers, during, disk, .. } = *command;
    // Checkpoints and eviction run all the time, so that kills hit them too. The exceptions are a
    // run with one chosen activity, and a disk that should run full.
    let all = during.is_none() && disk != Some(Disk::Full);
    let checkpoint_bytes = if all { CHECKPOINT_BYTES } else { u64::MAX };
    let small_segments = disk.is_some() || during == Some(During::Compaction);
    Options::default()
        .workers(workers)
        .durability(Durability::Group)
        .memory_budget(Some(MEMORY_BUDGET))
        .tuning(
            Tuning::default()
                .checkpoint_bytes(checkpoint_bytes)
                .log_segment_bytes(if small_segments { 1 << 20 } else { SEGMENT_BYTES })
                .log_ring_bytes(64 << 20),
        )
}

/// Fills the disk while the writers run, if the disk should run full. Compaction frees the replaced
/// records.
async fn fill(db: &Database, disk: Option<Disk>) -> Result<()> {
    if disk == Some(Disk::Full) {
        full::write_on(db).await?;
    }
    Ok(())
}

/// Repeats the chosen activity while the writers run.
async fn keep_up(db: &Database, during: Option<During>) -> Result<()> {
    loop {
        match during {
            Some(During::Checkpoint) => _ = db.checkpoint().await?,
            Some(During::Compaction) => _ = db.compact().await?,
            _ => return Ok(()),
        }
    }
}

/// Runs one writer: one transaction after another, each acknowledged on standard output.
async fn write(db: &Database, tables: &Tables, writer: u64, seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ writer);
    loop {
        let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
        let (of_tables, is_bulk) = (tables.clone(), tables.are_paged() && random.u32(0..BULK) == 0);
        let body = async move |tx: &Transaction| {
            let number = tx.get(&of_tables.counters, &writer).await?.unwrap_or(0) + 1;
            tx.put(&of_tables.counters, &writer, &number).await?;
            for part in 0..PARTS {
                let bytes = part_bytes(writer, number, part);
                tx.insert(&of_tables.parts, &(writer, number, part), &bytes).await?;
                if let Some(old) = number.checked_sub(KEPT).filter(|old| *old > 0) {
                    tx.delete(&of_tables.parts, &(writer, old, part)).await?;
                }
            }
            transfer(tx, &of_tables, from, to).await?;
            Ok::<_, Error>(number)
        };
        let Tables { parts, counters, accounts, .. } = tables;
        let number = match is_bulk {
            true => db.run_bulk((parts, counters, accounts), body).await?,
            false => db.run(body).await?,
        };
        // One write call for each line, so that a kill leaves whole lines in the pipe.
        std::io::stdout().write_all(format!("{writer} {number}\n").as_bytes())?;
    }
}

async fn transfer(tx: &Transaction, tables: &Tables, from: u64, to: u64) -> Result<(), Error> {
    let rich = tx.get(&tables.accounts, &from).await?.unwrap_or(0);
    if from == to || rich == 0 {
        return Ok(());
    }
    let poor = tx.get(&tables.accounts, &to).await?.unwrap_or(0);
    tx.update(&tables.accounts, &from, &(rich - 1)).await?;
    tx.update(&tables.accounts, &to, &(poor + 1)).await
}
