//! Fills a disk of a real file system and frees it again: deletes, compacts and continues to write,
//! repeatedly.

use anyhow::{Context, Result, ensure};
use braiddb::{BusyWith, Database, Error, Options, Table, Tuning};

use std::collections::BTreeSet;
use std::path::Path;

/// The number of times that the disk is filled and then half emptied.
const ROUNDS: u64 = 4;
const TABLE: &str = "filler";
pub(super) const VALUE_BYTES: usize = 4000;
/// The number of records in a transaction.
pub(super) const BATCH: u64 = 16;
const SEGMENT_BYTES: u64 = 1 << 20;
const MEMORY_BUDGET: u64 = 96 << 20;
/// The maximum number of consecutive compactions without gain.
const MAX_FUTILE_ATTEMPTS: u32 = 8;

type Filler = Table<u64, [u8]>;

/// The results of running on a full disk.
#[derive(Debug, Default)]
pub(super) struct FullDiskOutcome {
    /// Bytes of values written until the disk was filled for the last time.
    pub(super) refilled_bytes: u64,
    /// Commits that were refused.
    pub(super) refused: u64,
}

/// Fills the rest of the disk that holds a database, deletes half and compacts, several times.
/// Reopens the database each time.
pub(super) fn run(dir: &Path) -> Result<FullDiskOutcome> {
    let mut outcome = FullDiskOutcome::default();
    let mut keys = BTreeSet::new();
    for round in 0..ROUNDS {
        let options = Options::default()
            .workers(2)
            .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES));
        let db = Database::open(dir, options).context("opening on a full disk")?;
        let table = table(&db)?;
        if round == 0 {
            keys = contents(&db, &table)?.into_iter().map(|(key, _)| key).collect();
        }
        let before = keys.len();
        fill(&db, &table, &mut keys, &mut outcome).context("filling the disk")?;
        outcome.refilled_bytes = (keys.len() - before) as u64 * VALUE_BYTES as u64;
        ensure!(
            round == 0 || keys.len() > before + before / 4,
            "after {before} of the records were kept, only {} fit again",
            keys.len() - before
        );
        check(&db, &table, &keys)?;
        let half = keys.iter().copied().step_by(2).collect();
        delete(&db, &table, (&mut keys, half), &mut outcome).context("deleting half")?;
        compact(&db).context("compacting")?;
        check(&db, &table, &keys)?;
        db.close().context("closing")?;
    }
    Ok(outcome)
}

/// Fills an empty disk until writes are refused, and deletes everything. Returns the bytes of
/// values that fitted.
pub(super) fn cycle(dir: &Path) -> Result<u64> {
    let options = Options::default()
        .workers(2)
        .memory_budget(Some(MEMORY_BUDGET))
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES));
    let db = Database::open(dir, options).context("opening")?;
    let table = table(&db)?;
    let (mut keys, mut outcome) = (BTreeSet::new(), FullDiskOutcome::default());
    check(&db, &table, &keys).context("before")?;
    fill(&db, &table, &mut keys, &mut outcome).context("filling the disk")?;
    check(&db, &table, &keys)?;
    let usable = keys.len() as u64 * VALUE_BYTES as u64;
    let all = keys.iter().copied().collect();
    delete(&db, &table, (&mut keys, all), &mut outcome).context("deleting everything")?;
    compact(&db).context("compacting")?;
    db.close().context("closing")?;
    Ok(usable)
}

/// Writes new durable records as fast as possible until a write is refused.
pub(super) async fn write_on(db: &Database) -> Result<()> {
    let table: Filler = db.open_or_create_table(TABLE).await?;
    let mut first = 0;
    loop {
        write(db, &table, (first..first + BATCH).collect()).await?;
        first += BATCH;
    }
}

/// Writes records in one transaction.
pub(super) async fn write(db: &Database, table: &Filler, keys: Vec<u64>) -> Result<(), Error> {
    let table = table.clone();
    db.run(async move |tx| {
        for key in &keys {
            tx.put(&table, key, &value(*key)).await?;
        }
        Ok::<_, Error>(())
    })
    .await
}

/// Opens the table. If the disk is too full to create it, compaction frees room.
fn table(db: &Database) -> Result<Filler> {
    for _ in 0..MAX_FUTILE_ATTEMPTS {
        match pollster::block_on(db.open_or_create_table(TABLE)) {
            Err(Error::DiskFull(_)) => compact(db)?,
            opened => return opened.context("opening the table"),
        }
    }
    anyhow::bail!("compaction makes no room for a table");
}

fn value(key: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key);
    (0..VALUE_BYTES).map(|_| random.u8(..)).collect()
}

/// Writes new records until compaction frees no more room.
fn fill(
    db: &Database,
    table: &Filler,
    keys: &mut BTreeSet<u64>,
    outcome: &mut FullDiskOutcome,
) -> Result<()> {
    let mut first = keys.last().map_or(0, |key| key + 1);
    let mut in_vain = 0;
    while in_vain < 2 {
        let batch: Vec<u64> = (first..first + BATCH).collect();
        match pollster::block_on(write(db, table, batch.clone())) {
            Ok(()) => {
                keys.extend(batch);
                first += BATCH;
                in_vain = 0;
            }
            Err(Error::DiskFull(_)) => {
                outcome.refused += 1;
                in_vain += 1;
                compact(db)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Deletes the records of `gone`.
fn delete(
    db: &Database,
    table: &Filler,
    (keys, gone): (&mut BTreeSet<u64>, Vec<u64>),
    outcome: &mut FullDiskOutcome,
) -> Result<()> {
    for batch in gone.chunks(BATCH as usize) {
        let mut in_vain = 0;
        loop {
            match delete_batch(db, table, batch.to_vec()) {
                Ok(()) => break,
                Err(Error::DiskFull(_)) if in_vain < MAX_FUTILE_ATTEMPTS => {
                    outcome.refused += 1;
                    in_vain += 1;
                    compact(db)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        batch.iter().for_each(|key| _ = keys.remove(key));
    }
    Ok(())
}

/// Deletes records in one transaction.
pub(super) fn delete_batch(db: &Database, table: &Filler, keys: Vec<u64>) -> Result<(), Error> {
    let table = table.clone();
    db.run_blocking(async move |tx| {
        for key in &keys {
            tx.delete(&table, key).await?;
        }
        Ok(())
    })
}

/// Compacts, after an automatic checkpoint if one is running.
pub(super) fn compact(db: &Database) -> Result<()> {
    loop {
        match pollster::block_on(db.compact()) {
            // An automatic checkpoint.
            Err(Error::Busy(BusyWith::Checkpoint)) => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            compacted => return Ok(compacted.map(drop)?),
        }
    }
}

/// Checks that the table holds exactly the records that were written and not deleted.
fn check(db: &Database, table: &Filler, keys: &BTreeSet<u64>) -> Result<()> {
    let found = contents(db, table)?;
    ensure!(
        found.iter().map(|(key, _)| key).eq(keys),
        "{} records exist, {} should",
        found.len(),
        keys.len()
    );
    let damaged = found.iter().find(|(_, right)| !right);
    ensure!(damaged.is_none(), "record {damaged:?} has other bytes than were written");
    Ok(())
}

/// Returns the keys in the table, each with true if its value is right.
pub(super) fn contents(db: &Database, table: &Filler) -> Result<Vec<(u64, bool)>> {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
        while let Some((key, bytes)) = scan.next().await? {
            found.push((key, bytes == value(key)));
        }
        Ok::<_, Error>(found)
    });
    Ok(found?)
}
