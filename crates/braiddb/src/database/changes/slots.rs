//! Slots: named positions from which the log is held for a feed that is absent or resumes after a
//! restart.
//!
//! A slot is a row of the internal table `braid.slots` (`docs/format.md`). While the database is
//! open, it also holds the log. Invariant: the held log starts no later than the durable row's
//! position, and no row is later than a token that the user passed. After a crash, the log from the
//! row's position on is therefore present.

use std::sync::Arc;

use super::slot_list::{Slot, SlotRow, Slots};
use super::token::{ChangeToken, check_in_log};
use super::{begin_now, check_token};
use crate::database::TableOptions;
use crate::database::run::commit_on_worker;
use crate::database::{ChangesError, Database, Error, Misuse, Result, Table, Transaction};
use crate::log::{LogFiles, Lsn};
use crate::transaction::WorkerTransactions;

const TABLE: &str = "braid.slots";
const MAX_NAME_BYTES: usize = 512;

/// A slot, as listed by [`Database::change_slots`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeSlot {
    /// The slot's name.
    pub name: String,
    /// The position at which a feed of this slot starts.
    pub token: ChangeToken,
    /// The maximum size of the log that it holds, in bytes.
    pub max_bytes: u64,
    /// The size of the log from its position to the log tail, in bytes.
    pub behind_bytes: u64,
    /// True if log that it needs was freed because it would have held more than
    /// [`ChangeSlot::max_bytes`]. A feed of this slot fails with [`ChangesError::LogGone`](crate::ChangesError).
    pub lost: bool,
}

impl Database {
    /// Creates a slot and returns its token. From now on, the slot holds the log for feeds that
    /// start from it ([`ChangesFrom::Slot`](super::ChangesFrom)), until it is advanced or dropped.
    /// It does so without an active feed and across restarts.
    ///
    /// `max_bytes` limits the held log. If a slot exceeds it when the log is compacted, or after a
    /// requested checkpoint, the slot is lost: the log is freed, and feeds of the slot fail with
    /// [`ChangesError::LogGone`](crate::ChangesError).
    ///
    /// If the future is dropped, the slot is still created. The first feed or slot upgrades a
    /// database to format version 3 ([`Database::changes`]).
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let cities = db.create_table::<str, u64>("cities").await?;
    ///         db.create_change_slot("search", 4 << 30).await?;
    ///         db.put(&cities, "Maribor", &96_211).await?;
    ///
    ///         let mut changes = db.changes(ChangesFrom::Slot("search".to_owned()));
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         // Once the results are stored safely:
    ///         db.advance_change_slot("search", &transaction.token.expect("every commit has one"))
    ///             .await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ChangesError::SlotExists`](crate::ChangesError); [`Misuse::NoLog`](crate::Misuse) if the
    /// database has no log; [`Misuse::SlotName`](crate::Misuse) if the name is empty or longer than
    /// 512 bytes; the errors of [`Database::run`].
    pub async fn create_change_slot(&self, name: &str, max_bytes: u64) -> Result<ChangeToken> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(Misuse::SlotName(name.to_owned()).into());
        }
        let files = self.followed_log()?;
        let (slots, name) = (self.shared.slots.clone(), name.to_owned());
        self.on_worker(async move || create(&slots, &files, name, max_bytes).await).await
    }

    /// Advances a slot to a token, after the changes up to the token were processed. The slot then
    /// needs the log only from there. A slot never moves backwards. If the future is dropped, the
    /// slot is still advanced.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir()?;
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.create_change_slot("search", 4 << 30).await?;
    ///         let mut changes = db.changes(ChangesFrom::Slot("search".to_owned()));
    ///         db.put(&cities, "Maribor", &96_211).await?;
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         // The changes are durably in the search index now.
    ///         let token = transaction.token.expect("every commit has one");
    ///         db.advance_change_slot("search", &token).await?;
    ///         assert_eq!(db.change_slots().await?[0].token, token);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ChangesError::SlotNotFound`](crate::ChangesError); [`ChangesError::Token`](crate::ChangesError); [`ChangesError::LogGone`](crate::ChangesError) if the slot is
    /// lost; the errors of [`Database::run`].
    pub async fn advance_change_slot(&self, name: &str, token: &ChangeToken) -> Result<()> {
        let files = self.followed_log()?;
        check_token(&self.shared.engine, &files, token)?;
        let (slots, name, token) = (self.shared.slots.clone(), name.to_owned(), *token);
        self.on_worker(async move || advance(&slots, &files, &name, &token).await).await
    }

    /// Drops a slot, which releases its hold on the log. If the future is dropped, the slot is
    /// still dropped.
    ///
    /// ```
    /// use braiddb::{Database, Options, block_on};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir()?;
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         db.create_change_slot("search", 4 << 30).await?;
    ///         db.drop_change_slot("search").await?;
    ///         assert!(db.change_slots().await?.is_empty());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ChangesError::SlotNotFound`](crate::ChangesError); the errors of [`Database::run`].
    pub async fn drop_change_slot(&self, name: &str) -> Result<()> {
        self.refuse_if_read_only()?;
        let (slots, name) = (self.shared.slots.clone(), name.to_owned());
        self.on_worker(async move || drop_slot(&slots, name).await).await
    }

    /// Returns all slots, sorted by name.
    ///
    /// ```
    /// use braiddb::{Database, Options, block_on};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir()?;
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         db.create_change_slot("search", 4 << 30).await?;
    ///         for slot in db.change_slots().await? {
    ///             println!("{} holds the log from {} on", slot.name, slot.token.resume_lsn());
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub async fn change_slots(&self) -> Result<Vec<ChangeSlot>> {
        let rows = self.run(async |tx| tx.slots().await).await?;
        let engine = &self.shared.engine;
        rows.iter().for_each(|(name, row)| self.shared.slots.publish(name, row.number));
        let Some(files) = engine.log.readable_files() else { return Ok(Vec::new()) };
        let end = engine.log.tail();
        let described = rows.into_iter().map(|(name, row)| ChangeSlot {
            token: row.token(files.database()),
            max_bytes: row.max_bytes,
            behind_bytes: end.0.saturating_sub(row.resume.0),
            lost: !engine.read_only && self.shared.slots.is_lost(&name, row.number),
            name,
        });
        Ok(described.collect())
    }

    /// Holds the log for all stored slots. It runs when the database is opened, before anything is
    /// freed.
    pub(in crate::database) async fn load_slots(&self) -> Result<()> {
        let engine = &self.shared.engine;
        // A database with slots has a log of format version 3, which records moved blocks.
        let Some(files) = engine.log.files().filter(LogFiles::allows_moved) else {
            return Ok(());
        };
        let rows = self.run(async |tx| tx.slots().await).await?;
        for (name, row) in rows {
            let hold = files.hold(row.resume, row.max_bytes).ok();
            hold.iter().for_each(|hold| hold.set_slot(&name));
            if hold.is_none() {
                tracing::warn!(
                    "the slot {name:?} is lost: it needs more than its limit of {} bytes of log",
                    row.max_bytes
                );
            }
            self.shared.slots.enter(name, Slot { row, created: Lsn::ZERO, hold });
        }
        Ok(())
    }
}

