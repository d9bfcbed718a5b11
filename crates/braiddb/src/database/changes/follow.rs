//! Log follower: turns blocks of the log into the transactions of a feed. It runs on a worker, as a
//! task among the transactions.
//!
//! It reads blocks in log order, which is commit order. It skips the parts of a large transaction
//! when it first meets them, and reads only these again at the transaction's commit. Memory thus
//! holds one transaction, the positions of the parts of open transactions, and a window of the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::item::{Change, ChangeKind, ChangeTransaction};
use super::parts::{BoundSample, OpenParts};
use super::table_selection::TableSelection;
use super::tables::{CatalogRows, KnownTable, KnownTables, TableEvent};
use super::token::{ChangeToken, TokenError, check_in_log};
use crate::database::expiry::moment;
use crate::database::run::read_on_worker;
use crate::database::{ChangesError, Error, Result};
use crate::log::{Block, BlockFollower, BlockKind, LogHold, Lsn, RecordKind, RecordView};
use crate::planted::{Bug, is_planted};
use crate::record::{EXPIRY_BYTES, split_expiry};
use crate::rid::CATALOG;
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// Approximate bytes of keys and values after which the found transactions are returned.
const GIVEN_BYTES: usize = 1 << 20;
/// Bytes of log that are followed in one call.
const PASSED_BYTES: u64 = 16 << 20;
/// Blocks read before the task yields to others.
const TURN: usize = 64;

/// The position of a feed in the log, and its state at that position.
#[derive(Debug)]
pub(super) struct Follower {
    blocks: BlockFollower,
    /// Reads parts again, at other positions of the log.
    parts: BlockFollower,
    hold: Arc<LogHold>,
    /// Where the feed started.
    token: ChangeToken,
    /// The last block read, and its checksum.
    met: Option<(Lsn, u32)>,
    /// The start of the next block.
    position: Lsn,
    /// True until the first block after the start of the feed is read.
    first: bool,
    open: OpenParts,
    tables: KnownTables,
    selection: TableSelection,
}

/// The result of following the log for a while.
#[derive(Debug)]
pub(super) struct FollowResult {
    pub(super) transactions: Vec<ChangeTransaction>,
    /// The resume point of a feed that has returned all found transactions.
    pub(super) token: ChangeToken,
    /// The end of the followed log; more may be durable.
    pub(super) position: Lsn,
    /// True if more of the log was already durable.
    pub(super) more: bool,
}

/// A record of a transaction, kept until the transaction's changes to tables are known.
pub(super) struct PendingRecord {
    pub(super) table: u32,
    pub(super) kind: ChangeKind,
    pub(super) key: Vec<u8>,
    pub(super) stored: Vec<u8>,
}

impl Follower {
    /// Creates a follower that starts at a token, with the log held from there.
    pub(super) fn new(
        engine: &Engine,
        token: ChangeToken,
        hold: Arc<LogHold>,
        selection: TableSelection,
    ) -> Self {
        let resume = token.resume;
        let store = engine.log.cold_store().expect("a held log has files");
        Self {
            blocks: BlockFollower::new(store.clone()),
            parts: BlockFollower::new(store),
            hold,
            token,
            met: None,
            position: resume,
            first: true,
            open: OpenParts::new(resume),
            tables: KnownTables::default(),
            selection,
        }
    }

    /// Sets the tables that existed at the follower's position.
    pub(super) fn set_tables(&mut self, tables: KnownTables) {
        self.tables = tables;
    }

    /// Determines which tables existed at the follower's position. It starts from the current
    /// tables and undoes the later changes of the catalog.
    ///
    /// # Errors
    /// As [`Self::follow`]; [`TokenError::OtherLog`]; [`Error::Overloaded`], after which the caller
    /// may try again.
    pub(super) async fn find_tables(&mut self) -> Result<()> {
        // Upkeep: a catalog row that is only on disk is read even under overload.
        let read = sched::upkeep(read_on_worker(async |tx| tx.tables().await));
        let (tables, now) = read.await?;
        let worker = WorkerTransactions::current();
        worker.wait_durable(Lsn(now.0 - 1)).await?;
        if let Some(files) = worker.engine().log.files() {
            check_in_log(&files, &self.token).await?;
        }
        let mut tables = KnownTables::new(&tables);
        let (position, mut events) = (self.position, Vec::new());
        let mut of_parts: BTreeMap<Lsn, CatalogRows> = BTreeMap::new();
        let mut count = 0_usize;
        while self.position < now {
            let block = self.next_block(now).await?;
            match block.kind {
                BlockKind::Part { first_part } => {
                    add_rows(&block, of_parts.entry(first_part).or_default())?;
                }
                BlockKind::Commit { first_part } => {
                    let parts = first_part.and_then(|first| of_parts.remove(&first));
                    let mut rows = parts.unwrap_or_default();
                    if block.lsn > self.token.given {
                        add_rows(&block, &mut rows)?;
                        events.extend(rows.into_events());
                    }
                }
                BlockKind::Moved | BlockKind::Skip => {}
            }
            count += 1;
            if count.is_multiple_of(TURN) {
                sched::yield_now(WaitCause::Memory).await;
            }
        }
        events.iter().rev().for_each(|event| tables.take_back(event));
        (self.position, self.tables) = (position, tables);
        Ok(())
    }

