//! Past transactions, read from the log with blocking calls. Unlike a feed, this also works for
//! read-only databases, and ends at the end of the log.

use std::collections::VecDeque;

use super::follow::sample;
use super::item::ChangeTransaction;
use super::parts::{BoundSample, OpenParts};
use super::pending::{PendingTransaction, TableHistory};
use super::table_selection::TableSelection;
use super::tables::KnownTables;
use super::token::{ChangeToken, TokenError};
use crate::database::blocking::{block_on, refuse_on_worker};
use crate::database::error::{ChangesError, Error, Misuse, Result};
use crate::database::handle::Database;
use crate::log::{Block, BlockKind, LogError, LogFiles, LogFreed, Lsn};
use crate::transaction::WorkerTransactions;
use crate::types::DecodeError;

/// Blocks read at a time, and the bytes of log after which fewer are read.
const BLOCKS: usize = 64;
const MAX_BYTES: u64 = 4 << 20;

/// Committed transactions of the log, oldest first. [`Database::past_changes`] returns it.
///
/// Tokens do not pass the beginning of a large transaction that may still commit. In a read-only
/// database, that includes large transactions that were aborted.
pub struct PastChanges {
    db: Database,
    /// Where the iterator started.
    token: ChangeToken,
    position: Lsn,
    until: Lsn,
    read: VecDeque<Block>,
    open: OpenParts,
    tables: KnownTables,
    has_failed: bool,
}

impl Database {
    /// Returns the committed transactions in the log after those that the token covers. Without a
    /// token, it begins with the first commit, or at the newest checkpoint if the beginning of the
    /// log was freed. It ends with the transactions that were committed when this was called. Each
    /// step blocks the caller until it has read its part of the log.
    ///
    /// A feed ([`Database::changes`]) returns the same transactions and waits for later ones. This
    /// works for read-only databases too, and holds no log. A large transaction whose beginning was
    /// freed is omitted. If the database never had
    /// a feed or a slot, records that compaction logged again are returned too, as updates.
    ///
    /// ```
    /// use braiddb::{Database, Options, Table};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let directory = tempfile::tempdir()?;
    ///     let db = Database::open(directory.path(), Options::default())?;
    ///     let cities: Table<str, u64> = braiddb::block_on(db.create_table("cities"))?;
    ///     braiddb::block_on(db.put(&cities, "Maribor", &96_211))?;
    ///     let mut token = None;
    ///     for transaction in db.past_changes(None)? {
    ///         let transaction = transaction?;
    ///         println!("{:?}", transaction.changes);
    ///         token = transaction.token;
    ///     }
    ///     assert_eq!(db.past_changes(token)?.count(), 0);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ChangesError::LogGone`](crate::ChangesError) if the log that it needs was freed;
    /// [`ChangesError::Token`](crate::ChangesError) if the token is not valid for this database;
    /// [`Misuse::NoLog`](crate::Misuse) if the database has no log; [`Misuse::WouldBlock`](crate::Misuse) if
    /// called within a transaction; [`Error::Outdated`] if the database is read-only and the writer
    /// has reused a file of the log; [`Error::Closed`], [`Error::Failed`], [`Error::Io`]. The
    /// iterator fails in the same way, and ends after an error.
    pub fn past_changes(&self, from: Option<ChangeToken>) -> Result<PastChanges> {
        refuse_on_worker()?;
        let engine = &self.shared.engine;
        let files = engine.log.readable_files().ok_or(Misuse::NoLog)?;
        // Taken first, so that the log is read to the sample's tail or beyond.
        let sample = sample(engine);
        let now = self.transaction().read_only(true).run(async |tx| tx.tables().await);
        let now = block_on(now)?;
        let mut until = Lsn(now.commit_lsn);
        if engine.read_only {
            until = until.min(engine.log.readable_until());
        } else {
            // The tables are known as of `until`, so exactly the log before it is read.
            let last = Lsn(until.0 - 1);
            let wait = async move || WorkerTransactions::current().wait_durable(last).await;
            block_on(self.on_worker(wait))?;
        }
        let token = match from {
            Some(token) => check(self, &files, token, until)?,
            None => {
                let resume = files.first_block(engine.checkpoints.newest());
                let (database, given) = (files.database(), Lsn(resume.0.saturating_sub(1)));
                ChangeToken { database, resume, given, sum: 0 }
            }
        };
        let mut past = PastChanges {
            db: self.clone(),
            token,
            position: token.resume,
            until,
            read: VecDeque::new(),
            open: OpenParts::new(token.resume),
            tables: KnownTables::new(&now.value),
            has_failed: false,
        };
        past.undo_catalog(sample)?;
        Ok(past)
    }
}

