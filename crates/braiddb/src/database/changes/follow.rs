//! Following the log: from its blocks to the transactions of a feed. On a worker, as a task among the transactions.
//!
//! Blocks are met in the order of the log, which is that of commits. The parts of a large transaction are passed over
//! when they are met, and they alone are read again with their commit: so what is kept in memory is one transaction, however
//! many are being logged at once, where the parts of the others are, and a window of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::item::{Change, ChangeKind, ChangeTransaction};
use super::parts::{OpenParts, Sample};
use super::tables::{CatalogRows, KnownTable, KnownTables, TableEvent};
use super::token::{ChangeToken, TokenError, check_in_log};
use super::wanted::Wanted;
use crate::database::expiry::moment;
use crate::database::run::read_on_worker;
use crate::database::{ChangesError, Error, Result};
use crate::log::{Block, BlockFollower, BlockKind, LogHold, Lsn, RecordKind, RecordView};
use crate::planted::{Bug, is_planted};
use crate::record::{EXPIRY_BYTES, split_expiry};
use crate::rid::CATALOG;
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// Bytes of keys and values, about, after which what was found is given.
const GIVEN_BYTES: usize = 1 << 20;
/// Bytes of log that are passed at a time.
const PASSED_BYTES: u64 = 16 << 20;
/// Blocks between two turns of others.
const TURN: usize = 64;

/// How far a feed has followed the log, and what it knows by then.
#[derive(Debug)]
pub(super) struct Follower {
    blocks: BlockFollower,
    /// Reads parts again, which are elsewhere.
    parts: BlockFollower,
    hold: Arc<LogHold>,
    /// Where the feed began.
    token: ChangeToken,
    /// The last block that was met, and its checksum.
    met: Option<(Lsn, u32)>,
    /// Where the next block starts.
    position: Lsn,
    /// No block was read yet, from where the feed began.
    first: bool,
    open: OpenParts,
    tables: KnownTables,
    wanted: Wanted,
}

/// What following the log for a while has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) transactions: Vec<ChangeTransaction>,
    /// Where a feed goes on that was given all of them.
    pub(super) token: ChangeToken,
    /// Up to where the log was followed; more may be durable.
    pub(super) position: Lsn,
    /// Whether more was durable already.
    pub(super) more: bool,
}

/// A record of a transaction, until it is known what tables there are after it.
struct Pending {
    table: u32,
    kind: ChangeKind,
    key: Vec<u8>,
    stored: Vec<u8>,
}