    /// Follows the log up to its durable end, or for a bounded amount.
    ///
    /// # Errors
    /// [`ChangesError::LogGone`](crate::ChangesError); errors of the log; an error if a catalog row does not decode.
    pub(super) async fn follow(&mut self) -> Result<FollowResult> {
        let worker = WorkerTransactions::current();
        let engine = worker.engine();
        let (mut transactions, mut bytes, begin) = (Vec::new(), 0, self.position);
        let until = match is_planted(Bug::FedAheadOfDurable) {
            true => engine.log.tail(),
            false => engine.log.durable(),
        };
        let mut count = 0_usize;
        while self.position < until
            && bytes < GIVEN_BYTES
            && self.position.0 - begin.0 < PASSED_BYTES
        {
            let block = self.next_block(until).await?;
            self.met = Some((block.lsn, block.sum));
            match block.kind {
                BlockKind::Part { first_part } => {
                    self.open.meet_part(first_part, (block.lsn, block.end));
                }
                BlockKind::Commit { first_part } => {
                    let parts = first_part.map(|first| (first, self.open.meet_commit(first)));
                    if block.lsn > self.token.given
                        && let Some(transaction) = self.transaction(&block, parts).await?
                    {
                        bytes += transaction.changes.iter().map(bytes_of).sum::<usize>();
                        transactions.push(transaction);
                    }
                }
                BlockKind::Moved | BlockKind::Skip => {}
            }
            // Runs after the block was handled: the block may commit a transaction that would be
            // forgotten otherwise.
            self.open.settle(self.position, || sample(engine));
            count += 1;
            if count.is_multiple_of(TURN) {
                sched::yield_now(WaitCause::Memory).await;
            }
        }
        self.open.settle(self.position, || sample(engine));
        if self.position == begin
            && let Some(error) = engine.log.poisoned()
        {
            return Err(error.into());
        }
        if self.position >= engine.log.durable() {
            // The next block may take long to arrive, so the buffer is freed.
            self.blocks.forget();
        }
        self.parts.forget();
        let (position, more) = (self.position, self.position < engine.log.durable());
        Ok(FollowResult { transactions, token: self.token(), position, more })
    }

    /// Returns the resume point after all blocks read so far.
    fn token(&self) -> ChangeToken {
        let resume = self.open.needed_from(self.position);
        match self.met {
            Some((given, sum)) if given > self.token.given => {
                ChangeToken { resume, given, sum, ..self.token }
            }
            _ => ChangeToken { resume, ..self.token },
        }
    }

    /// Returns the next block and moves past it.
    async fn next_block(&mut self, until: Lsn) -> Result<Block> {
        self.refuse_if_over()?;
        let block = self.blocks.block(self.position, until).await;
        let block = match self.hold.from() {
            // The segment may have been reused since it was read.
            None => return Err(self.gone()),
            Some(_) => block.map_err(|error| match self.first {
                true if error.is_corrupt() => {
                    TokenError::NotInLog { token: self.position.0 }.into()
                }
                _ => Error::from(OperationError::storage(error)),
            })?,
        };
        (self.position, self.first) = (block.end, false);
        Ok(block)
    }

    /// Fails if the feed no longer exists.
    fn refuse_if_over(&self) -> Result<()> {
        // The feed owns the other handle of the hold.
        let is_alone = Arc::strong_count(&self.hold) == 1;
        let stopping = WorkerTransactions::current().engine().checkpoints.stopping();
        if is_alone || stopping { Err(Error::Closed) } else { Ok(()) }
    }

    fn gone(&self) -> Error {
        let files = WorkerTransactions::current().engine().log.files();
        let oldest = files.expect("a held log has files").oldest();
        Error::Changes(ChangesError::LogGone { oldest: oldest.0 })
    }