/// Checks a token against the log up to `until`.
fn check(db: &Database, files: &LogFiles, token: ChangeToken, until: Lsn) -> Result<ChangeToken> {
    let _usable = db.shared.engine.use_files().ok_or_else(|| db.ended())?;
    if token.database != files.database() {
        return Err(TokenError::OtherDatabase.into());
    }
    if token.resume.max(Lsn(token.given.0.saturating_add(1))) > until {
        return Err(TokenError::AheadOfLog { token: token.given.0, end: until.0 }.into());
    }
    if token.resume < files.oldest() {
        return Err(ChangesError::LogGone { oldest: files.oldest().0 }.into());
    }
    // Without a checksum, the start of the next block is checked when it is read.
    // Nothing is freed during the read; an earlier part of the log cannot be checked.
    if token.sum != 0
        && let Ok(_held) = files.hold(token.given, u64::MAX)
    {
        match files.blocks(token.given, until, 1, MAX_BYTES) {
            Ok((blocks, _)) if blocks.first().is_some_and(|block| block.sum == token.sum) => {}
            Err(error) if !error.is_corrupt() => return Err(error.into()),
            _ => {
                // The writer in another process may have reused the segment.
                files.check_current()?;
                return Err(TokenError::OtherLog { token: token.given.0 }.into());
            }
        }
    }
    Ok(token)
}

impl PastChanges {
    /// Reads blocks from a position. Returns them, and the position after them.
    fn blocks(&self, from: Lsn, most: usize) -> Result<(Vec<Block>, Lsn)> {
        let engine = &self.db.shared.engine;
        let files = engine.log.readable_files().ok_or(Misuse::NoLog)?;
        let _usable = engine.use_files().ok_or_else(|| self.db.ended())?;
        // Nothing is freed during the read, also by a checkpoint.
        let _held = files.hold(from, u64::MAX).map_err(gone)?;
        files
            .blocks(from, self.until, most, MAX_BYTES)
            .map_err(|error| self.explain(&files, from, error))
    }

    fn explain(&self, files: &LogFiles, from: Lsn, error: LogError) -> Error {
        if !error.is_corrupt() {
            return error.into();
        }
        // The writer in another process may have reused the segment.
        match files.check_current() {
            Err(outdated) => outdated.into(),
            Ok(()) if from == self.token.resume => TokenError::NotInLog { token: from.0 }.into(),
            Ok(()) => error.into(),
        }
    }

    /// Turns the current tables into those at the start, by undoing the later changes of the
    /// catalog. Also finds the parts of transactions that never commit, so that tokens pass them.
    fn undo_catalog(&mut self, sample: BoundSample) -> Result<()> {
        let (mut at, mut history) = (self.position, TableHistory::new(self.token.given));
        while at < self.until {
            let (blocks, end) = self.blocks(at, BLOCKS)?;
            for block in blocks {
                match block.kind {
                    // The iterator omits this transaction, because its beginning may be gone.
                    BlockKind::Part { first_part: first }
                    | BlockKind::Commit { first_part: Some(first) }
                        if first < self.token.resume => {}
                    _ => history.add(&block)?,
                }
            }
            at = end;
        }
        let uncommitted = history.take_back(&mut self.tables);
        // In a read-only database, the writer in another process may still commit them.
        if !self.db.shared.engine.read_only && self.until >= sample.tail {
            self.open.ignore(uncommitted.filter(|first| *first < sample.bound).collect());
        }
        Ok(())
    }

    /// Returns the next transaction that wrote records of tables or changed tables.
    fn advance(&mut self) -> Result<Option<ChangeTransaction>> {
        loop {
            let Some(block) = self.read.pop_front() else {
                if self.position >= self.until {
                    return Ok(None);
                }
                let (blocks, end) = self.blocks(self.position, BLOCKS)?;
                (self.read, self.position) = (blocks.into(), end);
                continue;
            };
            match block.kind {
                BlockKind::Part { first_part } => {
                    self.open.meet_part(first_part, (block.lsn, block.end));
                }
                BlockKind::Commit { first_part } => {
                    let parts = first_part.map(|first| (first, self.open.meet_commit(first)));
                    if block.lsn > self.token.given
                        && let Some(transaction) = self.transaction(&block, parts)?
                    {
                        return Ok(Some(transaction));
                    }
                }
                BlockKind::Moved | BlockKind::Skip => {}
            }
        }
    }