impl Follower {
    /// One that begins where a token says, with the log from there on held.
    pub(super) fn new(
        engine: &Engine,
        token: ChangeToken,
        hold: Arc<LogHold>,
        wanted: Wanted,
    ) -> Self {
        let resume = token.resume;
        let store = engine.log.cold_store().expect("a log of which something is held");
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
            wanted,
        }
    }

    /// Gives the follower the tables there were when all was given that is given.
    pub(super) fn set_tables(&mut self, tables: KnownTables) {
        self.tables = tables;
    }

    /// Finds out which tables there were then: from those there are now, by what the catalog's changes since then did.
    ///
    /// # Errors
    /// As [`Self::follow`]; [`TokenError::OtherLog`]; [`Error::Overloaded`], after which it may be called again.
    pub(super) async fn find_tables(&mut self) -> Result<()> {
        // A row of the catalog that is on disk only is read whoever else reads.
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

    /// Follows the log as far as it is durable, or for a while.
    ///
    /// # Errors
    /// [`ChangesError::LogGone`](crate::ChangesError); the log's; when the catalog does not decode.
    pub(super) async fn follow(&mut self) -> Result<Found> {
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
            // After the block, which may be the commit of what is forgotten else.
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
            // It may be long until there is more.
            self.blocks.forget();
        }
        self.parts.forget();
        let (position, more) = (self.position, self.position < engine.log.durable());
        Ok(Found { transactions, token: self.token(), position, more })
    }

    /// Where a feed goes on that was given what was met.
    fn token(&self) -> ChangeToken {
        let resume = self.open.needed_from(self.position);
        match self.met {
            Some((given, sum)) if given > self.token.given => {
                ChangeToken { resume, given, sum, ..self.token }
            }
            _ => ChangeToken { resume, ..self.token },
        }
    }

    /// The next block, which is passed then.
    async fn next_block(&mut self, until: Lsn) -> Result<Block> {
        self.refuse_if_over()?;
        let block = self.blocks.block(self.position, until).await;
        let block = match self.hold.from() {
            // What was read may be another segment by now.
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

    /// Whether anybody waits for what is found.
    fn refuse_if_over(&self) -> Result<()> {
        // The feed has the other handle of the hold.
        let is_alone = Arc::strong_count(&self.hold) == 1;
        let stopping = WorkerTransactions::current().engine().checkpoints.stopping();
        if is_alone || stopping { Err(Error::Closed) } else { Ok(()) }
    }

    fn gone(&self) -> Error {
        let files = WorkerTransactions::current().engine().log.files();
        let oldest = files.expect("a log of which something is held").oldest();
        Error::Changes(ChangesError::LogGone { oldest: oldest.0 })
    }

    /// What a transaction did to the tables of the feed; `None` if nothing.
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
        for Pending { table, kind, key, stored } in records {
            let Some(known) = self.tables.get(table) else { continue };
            if !self.wanted.has(known.id, &known.name) {
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
        let mut is_wanted = self.wanted.has(table.id, &table.name);
        if let ChangeKind::TableRenamed { to } = &kind {
            is_wanted |= self.wanted.has(table.id, to);
        }
        let KnownTable { id, name, .. } = table;
        is_wanted.then(|| Change::of_table(name, id, kind))
    }

    /// What a transaction wrote to the catalog, and the records of tables that may be the feed's; `parts` says where its
    /// first part is, and which of its parts were met.
    async fn collect(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<(CatalogRows, Vec<Pending>)> {
        let (mut rows, mut records) = (CatalogRows::default(), Vec::new());
        if let Some((first, parts)) = parts {
            if parts.first().is_none_or(|(start, _)| *start != first) {
                // No token of this log begins amid the parts of what it has still to give.
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
        records: &mut Vec<Pending>,
    ) -> Result<()> {
        for (_, record) in block.records() {
            let RecordView { table, kind, key, value, .. } = record;
            if table == CATALOG {
                rows.add(kind, key, value)?;
                continue;
            }
            // A table's row is logged before what its creator writes to it.
            let is_wanted = match self.tables.get(table.0) {
                Some(known) => self.wanted.has(known.id, &known.name),
                None => rows.has_made(table.0),
            };
            if is_wanted {
                let kind = match kind {
                    RecordKind::Insert => ChangeKind::Insert,
                    RecordKind::Update => ChangeKind::Update,
                    RecordKind::PutByKey => ChangeKind::Put,
                    RecordKind::Delete | RecordKind::DeleteByKey => ChangeKind::Delete,
                };
                let (key, stored) = (key.to_vec(), value.to_vec());
                records.push(Pending { table: table.0, kind, key, stored });
            }
        }
        Ok(())
    }
}

/// Adds what a block has of the catalog.
fn add_rows(block: &Block, rows: &mut CatalogRows) -> Result<()> {
    let mut of_catalog = block.records().filter(|(_, record)| record.table == CATALOG);
    Ok(of_catalog.try_for_each(|(_, record)| rows.add(record.kind, record.key, record.value))?)
}

/// What is known now of the transactions that are being logged in parts.
pub(super) fn sample(engine: &Engine) -> Sample {
    let mut tail = Lsn::ZERO;
    let bound = engine.checkpoints.replay_from(|| {
        tail = engine.log.tail();
        tail
    });
    Sample { tail, bound }
}

/// When a record expires, and the user's value of it.
fn value_of(
    table: &KnownTable,
    kind: &ChangeKind,
    mut stored: Vec<u8>,
    lsn: Lsn,
) -> Result<(Option<std::time::SystemTime>, Vec<u8>)> {
    if !table.expires || !kind.gives_value() {
        return Ok((None, stored));
    }
    if stored.len() < EXPIRY_BYTES {
        let store = WorkerTransactions::current().engine().log.cold_store();
        let reason = "a record of a table whose records expire does not say when";
        let damaged = store.expect("a log that was read").damaged(lsn, reason);
        return Err(OperationError::storage(damaged).into());
    }
    let expiry = split_expiry(&stored).0;
    stored.drain(..EXPIRY_BYTES);
    Ok((Some(moment(expiry)), stored))
}

/// Bytes of memory that a change takes, about.
fn bytes_of(change: &Change) -> usize {
    size_of::<Change>() + change.key.len() + change.value.len()
}