    /// Returns the changes of a transaction to the feed's tables; `None` without any.
    async fn transaction(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<Option<ChangeTransaction>> {
        let (rows, records) = self.collect(commit, parts).await?;
        let mut changes = Vec::with_capacity(records.len());
        for event in rows.into_events() {
            self.tables.apply(&event);
            changes.extend(self.event_change(event));
        }
        for PendingRecord { table, kind, key, stored } in records {
            let Some(known) = self.tables.get(table) else { continue };
            if !self.selection.has(known.id, &known.name) {
                continue;
            }
            let (table, table_id) = (known.name.clone(), known.id);
            let (expires_at, value) = value_of(known, &kind, stored, commit.lsn)?;
            changes.push(Change { table, table_id, kind, key, value, expires_at });
        }
        let resume = self.open.needed_from(commit.end);
        let token = ChangeToken { resume, given: commit.lsn, sum: commit.sum, ..self.token };
        let (commit_lsn, token) = (commit.lsn.0, Some(token));
        let given = ChangeTransaction { commit_lsn, snapshot: false, changes, token };
        Ok((!given.changes.is_empty()).then_some(given))
    }

    fn event_change(&self, event: TableEvent) -> Option<Change> {
        let (table, kind) = match event {
            TableEvent::Created(table) => (table, ChangeKind::TableCreated),
            TableEvent::Published(table) => (table, ChangeKind::TablePublished),
            TableEvent::Dropped(table) => (table, ChangeKind::TableDropped),
            TableEvent::Renamed(table, to) => (table, ChangeKind::TableRenamed { to }),
        };
        let mut is_selected = self.selection.has(table.id, &table.name);
        if let ChangeKind::TableRenamed { to } = &kind {
            is_selected |= self.selection.has(table.id, to);
        }
        let KnownTable { id, name, .. } = table;
        is_selected.then(|| Change::of_table(name, id, kind))
    }

    /// Collects the catalog rows of a transaction, and its records of tables that may belong to the
    /// feed. `parts` contains the position of the first part, and the parts met so far.
    async fn collect(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<(CatalogRows, Vec<PendingRecord>)> {
        let (mut rows, mut records) = (CatalogRows::default(), Vec::new());
        if let Some((first, parts)) = parts {
            if parts.first().is_none_or(|(start, _)| *start != first) {
                // A valid token of this log never lies between the parts of a transaction that it
                // has yet to return.
                return Err(TokenError::OtherLog { token: self.token.given.0 }.into());
            }
            for (number, part) in parts.into_iter().enumerate() {
                self.refuse_if_over()?;
                if number % TURN == TURN - 1 {
                    sched::yield_now(WaitCause::Memory).await;
                }
                let part = self.parts.block_again(part).await;
                if self.hold.from().is_none() {
                    return Err(self.gone());
                }
                let part = part.map_err(OperationError::storage)?;
                self.take_records(&part, &mut rows, &mut records)?;
            }
        }
        self.take_records(commit, &mut rows, &mut records)?;
        Ok((rows, records))
    }

    fn take_records(
        &self,
        block: &Block,
        rows: &mut CatalogRows,
        records: &mut Vec<PendingRecord>,
    ) -> Result<()> {
        for (_, record) in block.records() {
            let RecordView { table, kind, key, value, .. } = record;
            if table == CATALOG {
                rows.add(kind, key, value)?;
                continue;
            }
            // A table's row is logged before its creator's writes to the table.
            let is_selected = match self.tables.get(table.0) {
                Some(known) => self.selection.has(known.id, &known.name),
                None => rows.has_made(table.0),
            };
            if is_selected {
                let kind = change_kind(kind);
                let (key, stored) = (key.to_vec(), value.to_vec());
                records.push(PendingRecord { table: table.0, kind, key, stored });
            }
        }
        Ok(())
    }
}

/// Returns the kind of change that a record in the log is.
pub(super) fn change_kind(kind: RecordKind) -> ChangeKind {
    match kind {
        RecordKind::Insert => ChangeKind::Insert,
        RecordKind::Update => ChangeKind::Update,
        RecordKind::PutByKey => ChangeKind::Put,
        RecordKind::Delete | RecordKind::DeleteByKey => ChangeKind::Delete,
    }
}

/// Adds the catalog rows of a block.
pub(super) fn add_rows(block: &Block, rows: &mut CatalogRows) -> Result<()> {
    let mut of_catalog = block.records().filter(|(_, record)| record.table == CATALOG);
    Ok(of_catalog.try_for_each(|(_, record)| rows.add(record.kind, record.key, record.value))?)
}

/// Returns the current state of transactions that are being logged in parts.
pub(super) fn sample(engine: &Engine) -> BoundSample {
    let mut tail = Lsn::ZERO;
    let bound = engine.checkpoints.replay_from(|| {
        tail = engine.log.tail();
        tail
    });
    BoundSample { tail, bound }
}

/// Splits a stored value into its expiry time and the user's value.
fn value_of(
    table: &KnownTable,
    kind: &ChangeKind,
    stored: Vec<u8>,
    lsn: Lsn,
) -> Result<(Option<SystemTime>, Vec<u8>)> {
    if let Some(parts) = split_value(table, kind, stored) {
        return Ok(parts);
    }
    let store = WorkerTransactions::current().engine().log.cold_store();
    let reason = "a record of an expiring table has no expiry time";
    let damaged = store.expect("a log that was read has files").damaged(lsn, reason);
    Err(OperationError::storage(damaged).into())
}

/// Splits a stored value into its expiry time and the user's value. Returns `None` if the record
/// should have an expiry time and has none.
pub(super) fn split_value(
    table: &KnownTable,
    kind: &ChangeKind,
    mut stored: Vec<u8>,
) -> Option<(Option<SystemTime>, Vec<u8>)> {
    if !table.expires || !kind.gives_value() {
        return Some((None, stored));
    }
    if stored.len() < EXPIRY_BYTES {
        return None;
    }
    let expiry = split_expiry(&stored).0;
    stored.drain(..EXPIRY_BYTES);
    Some((Some(moment(expiry)), stored))
}

/// Returns the approximate memory use of a change, in bytes.
fn bytes_of(change: &Change) -> usize {
    size_of::<Change>() + change.key.len() + change.value.len()
}
