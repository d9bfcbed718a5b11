//! Slots: named positions from which the log is held for a feed that is absent or resumes after a
//! restart.
//!
//! A slot is a row of the internal table `braid.slots` (`docs/format.md`). While the database is
//! open, it also holds the log. Invariant: the held log starts no later than the durable row's
//! position, and no row is later than a token that the user passed. After a crash, the log from the
//! row's position on is therefore present.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::token::{ChangeToken, check_in_log};
use super::{begin_now, check_token};
use crate::database::TableOptions;
use crate::database::run::commit_on_worker;
use crate::database::{ChangesError, Database, Error, Misuse, Result, Table, Transaction};
use crate::log::{LogFiles, LogHold, Lsn};
use crate::sync::Mutex;
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

/// The slots of an open database.
///
/// Committed transactions create and drop slots. Separate tasks add and remove them here once that
/// is durable, in any order. When all tasks have run, a slot is here if and only if its row exists.
#[derive(Debug, Default)]
pub(in crate::database) struct Slots(Mutex<SlotsState>);

#[derive(Debug, Default)]
struct SlotsState {
    by_name: BTreeMap<String, Slot>,
    /// Numbers of slots with one pending step: added after it was removed, or removed after another
    /// slot took its name.
    half_gone: BTreeSet<u64>,
    /// Slots that are being created, by number, with the advances made so far. Their rows are
    /// visible before they are durable.
    pending: BTreeMap<u64, SlotRow>,
    /// Slots in creation that callers already know because their rows are durable, by name. The
    /// tasks that add them have not run yet.
    published: BTreeMap<String, u64>,
}

impl SlotsState {
    /// Returns the row of a slot that callers can know.
    fn row(&self, name: &str) -> Option<&SlotRow> {
        let published = self.published.get(name).filter(|number| !self.half_gone.contains(number));
        let pending = published.and_then(|number| self.pending.get(number));
        pending.or_else(|| self.by_name.get(name).map(|slot| &slot.row))
    }

    /// Ends the creation of a slot, with or without success. Returns its row if the creation was
    /// pending.
    fn creation_finished(&mut self, number: u64) -> Option<SlotRow> {
        self.published.retain(|_, published| *published != number);
        self.pending.remove(&number)
    }
}

#[derive(Debug)]
struct Slot {
    row: SlotRow,
    /// The LSN of its creation. If two slots have one name, the older one was dropped before this
    /// LSN.
    created: Lsn,
    /// `None` if the log that it needs was gone when the database was opened.
    hold: Option<LogHold>,
}

impl Slot {
    fn advance(&mut self, row: &SlotRow) {
        self.row = self.row.advanced(&row.token([0; 16]));
        self.hold.iter().for_each(|hold| hold.advance(self.row.resume));
    }
}

/// A slot that is being created; dropping this value ends the creation.
struct PendingSlot<'s> {
    slots: &'s Slots,
    number: u64,
}

impl Drop for PendingSlot<'_> {
    fn drop(&mut self) {
        self.slots.0.lock().creation_finished(self.number);
    }
}

/// The stored row of a slot: five numbers, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotRow {
    /// A random number that distinguishes the slot from later ones of its name.
    number: u64,
    resume: Lsn,
    given: Lsn,
    max_bytes: u64,
    /// The checksum, as in a token.
    sum: u32,
}

impl SlotRow {
    fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let numbers =
            [self.number, self.resume.0, self.given.0, self.max_bytes, u64::from(self.sum)];
        for (into, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *into = number.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || crate::types::DecodeError::new("a slot");
        let (&[number, resume, given, max_bytes, sum], []) = bytes.as_chunks::<8>() else {
            return Err(malformed().into());
        };
        let [number, resume, given, max_bytes, sum] =
            [number, resume, given, max_bytes, sum].map(u64::from_le_bytes);
        let sum = u32::try_from(sum).map_err(|_| malformed())?;
        Ok(Self { number, resume: Lsn(resume), given: Lsn(given), max_bytes, sum })
    }

    /// Returns the row advanced to the token.
    fn advanced(self, token: &ChangeToken) -> Self {
        let further = self.token(token.database).further(token);
        let ChangeToken { resume, given, sum, .. } = further;
        Self { resume, given, sum, ..self }
    }

    fn token(&self, database: [u8; 16]) -> ChangeToken {
        ChangeToken { database, resume: self.resume, given: self.given, sum: self.sum }
    }
}

impl Slots {
    /// Returns the position of the slot of this name, and its maximum size in bytes.
    pub(super) fn start(&self, name: &str, files: &LogFiles) -> Result<(ChangeToken, u64)> {
        let state = self.0.lock();
        let row = state
            .row(name)
            .ok_or_else(|| Error::Changes(ChangesError::SlotNotFound(name.to_owned())))?;
        Ok((row.token(files.database()), row.max_bytes))
    }

