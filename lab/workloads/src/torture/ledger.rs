//! The transactions of the children, and the database contents that follow from them.
//!
//! Each writer's transactions are numbered from 1. Transaction `n` of writer `w` inserts the
//! records `(w, n, part)` for each part, sets the writer's counter to `n`, and moves an amount
//! between two shared accounts. A writer's counter therefore names its last committed transaction.
//! Every number up to it must be present with all its parts, no larger number may be present, and
//! the sum of the accounts must be unchanged.

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Error, Table, TableOptions, Transaction};

/// The number of records that a transaction inserts.
pub(super) const PARTS: u64 = 3;
/// The number of accounts that all writers share, and the sum of their balances.
pub(super) const ACCOUNTS: u64 = 64;
pub(super) const BALANCE: u64 = 1000;
/// The number of transactions whose records a writer keeps; each transaction deletes the records of
/// an older one.
pub(super) const KEPT: u64 = 200;

/// The child's tables.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) parts: Table<(u64, u64, u64), [u8]>,
    pub(super) counters: Table<u64, u64>,
    pub(super) accounts: Table<u64, u64>,
    paged: bool,
}

impl Tables {
    /// Opens or creates the tables, paged or not, with full accounts, in one transaction.
    pub(super) async fn open(tx: &Transaction, paged: bool) -> Result<Self, Error> {
        let options = TableOptions::default();
        let options = if paged { options.paged() } else { options };
        let tables = Self {
            parts: tx.open_or_create_table_with("parts", options).await?,
            counters: tx.open_or_create_table_with("counters", options).await?,
            accounts: tx.open_or_create_table_with("accounts", options).await?,
            paged,
        };
        if tx.first(&tables.accounts).await?.is_none() {
            for account in 0..ACCOUNTS {
                tx.insert(&tables.accounts, &account, &BALANCE).await?;
            }
        }
        Ok(tables)
    }

    pub(super) fn are_paged(&self) -> bool {
        self.paged
    }
}

/// Returns the bytes of one part: they differ from those of any other part and vary in length.
pub(super) fn part_bytes(writer: u64, number: u64, part: u64) -> Vec<u8> {
    let seed = writer << 40 ^ number << 8 ^ part;
    let mut random = fastrand::Rng::with_seed(seed);
    let length = if random.u32(0..50) == 0 { 20_000 } else { random.usize(8..200) };
    (0..length).map(|_| random.u8(..)).collect()
}

/// The last acknowledged and the last found transaction of each writer.
pub(super) struct Ledger {
    acknowledged: Vec<u64>,
    found: Vec<u64>,
    /// Bytes of keys and values that the last check found.
    live_bytes: u64,
    /// True if the tables are paged.
    paged: bool,
}

impl Ledger {
    pub(super) fn new(writers: u64, paged: bool) -> Self {
        let zeros = vec![0; writers as usize];
        Self { acknowledged: zeros.clone(), found: zeros, live_bytes: 0, paged }
    }

    /// Returns the number of acknowledged transactions.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().sum()
    }

    /// Returns the bytes of keys and values that the last check found.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Records a line `writer number`. A kill may cut a line short. The cut line has no line end,
    /// and its shorter number belongs to an older acknowledged transaction, so it does no harm.
    pub(super) fn acknowledge(&mut self, line: &str) -> Result<()> {
        let Some((writer, number)) = line.split_once(' ') else { return Ok(()) };
        let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse::<u64>()) else {
            return Ok(());
        };
        let last = self.acknowledged.get_mut(writer).context("an unknown writer")?;
        *last = number.max(*last);
        Ok(())
    }

    /// Checks the database. Returns the number of transactions found although they were not
    /// acknowledged.
    pub(super) fn check(&mut self, db: &Database) -> Result<u64> {
        let (writers, paged) = (self.acknowledged.len() as u64, self.paged);
        let (counters, parts, accounts) = db.run_blocking(async move |tx| {
            let tables = Tables::open(tx, paged).await?;
            let mut counters = Vec::new();
            for writer in 0..writers {
                counters.push(tx.get(&tables.counters, &writer).await?.unwrap_or(0));
            }
            let (mut scan, mut parts) = (tx.scan(&tables.parts, ..)?, Vec::new());
            while let Some((key, bytes)) = scan.next().await? {
                parts.push((key, bytes.to_vec()));
            }
            let (mut scan, mut accounts) = (tx.scan(&tables.accounts, ..)?, Vec::new());
            while let Some((_, balance)) = scan.next().await? {
                accounts.push(balance);
            }
            Ok::<_, Error>((counters, parts, accounts))
        })?;
        let mut expected = Vec::new();
        let mut beyond = 0;
        for (writer, (&counter, &acknowledged)) in
            counters.iter().zip(&self.acknowledged).enumerate()
        {
            ensure!(
                counter >= acknowledged,
                "writer {writer}: {acknowledged} was acknowledged, but only {counter} was recovered"
            );
            ensure!(counter >= self.found[writer], "writer {writer} went back to {counter}");
            beyond += counter - acknowledged.max(self.found[writer]);
            for number in counter.saturating_sub(KEPT - 1).max(1)..=counter {
                expected.extend((0..PARTS).map(|part| (writer as u64, number, part)));
            }
        }
        ensure!(
            parts.iter().map(|(key, _)| *key).eq(expected.iter().copied()),
            "{} parts exist, {} should: {:?}",
            parts.len(),
            expected.len(),
            parts.iter().map(|(key, _)| key).zip(&expected).find(|(there, wanted)| there != wanted)
        );
        for ((writer, number, part), bytes) in &parts {
            ensure!(
                *bytes == part_bytes(*writer, *number, *part),
                "part {part} of {writer}'s {number} has other bytes than were written"
            );
        }
        let total: u64 = accounts.iter().sum();
        ensure!(
            accounts.len() as u64 == ACCOUNTS && total == ACCOUNTS * BALANCE,
            "{} accounts hold {total}",
            accounts.len()
        );
        // Keys and values of counters and accounts are numbers.
        let small = (counters.len() + accounts.len()) * 2 * size_of::<u64>();
        let parts = parts.iter().map(|(key, bytes)| size_of_val(key) + bytes.len());
        self.live_bytes = (small + parts.sum::<usize>()) as u64;
        self.found = counters;
        Ok(beyond)
    }
}
