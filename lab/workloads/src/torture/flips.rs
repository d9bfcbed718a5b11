//! Bit flips in the files of a closed database: the database must report the damage or hold the
//! same contents as before.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Error, Options, Table, TableOptions, Tuning};
use indicatif::ProgressBar;
use serde::Serialize;

/// The number of records; some are changed and some deleted after a checkpoint.
const RECORDS: u64 = 800;
const SEGMENT_BYTES: u64 = 128 << 10;
/// Half of the flips are in this first part of a file, because the rest of most files is empty.
const WRITTEN_BYTES: u64 = 64 << 10;

/// The results of the flips.
#[derive(Debug, Default, Serialize)]
pub(super) struct Flips {
    /// The number of flips by kind of file.
    pub(super) flips: BTreeMap<String, u64>,
    /// Flips after which the database could not be opened.
    pub(super) refused: u64,
    /// Flips that a failed read or a check reported.
    pub(super) reported: u64,
    /// Flips after which all records were read correctly: the bits were unused.
    pub(super) harmless: u64,
}

/// Values by table and key.
type Contents = BTreeMap<(&'static str, u64), Vec<u8>>;
/// The names of the tables, and true if the table is paged.
const TABLES: [(&str, bool); 2] = [("records", false), ("pages", true)];

/// The reaction of a database.
enum Said {
    Refused,
    Error,
    Read(Contents),
}

/// Flips `count` bits, one at a time, in files with the name ending `.{only}`, or in all files.
pub(super) fn run(count: u64, seed: u64, only: Option<&str>, root: &Path) -> Result<Flips> {
    let whole = root.join("whole");
    let expected = make(&whole).context("making a database")?;
    let (mut files, mut kinds) = (Vec::new(), BTreeMap::<String, Vec<usize>>::new());
    for entry in std::fs::read_dir(&whole).context("listing the database")? {
        let path = entry.context("listing the database")?.path();
        let bytes = std::fs::read(&path).context("reading the database")?;
        if !bytes.is_empty() {
            let kind = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            kinds.entry(kind).or_default().push(files.len());
        }
        files.push((path.file_name().expect("listed by its name").to_owned(), bytes));
    }
    let known = kinds.keys().cloned().collect::<Vec<_>>().join(", ");
    kinds.retain(|kind, _| only.is_none_or(|only| only == kind));
    let kinds: Vec<_> = kinds.into_iter().collect();
    let unknown = only.unwrap_or_default();
    ensure!(!kinds.is_empty(), "no file ends in .{unknown}; the endings are {known}");
    let panicked = watch_panics();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut flips = Flips::default();
    let progress = ProgressBar::new(count);
    let damaged = root.join("damaged");
    for _ in 0..count {
        let (kind, of_kind) = &kinds[random.usize(0..kinds.len())];
        let (hit, bytes) = &files[of_kind[random.usize(0..of_kind.len())]];
        let length = bytes.len() as u64;
        let most = if random.bool() { length } else { length.min(WRITTEN_BYTES) };
        let (offset, bit) = (random.u64(0..most), random.u8(0..8));
        write_all(&damaged, &files)?;
        let mut bytes = bytes.clone();
        bytes[offset as usize] ^= 1 << bit;
        std::fs::write(damaged.join(hit), bytes).context("damaging a file")?;
        *flips.flips.entry(kind.clone()).or_default() += 1;
        let place = || format!("bit {bit} of byte {offset} of {} was changed", hit.display());
        match read(&damaged) {
            Said::Refused => flips.refused += 1,
            Said::Error => flips.reported += 1,
            Said::Read(found) => {
                ensure!(found == expected, "{}, and other contents were read", place());
                flips.harmless += 1;
            }
        }
        // Relaxed: the threads that could panic have ended with the database.
        ensure!(!panicked.load(Ordering::Relaxed), "{}, and a thread panicked", place());
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(flips)
}

fn options() -> Options {
    Options::default()
        .workers(1)
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(u64::MAX))
}

/// Creates a database with every kind of file. Returns its contents.
fn make(directory: &Path) -> Result<Contents> {
    let db = Database::open(directory, options())?;
    let mut tables: Vec<(&str, Table<u64, [u8]>)> = Vec::new();
    for (name, paged) in TABLES {
        let options = TableOptions::default();
        let options = if paged { options.paged() } else { options };
        tables.push((name, pollster::block_on(db.create_table_with(name, options))?));
    }
    let mut expected = Contents::new();
    // Some values are too long for a page.
    let value = |key: u64, round: u64| {
        let mut random = fastrand::Rng::with_seed(key << 8 ^ round);
        let most = if key % 100 == 7 { 5000 } else { 700 };
        (0..random.usize(0..most)).map(|_| random.u8(..)).collect::<Vec<u8>>()
    };
    for round in 0..3 {
        for key in (0..RECORDS).filter(|key| round == 0 || (key + round) % 3 == 0) {
            let (name, table) = &tables[key as usize % tables.len()];
            let (bytes, table) = (value(key, round), table.clone());
            let deleted = round == 2 && key % 5 == 0;
            if deleted {
                expected.remove(&(*name, key))
            } else {
                expected.insert((*name, key), bytes.clone())
            };
            db.run_blocking(async move |tx| match deleted {
                true => tx.delete(&table, &key).await.map(drop),
                false => tx.put(&table, &key, &bytes).await,
            })?;
        }
        if round == 0 {
            pollster::block_on(db.checkpoint())?;
        }
    }
    let tail = db.stats().lsn.tail;
    db.close()?;
    drop(db);
    // Removes the segments prepared for later log records, which would only be copied each time.
    let mut start = tail.next_multiple_of(SEGMENT_BYTES) + SEGMENT_BYTES;
    while std::fs::remove_file(directory.join(format!("wal-{start:016x}.seg"))).is_ok() {
        start += SEGMENT_BYTES;
    }
    Ok(expected)
}

fn write_all(directory: &Path, files: &[(OsString, Vec<u8>)]) -> Result<()> {
    super::remove(directory)?;
    std::fs::create_dir_all(directory).context("making a directory")?;
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).context("copying the database")?;
    }
    Ok(())
}

fn read(directory: &Path) -> Said {
    let Ok(db) = Database::open(directory, options()) else { return Said::Refused };
    let contents = || {
        let mut contents = Contents::new();
        for (name, _) in TABLES {
            let table: Table<u64, [u8]> = pollster::block_on(db.open_table(name))?;
            contents.extend(db.run_blocking(async move |tx| {
                let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
                while let Some((key, value)) = scan.next().await? {
                    found.push(((name, key), value.to_vec()));
                }
                Ok::<_, Error>(found)
            })?);
        }
        Ok::<_, Error>((contents, db.check()?.problems))
    };
    match contents() {
        Ok((contents, problems)) if problems.is_empty() => Said::Read(contents),
        _ => Said::Error,
    }
}

/// Records from now on whether any thread panics.
fn watch_panics() -> Arc<AtomicBool> {
    let panicked = Arc::new(AtomicBool::new(false));
    let (noted, before) = (panicked.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        // Relaxed: see the load.
        noted.store(true, Ordering::Relaxed);
        before(info);
    }));
    panicked
}