    /// Returns whether log that the slot needs was freed; `false` while the slot is being created.
    fn is_lost(&self, name: &str, number: u64) -> bool {
        let state = self.0.lock();
        let slot = state.by_name.get(name).filter(|slot| slot.row.number == number);
        slot.is_some_and(|slot| slot.hold.as_ref().is_none_or(|hold| hold.from().is_none()))
    }

    /// Starts the creation of a slot. The slot is added before the result is dropped, or never.
    fn begin_creation(&self, row: SlotRow) -> PendingSlot<'_> {
        self.0.lock().pending.insert(row.number, row);
        PendingSlot { slots: self, number: row.number }
    }

    /// Adds a slot whose creation is durable.
    fn enter(&self, name: String, mut slot: Slot) {
        let state = &mut *self.0.lock();
        if let Some(row) = state.creation_finished(slot.row.number) {
            slot.advance(&row);
        }
        if state.half_gone.remove(&slot.row.number) {
            return;
        }
        let gone = match state.by_name.get(&name) {
            Some(other) if other.created > slot.created => Some(slot.row.number),
            _ => state.by_name.insert(name, slot).map(|other| other.row.number),
        };
        state.half_gone.extend(gone);
    }

    /// Makes a slot visible to all callers before its caller learns of it. Its row is durable.
    fn publish(&self, name: &str, number: u64) {
        let state = &mut *self.0.lock();
        if state.pending.contains_key(&number) {
            state.published.insert(name.to_owned(), number);
        }
    }

    /// Advances a slot whose row is durable.
    fn advance(&self, name: &str, row: &SlotRow) {
        let state = &mut *self.0.lock();
        if let Some(pending) = state.pending.get_mut(&row.number) {
            *pending = pending.advanced(&row.token([0; 16]));
            state.published.insert(name.to_owned(), row.number);
        } else if let Some(slot) = state.by_name.get_mut(name)
            && slot.row.number == row.number
        {
            slot.advance(row);
        }
    }

    /// Removes a slot whose deletion is durable.
    fn remove(&self, name: &str, number: u64) {
        let state = &mut *self.0.lock();
        if state.half_gone.remove(&number) {
            return;
        }
        if state.by_name.get(name).is_some_and(|slot| slot.row.number == number) {
            state.by_name.remove(name);
        } else {
            state.half_gone.insert(number);
        }
    }
}

