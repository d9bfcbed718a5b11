//! The tables and operations of the transactions in histories.
//!
//! The checker of cycles does not support key ranges. Therefore each list is stored as a range: its
//! elements are records, an append inserts a record after the last one, and a read scans all of
//! them. Some lists are ranges of a table. Others are ranges of a unique index of a table with
//! other keys.

use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, Postcard, Table, TableOptions, Transaction,
};

use super::record::{Told, Wanted};

/// A list and a position in it.
type Place = (u64, u64);

/// The number of accounts of the bank, and the initial balance of each.
const ACCOUNTS: u64 = 32;
const BALANCE: u64 = 1000;

/// Draws the kind of a table: paged or in memory.
pub(super) fn kind(random: &mut fastrand::Rng) -> TableOptions {
    match random.bool() {
        true => TableOptions::default().paged(),
        false => TableOptions::default(),
    }
}

/// Returns the elements that a scan reads, from records or from entries of an index.
macro_rules! elements {
    ($scan:expr) => {{
        let (mut scan, mut told) = ($scan, Told::new());
        while let Some((_, element)) = scan.next().await? {
            told.push(element);
        }
        told
    }};
}

/// The tables of histories.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Maps places to elements, for lists with even numbers.
    lists: Table<Place, u64>,
    /// Maps elements to places, for lists with odd numbers.
    elements: Table<u64, Postcard<Place>>,
    places: Index<Place, u64, Postcard<Place>>,
    registers: Table<u64, u64>,
    accounts: Table<u64, u64>,
}

impl Tables {
    /// Opens or creates the tables, each paged or in memory by the seed.
    pub(super) async fn open(db: &Database, seed: u64) -> Result<Self, Error> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut made = || kind(&mut random);
        let elements = db.open_or_create_table_with("elements", made()).await?;
        let extract = |place: Place, keys: &mut IndexKeys<'_, Place>| keys.push(&place);
        let unique = IndexOptions::default().unique(true);
        let places = db.index(&elements, "places", unique, extract).await?;
        let accounts: Table<u64, u64> = db.open_or_create_table_with("accounts", made()).await?;
        let bank = accounts.clone();
        db.run(async move |tx| {
            if tx.first(&bank).await?.is_some() {
                return Ok(());
            }
            for account in 0..ACCOUNTS {
                tx.insert(&bank, &account, &BALANCE).await?;
            }
            Ok(())
        })
        .await?;
        Ok(Self {
            lists: db.open_or_create_table_with("lists", made()).await?,
            registers: db.open_or_create_table_with("registers", made()).await?,
            elements,
            places,
            accounts,
        })
    }

    /// Runs a transaction on lists.
    pub(super) async fn on_lists(
        &self,
        tx: &Transaction,
        all: &[Wanted],
    ) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        for wanted in all {
            match *wanted {
                Wanted::Read(list) => told.push(self.read(tx, list).await?),
                Wanted::Append(list, element) => self.append(tx, list, element).await?,
                Wanted::Write(..) => unreachable!("lists are appended to"),
            }
        }
        Ok(told)
    }

    async fn read(&self, tx: &Transaction, list: u64) -> Result<Told, Error> {
        let range = (list, 0)..=(list, u64::MAX);
        Ok(match list.is_multiple_of(2) {
            true => elements!(tx.scan(&self.lists, range)?),
            false => elements!(tx.entries_by(&self.places, range)?),
        })
    }

    async fn append(&self, tx: &Transaction, list: u64, element: u64) -> Result<(), Error> {
        let range = (list, 0)..=(list, u64::MAX);
        if list.is_multiple_of(2) {
            let last = tx.scan(&self.lists, range)?.rev().limit(1).next().await?;
            let next = last.map_or(0, |((_, place), _)| place + 1);
            return tx.insert(&self.lists, &(list, next), &element).await;
        }
        let mut last = tx.scan_by(&self.places, range)?.rev().limit(1);
        let next = last.next().await?.map_or(0, |((_, place), _, _)| place + 1);
        tx.insert(&self.elements, &element, &(list, next)).await
    }

    /// Runs a transaction on registers.
    pub(super) async fn on_registers(
        &self,
        tx: &Transaction,
        all: &[Wanted],
    ) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        for wanted in all {
            match *wanted {
                Wanted::Read(key) => {
                    told.push(tx.get(&self.registers, &key).await?.into_iter().collect());
                }
                Wanted::Write(key, value) => tx.put(&self.registers, &key, &value).await?,
                Wanted::Append(..) => unreachable!("registers are written"),
            }
        }
        Ok(told)
    }

    /// Moves money from one account to another.
    pub(super) async fn transfer(
        &self,
        tx: &Transaction,
        (from, to): (u64, u64),
        amount: u64,
    ) -> Result<(), Error> {
        let (from, to) = (from % ACCOUNTS, to % ACCOUNTS);
        let there = tx.get(&self.accounts, &from).await?.unwrap_or(0);
        let amount = amount.min(there);
        tx.put(&self.accounts, &from, &(there - amount)).await?;
        let there = tx.get(&self.accounts, &to).await?.unwrap_or(0);
        tx.put(&self.accounts, &to, &(there + amount)).await
    }

    /// Checks the bank's accounts in one snapshot. Returns the first problem, or the number of
    /// accounts.
    pub(super) async fn audit(&self, tx: &Transaction) -> Result<Result<u64, String>, Error> {
        let (mut scan, mut sum, mut count) = (tx.scan(&self.accounts, ..)?, 0, 0);
        while let Some((_, there)) = scan.next().await? {
            (sum, count) = (sum + there, count + 1);
        }
        let right = (sum, count) == (ACCOUNTS * BALANCE, ACCOUNTS);
        Ok(if right { Ok(count) } else { Err(format!("{count} accounts have {sum} in all")) })
    }
}