async fn create(
    slots: &Arc<Slots>,
    files: &LogFiles,
    name: String,
    max_bytes: u64,
) -> Result<ChangeToken> {
    let worker = WorkerTransactions::current();
    let (token, hold) = begin_now(worker.engine(), files, max_bytes);
    hold.set_slot(&name);
    let ChangeToken { resume, given, sum, .. } = token;
    let row = SlotRow { number: fastrand::Rng::new().u64(..), resume, given, max_bytes, sum };
    let insert = async |tx: &Transaction| {
        let table = tx.slots_table().await?;
        match tx.insert(&table, &name, &row.encode()).await {
            Err(Error::KeyExists(_)) => Ok(Some(tx.slot(&name).await?.1.number)),
            inserted => inserted.map(|()| None),
        }
    };
    let _pending = slots.begin_creation(row);
    let (there, lsn) = commit_on_worker(insert).await?;
    // If nothing was written, the row read was committed before this LSN.
    let lsn = if there.is_none() { lsn } else { Lsn(lsn.0 - 1) };
    worker.wait_durable(lsn).await?;
    if let Some(number) = there {
        slots.publish(&name, number);
        return Err(Error::Changes(ChangesError::SlotExists(name)));
    }
    slots.enter(name, Slot { row, created: lsn, hold: Some(hold) });
    Ok(token)
}

async fn advance(
    slots: &Arc<Slots>,
    files: &LogFiles,
    name: &str,
    token: &ChangeToken,
) -> Result<()> {
    check_in_log(files, token).await?;
    let advance = async |tx: &Transaction| {
        let (table, row) = tx.slot(name).await?;
        if slots.is_lost(name, row.number) {
            return Err(Error::Changes(ChangesError::LogGone { oldest: files.oldest().0 }));
        }
        let advanced = row.advanced(token);
        if advanced != row {
            tx.put(&table, name, &advanced.encode()).await?;
        }
        Ok((advanced, advanced != row))
    };
    let ((row, wrote), lsn) = commit_on_worker(advance).await?;
    // Waits before the slot's older log may be freed, so that the row survives a crash. If nothing
    // was written, the row read was committed before this LSN.
    let lsn = if wrote { lsn } else { Lsn(lsn.0 - 1) };
    WorkerTransactions::current().wait_durable(lsn).await?;
    slots.advance(name, &row);
    Ok(())
}

async fn drop_slot(slots: &Arc<Slots>, name: String) -> Result<()> {
    let delete = async |tx: &Transaction| {
        let (table, row) = tx.slot(&name).await?;
        tx.delete(&table, &name).await?;
        Ok(row)
    };
    let (row, lsn) = commit_on_worker(delete).await?;
    WorkerTransactions::current().wait_durable(lsn).await?;
    slots.remove(&name, row.number);
    Ok(())
}

impl Transaction {
    /// Opens the table of slots, or creates it.
    async fn slots_table(&self) -> Result<Table<str, [u8]>> {
        match self.describe_any(TABLE).await? {
            Some(found) => Ok(self.handle(&found)),
            None => self.create_named(TABLE, TableOptions::default()).await,
        }
    }

    async fn slot(&self, name: &str) -> Result<(Table<str, [u8]>, SlotRow)> {
        let not_found = || Error::Changes(ChangesError::SlotNotFound(name.to_owned()));
        let found = self.describe_any(TABLE).await?.ok_or_else(not_found)?;
        let table: Table<str, [u8]> = self.handle(&found);
        let row = SlotRow::decode(self.get(&table, name).await?.ok_or_else(not_found)?)?;
        Ok((table, row))
    }

    async fn slots(&self) -> Result<Vec<(String, SlotRow)>> {
        let Some(found) = self.describe_any(TABLE).await? else { return Ok(Vec::new()) };
        let table: Table<str, [u8]> = self.handle(&found);
        let (mut scan, mut rows) = (self.scan(&table, ..)?, Vec::new());
        while let Some((name, row)) = scan.next().await? {
            rows.push((name, SlotRow::decode(row)?));
        }
        Ok(rows)
    }
}