impl Database {
    /// Creates a slot and returns its token. From now on, the slot holds the log for feeds that
    /// start from it ([`ChangesFrom::Slot`](super::ChangesFrom)), until it is advanced or dropped.
    /// It does so without an active feed and across restarts.
    ///
    /// `max_bytes` limits the held log. If a slot exceeds it when the log is compacted, the slot is
    /// lost: the log is freed, and feeds of the slot fail with [`ChangesError::LogGone`](crate::ChangesError).
    ///
    /// If the future is dropped, the slot is still created. The first feed or slot upgrades a
    /// database to format version 3 ([`Database::changes`]).
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let cities = db.create_table::<str, u64>("cities").await?;
    /// db.create_change_slot("search", 4 << 30).await?;
    /// db.put(&cities, "Maribor", &96_211).await?;
    ///
    /// let mut changes = db.changes(ChangesFrom::Slot("search".to_owned()));
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// // Once the results are stored safely:
    /// db.advance_change_slot("search", &transaction.token.expect("every commit has one")).await?;
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ChangesError::SlotExists`](crate::ChangesError); [`Error::Options`] if the database has no log, or the name is
    /// empty or longer than 512 bytes; the errors of [`Database::run`].
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
    /// use braiddb::{Database, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let cities: Table<str, u64> = db.create_table("cities").await?;
    /// db.create_change_slot("search", 4 << 30).await?;
    /// let mut changes = db.changes(ChangesFrom::Slot("search".to_owned()));
    /// db.put(&cities, "Maribor", &96_211).await?;
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// // The changes are durably in the search index now.
    /// let token = transaction.token.expect("every commit has one");
    /// db.advance_change_slot("search", &token).await?;
    /// assert_eq!(db.change_slots().await?[0].token, token);
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
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
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let cities: Table<str, u64> = db.create_table("cities").await?;
    /// db.create_change_slot("search", 4 << 30).await?;
    /// # drop(cities);
    /// db.drop_change_slot("search").await?;
    /// assert!(db.change_slots().await?.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
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
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let cities: Table<str, u64> = db.create_table("cities").await?;
    /// # drop(cities);
    /// db.create_change_slot("search", 4 << 30).await?;
    /// for slot in db.change_slots().await? {
    ///     println!("{} holds the log from {} on", slot.name, slot.token.resume_lsn());
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
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
    let ChangeToken { resume, given, sum, .. } = token;
    let row = SlotRow { number: fastrand::Rng::new().u64(..), resume, given, max_bytes, sum };
    let insert = async |tx: &Transaction| {
        let table = tx.slots_table().await?;
        match tx.insert(&table, &name, &row.encode()).await {
            Err(Error::KeyExists) => Ok(Some(tx.slot(&name).await?.1.number)),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    fn slot(number: u64, created: u64) -> Slot {
        let row = SlotRow { number, resume: Lsn(1), given: Lsn(1), max_bytes: 1, sum: 0 };
        Slot { row, created: Lsn(created), hold: None }
    }

    fn advanced_to(number: u64, to: u64) -> SlotRow {
        SlotRow { resume: Lsn(to), given: Lsn(to), ..slot(number, 0).row }
    }

    /// Durable changes are applied in any order. Slots of one name are created, advanced and
    /// dropped one after another; the last one may stay.
    #[test]
    fn a_slot_is_there_in_the_end_if_its_row_is_and_where_that_is() {
        with_limit(PART_SECONDS, |_| {
            #[derive(Clone, Copy, Debug)]
            enum DurableStep {
                Made,
                Advanced(u64),
                Dropped,
            }
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..20_000 {
                let (count, stays) = (random.u64(1..5), random.bool());
                let mut steps = Vec::new();
                for number in 0..count {
                    steps.push((number, DurableStep::Made));
                    let advances = 2..random.u64(2..5);
                    steps.extend(advances.map(|to| (number, DurableStep::Advanced(to))));
                    steps.push((number, DurableStep::Dropped));
                }
                if stays {
                    steps.pop();
                }
                let furthest = |number| {
                    let to = |(of, step): &(u64, DurableStep)| match step {
                        DurableStep::Advanced(to) if *of == number => Some(*to),
                        _ => None,
                    };
                    steps.iter().filter_map(to).max().unwrap_or(1)
                };
                let furthest = furthest(count - 1);
                random.shuffle(&mut steps);
                let slots = Slots::default();
                let mut pending: Vec<_> = (0..count)
                    .map(|number| Some(slots.begin_creation(slot(number, 0).row)))
                    .collect();
                for (number, step) in &steps {
                    match step {
                        DurableStep::Made => {
                            slots.enter("s".to_owned(), slot(*number, 10 * number));
                            pending[*number as usize] = None;
                        }
                        DurableStep::Advanced(to) => slots.advance("s", &advanced_to(*number, *to)),
                        DurableStep::Dropped => slots.remove("s", *number),
                    }
                }
                let state = slots.0.lock();
                let there = state.by_name.get("s").map(|slot| (slot.row.number, slot.row.given));
                assert_eq!(there, stays.then(|| (count - 1, Lsn(furthest))), "{steps:?}");
                assert!(state.half_gone.is_empty() && state.pending.is_empty(), "{steps:?}");
            }
        });
    }

    /// A caller that knows of a slot can follow it, even if the task that creates it has not added
    /// it yet.
    #[test]
    fn a_slot_that_is_being_created_is_there_for_all_once_somebody_was_told_of_it() {
        with_limit(PART_SECONDS, |_| {
            let slots = Slots::default();
            let number = |slots: &Slots| slots.0.lock().row("s").map(|row| row.number);
            slots.enter("s".to_owned(), slot(1, 10));
            let pending = slots.begin_creation(slot(2, 20).row);
            assert_eq!(number(&slots), Some(1), "nobody was told of the other");
            slots.publish("s", 2);
            assert_eq!(number(&slots), Some(2), "the first was dropped by then");
            slots.remove("s", 2);
            slots.remove("s", 1);
            assert_eq!(number(&slots), None);
            slots.enter("s".to_owned(), slot(2, 20));
            drop(pending);
            assert_eq!(number(&slots), None);
            // Another caller advances it.
            let pending = slots.begin_creation(slot(3, 30).row);
            slots.advance("s", &advanced_to(3, 40));
            assert_eq!(number(&slots), Some(3));
            slots.enter("s".to_owned(), slot(3, 30));
            drop(pending);
            assert_eq!(number(&slots), Some(3));
            slots.remove("s", 3);
            let state = slots.0.lock();
            assert!(
                state.published.is_empty()
                    && state.pending.is_empty()
                    && state.half_gone.is_empty()
            );
        });
    }

    /// A slot whose creation fails is forgotten.
    #[test]
    fn a_slot_that_is_not_made_after_all_leaves_nothing() {
        with_limit(PART_SECONDS, |_| {
            let slots = Slots::default();
            drop(slots.begin_creation(slot(1, 0).row));
            slots.advance("s", &advanced_to(1, 5));
            let state = slots.0.lock();
            assert!(
                state.by_name.is_empty() && state.half_gone.is_empty() && state.pending.is_empty()
            );
        });
    }
}
