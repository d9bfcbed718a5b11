//! Scans of paged tables with concurrent writers: each sees one snapshot, from leaves with and without
//! versions.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, Isolation, Options, Table, Transaction};

const LIMIT_SECONDS: u64 = 180;
const ACCOUNTS: u64 = 1500;
const DEPOSIT: u64 = 1000;
const TRANSFERS: u64 = 3000;
const SCANS: u64 = 150;
/// Writers use one account in this many, so that most leaves have no version chain.
const STEP: u64 = 50;

type Accounts = Table<str, [u8]>;

/// Keys of more than eight bytes, and shorter ones.
fn key(account: u64) -> String {
    if account.is_multiple_of(3) {
        format!("{account:06}")
    } else {
        format!("{account:06}-account")
    }
}

/// The balance, and a rest of a length that depends on the account. A few values are large.
fn value(account: u64, balance: u64) -> Vec<u8> {
    let rest = if account.is_multiple_of(400) { 5000 } else { account as usize % 90 };
    [&balance.to_le_bytes()[..], &vec![account as u8; rest]].concat()
}

fn balance(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a balance"))
}

async fn transfer(tx: &Transaction, table: &Accounts, from: u64, to: u64) -> Result<(), Error> {
    for (account, change) in [(from, -1), (to, 1)] {
        let now = tx.get(table, &key(account)).await?.expect("accounts stay");
        let now = balance(now).wrapping_add_signed(change);
        tx.put(table, &key(account), &value(account, now)).await?;
    }
    Ok(())
}

/// Scans in one of several ways. Returns the accounts and the sum of their balances.
async fn scan(tx: &Transaction, table: &Accounts, way: u64) -> Result<(u64, u64), Error> {
    let (mut count, mut sum, mut keys) = (0, 0, Vec::new());
    let mut add = |found: &str, bytes: &[u8]| {
        let account: u64 = found[..6].parse().expect("a number");
        assert!(bytes == value(account, balance(bytes)), "{found} has the value of another");
        (count, sum) = (count + 1, sum + balance(bytes));
        keys.push(account);
    };
    let each = |found: String, bytes: &[u8]| {
        add(&found, bytes);
        ControlFlow::<()>::Continue(())
    };
    match way % 3 {
        0 => _ = tx.scan(table, ..)?.visit(each).await?,
        1 => _ = tx.scan(table, ..)?.rev().visit(each).await?,
        _ => {
            let mut scan = tx.scan(table, ..)?;
            while let Some((found, bytes)) = scan.next().await? {
                add(&found, bytes);
            }
        }
    }
    let is_sorted = |a: &u64, b: &u64| if way % 3 == 1 { a > b } else { a < b };
    assert!(keys.is_sorted_by(is_sorted), "in key order");
    let low = way * 37 % ACCOUNTS;
    let low_key = key(low);
    assert_eq!(tx.scan(table, &low_key[..]..)?.count().await?, ACCOUNTS - low);
    let after = (Bound::Excluded(&low_key[..]), Bound::Unbounded);
    assert_eq!(tx.scan(table, after)?.count().await?, ACCOUNTS - low - 1);
    let first = tx.first(table).await?.expect("accounts exist");
    assert!(first.0 == key(0) && first.1.len() == value(0, 0).len());
    Ok((count, sum))
}

fn check(db: &Database, isolation: Isolation) {
    let table: Accounts = create_table(db, "accounts", true);
    let filled = table.clone();
    let fill = async move |tx: &Transaction| {
        for account in 0..ACCOUNTS {
            tx.put(&filled, &key(account), &value(account, DEPOSIT)).await?;
        }
        Ok::<_, Error>(())
    };
    db.run_blocking(fill).unwrap();
    let left = AtomicU64::new(TRANSFERS);
    let take = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (table, take) = (&table, &take);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while take().is_ok() {
                    let account = |number| number * STEP;
                    let from = account(random.u64(..ACCOUNTS / STEP));
                    let to = account(random.u64(..ACCOUNTS / STEP));
                    let table = table.clone();
                    db.run_blocking(async move |tx| transfer(tx, &table, from, to).await).unwrap();
                }
            });
        }
        for reader in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for way in reader..reader + SCANS {
                    let table = table.clone();
                    let read = async move |tx: &Transaction| scan(tx, &table, way).await;
                    let found = db.transaction().isolation(isolation).run_blocking(read);
                    assert_eq!(found.unwrap().value, (ACCOUNTS, ACCOUNTS * DEPOSIT));
                }
            });
        }
    });
}

#[test]
fn scans_beside_writers_see_one_snapshot() {
    with_limit(LIMIT_SECONDS, |_| {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
            check(&db, isolation);
            db.close().unwrap();
        }
    });
}

/// Transactions that keep the first record of many scans keep only copies of small values.
#[test]
fn the_first_record_of_a_scan_takes_the_memory_of_its_value() {
    with_limit(LIMIT_SECONDS, |_| {
        const READS: u64 = 2000;
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let counted = db.clone();
        let body = async move |tx: &Transaction| {
            for key in 0..100 {
                tx.put(&table, &key, &[7; 40]).await?;
            }
            Ok::<_, Error>(table.clone())
        };
        let table = db.run_blocking(body).unwrap();
        let body = async move |tx: &Transaction| {
            for _ in 0..READS {
                assert_eq!(tx.first(&table).await?.unwrap().1, [7; 40]);
            }
            Ok::<_, Error>(counted.stats().memory.copies)
        };
        let copies = db.run_blocking(body).unwrap();
        assert!(copies < READS * 100, "{copies} bytes");
    });
}
