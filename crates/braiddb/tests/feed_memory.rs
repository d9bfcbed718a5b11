//! Memory of the readers of past and later changes: far less than the log that they read. This test
//! is alone in its process, whose memory it measures.

#![cfg(not(braid_simulation))]

mod common;

use braiddb::changes::{ChangeTransaction, ChangesFrom};
use braiddb::{Database, Durability, Options, Table};
use common::{Watched, with_limit};
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// Bytes of a value. Each is a transaction.
const VALUE_BYTES: u64 = 2 * MIB;
const TRANSACTIONS: u64 = 80;
/// The log that is read at a time, what the allocator retains, and the last transaction.
const MAX_GROWTH: u64 = 48 * MIB;

/// Reads all transactions, and checks their values and the growth of the process.
fn read(db: &Database, name: &str, mut next: impl FnMut() -> ChangeTransaction) {
    let before = db.stats().memory.resident;
    for key in 0..TRANSACTIONS {
        let transaction = next();
        let change = &transaction.changes[0];
        assert_eq!(change.key_as::<u64>().unwrap(), key);
        assert!(change.value.iter().all(|byte| *byte == key as u8), "{name}: {key}");
        let growth = db.stats().memory.resident.saturating_sub(before);
        assert!(growth <= MAX_GROWTH, "{name}: {growth} bytes after {key} transactions");
    }
}

#[test]
fn readers_of_changes_hold_little_of_the_log() {
    with_limit(300, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(1).memory_budget(64 * MIB).durability(Durability::Relaxed);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        let token = block_on(db.create_change_slot("slot", 1 << 30)).unwrap();
        let mut value = vec![0; VALUE_BYTES as usize];
        for key in 0..TRANSACTIONS {
            value.fill(key as u8);
            block_on(db.put(&table, &key, &value[..])).unwrap();
        }
        let mut feed = db.changes(ChangesFrom::Token(token));
        let next = || block_on(feed.next()).unwrap().expect("a feed ends with an error");
        read(&db, "a feed", next);
        drop(feed);
        let mut past = db.past_changes(Some(token)).unwrap();
        read(&db, "past changes", || past.next().expect("there are more").unwrap());
        drop(past);
        db.close().unwrap();
    });
}