    /// Returns the changes of a transaction; `None` without any.
    fn transaction(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<Option<ChangeTransaction>> {
        let (mut pending, all) = (PendingTransaction::default(), TableSelection::default());
        if let Some((first, parts)) = parts {
            if parts.first().is_none_or(|(start, _)| *start != first) {
                // Its beginning was freed.
                return Ok(None);
            }
            for (start, _) in parts {
                for part in self.blocks(start, 1)?.0 {
                    pending.add(&part, &self.tables, &all)?;
                }
            }
        }
        pending.add(commit, &self.tables, &all)?;
        let token = ChangeToken { resume: self.open.needed_from(commit.end), ..self.token };
        let damaged = |reason| DecodeError::new(reason).into();
        pending.into_transaction(commit, token, &mut self.tables, &all, damaged)
    }
}

fn gone(LogFreed { oldest }: LogFreed) -> Error {
    ChangesError::LogGone { oldest: oldest.0 }.into()
}

impl Iterator for PastChanges {
    type Item = Result<ChangeTransaction>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = refuse_on_worker().and_then(|()| self.advance());
        self.has_failed = next.is_err();
        next.transpose()
    }
}

impl std::fmt::Debug for PastChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PastChanges(at {}, until {})", self.position, self.until)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{Watched, with_limit};
    use crate::database::{Options, Table, Transaction};

    fn open(directory: &tempfile::TempDir) -> (Database, Table<u64, [u8]>) {
        let options = Options::default().workers(2);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table = block_on(db.create_table("t")).unwrap();
        (db, table)
    }

    /// Writes so much that it is logged in parts.
    async fn write_much(tx: &Transaction, table: &Table<u64, [u8]>) -> Result<()> {
        for key in 0..40 {
            tx.put(table, &key, &[7; 1 << 20]).await?;
        }
        Ok(())
    }

    #[test]
    fn changes_to_tables_in_omitted_transactions_are_not_undone() {
        with_limit(300, |_| {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(&directory);
            let large = db.run_blocking(async move |tx| {
                write_much(tx, &table).await?;
                tx.create_table("new").await
            });
            let new: Table<u64, u64> = large.unwrap();
            block_on(db.put(&new, &1, &1)).unwrap();
            let (blocks, _) = db.log_blocks(0, usize::MAX).unwrap();
            let second = blocks.iter().filter(|block| block.kind == "part").nth(1).unwrap().lsn;
            let database = db.shared.engine.log.files().unwrap().database();
            let (resume, given) = (Lsn(second), Lsn(second - 1));
            let token = ChangeToken { database, resume, given, sum: 0 };
            let past: Vec<_> = db.past_changes(Some(token)).unwrap().map(Result::unwrap).collect();
            assert_eq!(past.len(), 1);
            assert_eq!(&*past[0].changes[0].table, "new");
            db.close().unwrap();
        });
    }

    #[test]
    fn checkpoints_and_other_readers_do_not_interrupt_the_iterator() {
        with_limit(300, |_| {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(&directory);
            for key in 0..300 {
                block_on(db.put(&table, &key, b"value")).unwrap();
            }
            let (mut one, mut other) =
                (db.past_changes(None).unwrap(), db.past_changes(None).unwrap());
            let step = |past: &mut PastChanges| _ = past.next().unwrap().unwrap();
            (0..100).for_each(|_| step(&mut one));
            block_on(db.checkpoint()).unwrap();
            step(&mut other);
            // As during a backup.
            let blocked = db.shared.engine.checkpoints.block().unwrap();
            (0..201).for_each(|_| step(&mut one));
            (0..300).for_each(|_| step(&mut other));
            assert!(one.next().is_none() && other.next().is_none());
            drop(blocked);
            db.close().unwrap();
        });
    }

    #[test]
    fn the_iterator_is_refused_within_a_transaction() {
        with_limit(300, |_| {
            let directory = tempfile::tempdir().unwrap();
            let (db, _) = open(&directory);
            let past = crate::sync::Mutex::new(db.past_changes(None).unwrap());
            let next = db.run_blocking(async move |_| Ok(past.lock().next().unwrap().err()));
            let error = next.unwrap().expect("a worker must not block");
            assert!(matches!(error, Error::Misuse(Misuse::WouldBlock)), "{error}");
            db.close().unwrap();
        });
    }
}
