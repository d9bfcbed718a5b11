//! Disk contents after a crash, opened read-only: the reader shows the state that a later opening
//! for writing recovers, and changes nothing.

use std::sync::Arc;

use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{Watched, with_limit};
use crate::io::{CrashCounts, SimulatedDisk};
use crate::sync::Mutex;
use crate::transaction::Durability;

const KEYS: u64 = 12;
const TRANSACTIONS: u64 = 120;
/// Time limit of a test, in seconds.
const LIMIT: u64 = 600;

type Records = Table<u64, [u8]>;
type Contents = Vec<(u64, Vec<u8>)>;

fn options() -> Options {
    Options::default()
        .durability(Durability::Relaxed)
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(32 << 10))
}

/// In each transaction, one key replaces another.
fn work(disk: &SimulatedDisk, paged: bool) {
    let db = Database::open_simulated(disk, options(), 1).unwrap().watched();
    let kind = if paged { TableOptions::default().paged() } else { TableOptions::default() };
    let create = async move |tx: &Transaction| tx.create_table_with("records", kind).await;
    let table: Records = db.run_blocking(create).unwrap();
    for number in 0..TRANSACTIONS {
        let table = table.clone();
        let change = async move |tx: &Transaction| {
            tx.delete(&table, &((number + 1) % KEYS)).await?;
            tx.put(&table, &(number % KEYS), &vec![number as u8; 700]).await
        };
        db.run_blocking(change).unwrap();
        if number % 40 == 39 {
            block_on(db.compact()).unwrap();
        }
    }
    db.close().unwrap();
}

/// Returns the contents of a disk; empty if no table exists yet.
fn contents(disk: &SimulatedDisk, options: Options, seed: u64) -> Result<Contents, Error> {
    let db = Database::open_simulated(disk, options, seed)?;
    let table: Records = match block_on(db.open_table("records")) {
        Err(Error::TableNotFound(_)) => return Ok(Vec::new()),
        table => table?,
    };
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Contents::new());
        while let Some((key, value)) = scan.next().await? {
            found.push((key, value.to_vec()));
        }
        Ok(found)
    });
    db.close()?;
    found
}

fn crash_and_read(paged: bool) {
    let disk = SimulatedDisk::new(3);
    let crashes = Arc::new(Mutex::new(Vec::new()));
    let (noted, mut operation) = (crashes.clone(), 0);
    disk.watch(move |moment| {
        operation += 1;
        // A simulated database never opens in fewer operations, and testing more of them only takes
        // time.
        if operation > 20 && operation % 3 == 0 {
            noted.lock().push(moment.crash(operation, &mut CrashCounts::default()));
        }
    });
    work(&disk, paged);
    disk.unwatch();
    let crashes = std::mem::take(&mut *crashes.lock());
    assert!(crashes.len() > 50, "{}", crashes.len());
    let mut states = Vec::new();
    for (number, image) in crashes.into_iter().enumerate() {
        let (seed, before) = (number as u64, image.files());
        let read = contents(&image, options().read_only(true), seed).unwrap();
        assert_eq!(image.files(), before, "crash {number}");
        let again = contents(&image, options().read_only(true), seed).unwrap();
        let recovered = contents(&image, options(), seed).unwrap();
        assert!(read == again && read == recovered, "crash {number}");
        states.push(read);
    }
    states.dedup();
    assert!(states.len() > 20, "{} states", states.len());
}

#[test]
fn what_a_crash_leaves_is_read_as_it_is_recovered() {
    with_limit(LIMIT, |_| crash_and_read(false));
}

#[test]
fn what_a_crash_leaves_of_paged_tables_is_read_as_it_is_recovered() {
    with_limit(LIMIT, |_| crash_and_read(true));
}
