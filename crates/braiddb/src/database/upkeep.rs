//! Looking after a database: checkpoints, compaction, checks, backups, a look at the log.

use std::path::Path;

use super::error::{BusyWith, Error, Misuse, Result};
use super::{Database, block_on, refuse_on_worker};
use crate::durability::{self, ReplayResult};
use crate::log::{BlockKind, LogError, LogFiles, Lsn};
use crate::sync::oneshot;
use crate::transaction::Engine;

/// A checkpoint that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// What was committed before this LSN is in it.
    pub lsn: u64,
    /// Records it lists, those of the catalog included.
    pub records: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Compaction {
    /// Segments of the log that were freed.
    pub segments: u64,
    /// Records that were logged again.
    pub moved: u64,
    /// Bytes of the segments that were freed.
    pub bytes: u64,
    /// Bytes that were given back inside the files of pages (`pages-*.zone`).
    pub page_bytes_freed: u64,
    /// Bytes that pages take on disk, which compaction leaves where they are.
    pub page_bytes: u64,
}

/// What a check of a database found: in its log, among its records, on the pages that they are on, and in the images of pages
/// that the newest checkpoint leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Blocks of the log, all of them whole, unless one is among the problems.
    pub blocks: u64,
    /// Records that were read, those of the catalog and of paged tables included.
    pub records: u64,
    /// Pages that the newest checkpoint leads to, all of them whole, unless one is among the problems.
    pub pages: u64,
    /// What is wrong and where, a sentence each; empty if all is well.
    pub problems: Vec<String>,
}

/// A backup that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Backup {
    /// What was committed before this LSN is in it, and nothing else.
    pub lsn: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Of these, bytes of pages.
    pub page_bytes: u64,
}

/// A block of the log: what one transaction committed, or a part of it, or padding.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LogBlock {
    /// Its position.
    pub lsn: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// `commit`, `part`, `moved` for what compaction logged again, or `skip` for padding.
    pub kind: &'static str,
    /// Records in it.
    pub records: u64,
    /// Up to where the log was durable when it was filled.
    pub durable: u64,
}

impl From<durability::CheckpointInfo> for Checkpoint {
    fn from(checkpoint: durability::CheckpointInfo) -> Self {
        let durability::CheckpointInfo { lsn, records, bytes, .. } = checkpoint;
        Self { lsn: lsn.0, records, bytes }
    }
}

impl Database {
    /// Runs a job of the engine's own on some worker; what came of it.
    pub(super) async fn on_worker<T, E, F>(
        &self,
        job: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
    {
        let done = self.shared.workers.start(job)?;
        done.await.map_err(|oneshot::Canceled| self.ended())?.map_err(Into::into)
    }

    /// Writes a checkpoint, so that the next opening need not replay the log before it.
    /// Transactions go on meanwhile. If the future is dropped, the checkpoint is written all the same.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("database");
    /// let db = Database::open(&path, Options::default().workers(1))?;
    /// let names: Table<str, u64> = pollster::block_on(db.create_table("names"))?;
    /// pollster::block_on(db.put(&names, "ada", &7))?;
    /// // The next opening replays only what comes after it.
    /// assert!(pollster::block_on(db.checkpoint())?.records > 0);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`BusyWith::Checkpoint`](crate::BusyWith), also of one that the database writes by itself; [`Misuse::NoLog`](crate::Misuse);
    /// [`Error::Closed`]; [`Error::Failed`]; the device's.
    pub async fn checkpoint(&self) -> Result<Checkpoint> {
        self.refuse_if_read_only()?;
        Ok(self.on_worker(durability::checkpoint).await?.into())
    }

    /// Writes a checkpoint, and frees segments of the log that hold little that is alive, logging
    /// again what is. So does every checkpoint that is due by
    /// [`Tuning::checkpoint_bytes`](super::Tuning::checkpoint_bytes).
    /// Transactions go on meanwhile; what they may still see is waited for, bulk operations
    /// ([`Database::run_bulk`]) to their ends. If the future is dropped, the compaction goes on all the same.
    ///
    /// Of paged tables nothing is logged again: the checkpoint leads to images of their pages, so the log before it is
    /// freed where no record of another table is. Pages are not moved within their files (`pages-*.zone`), so those become
    /// shorter only where their ends are free; but room that is free between pages is given back to the disk, as holes, where its
    /// file system can do that, beyond what the images of all pages take: so much the next checkpoint may need.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.put(&names, &1, "ada").await?;
    /// db.clear(&names).await?;
    /// let compaction = db.compact().await?;
    /// println!("{compaction:?}");
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::checkpoint`]; [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, which it would wait for.
    pub async fn compact(&self) -> Result<Compaction> {
        refuse_on_worker()?;
        self.refuse_if_read_only()?;
        let compacted = self.on_worker(durability::compact).await?;
        let durability::CompactionResult {
            segments,
            moved,
            bytes,
            page_bytes: page_bytes_freed,
            ..
        } = compacted;
        let page_bytes = self.stats().pages.zone_bytes;
        Ok(Compaction { segments, moved, bytes, page_bytes_freed, page_bytes })
    }

    /// Gives back what takes room on disk since before the database was opened, and leads to nothing: log of transactions that
    /// did not commit, such as a bulk operation that was interrupted; log and zones of paged tables that are gone, if the newest
    /// checkpoint may lead to any, or the log (`are_gone`); each where a checkpoint's file takes less; and what was held back for
    /// them. Returns whether a checkpoint was written for that.
    pub(super) fn give_back_at_opening(&self, replayed: &ReplayResult, are_gone: bool) -> bool {
        let engine = &self.shared.engine;
        let Some(files) = engine.log.files() else { return false };
        let left = match are_gone {
            true => engine.zone_file_bytes() + (replayed.end.0 - replayed.start.0),
            false => replayed.uncommitted_bytes,
        };
        // Images are to be written of pages only that replay has changed, which is part of what opening took.
        let takes = durability::estimate_checkpoint_file(engine).max(files.segment_bytes());
        let compacted = match left > takes {
            true => block_on(self.on_worker(durability::compact_in_turn)).map(|_| true),
            false => Ok(false),
        };
        let shrunk = files.shrink_reserve().map_err(Error::from);
        let given_back = compacted.and_then(|compacted| shrunk.map(|()| compacted));
        given_back.unwrap_or_else(|error| {
            tracing::warn!("what earlier openings left on disk is not given back yet: {error}");
            false
        })
    }

    /// Checks the database: every block of its log, and that every key leads to its own record there,
    /// whole; and of each secondary index that is attached, that its entries are those of the table's
    /// records. Of paged tables that their records are found on their pages, in order; what is durable of them
    /// is in images to which the newest checkpoint leads, all of which are read and checked, and in the log's blocks. Transactions go on meanwhile, and each record is checked as it is when the check comes by;
    /// no old version is held back. Blocks until it is done.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("database");
    /// let db = Database::open(&path, Options::default().workers(1))?;
    /// let names: Table<str, u64> = pollster::block_on(db.create_table("names"))?;
    /// pollster::block_on(db.put(&names, "ada", &7))?;
    /// let report = db.check()?;
    /// assert!(report.problems.is_empty(), "{:?}", report.problems);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NoLog`](crate::Misuse); [`Misuse::WouldBlock`](crate::Misuse) from within a transaction;
    /// [`BusyWith::Checkpoint`](crate::BusyWith), also of one that the database writes by itself: ask again; [`Error::Closed`];
    /// [`Error::Failed`]; [`Error::Outdated`]; what keeps the check from going on. What it finds is in its result.
    pub fn check(&self) -> Result<CheckReport> {
        refuse_on_worker()?;
        // Nothing is freed meanwhile.
        let engine = &self.shared.engine;
        let _under_way = engine.checkpoints.begin().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let tables = block_on(self.on_worker(durability::check_tables));
        let log = &engine.log;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        let Some(files) = log.readable_files() else {
            return Err(tables.err().unwrap_or(Error::Closed));
        };
        let mut report = CheckReport::default();
        match files.check_blocks(engine.checkpoints.newest(), log.readable_until()) {
            Ok(blocks) => report.blocks = blocks,
            Err(error) => report.problems.push(error.to_string()),
        }
        let checkpoint = self.check_checkpoint(&files)?;
        let is_damaged = checkpoint.is_err();
        match checkpoint {
            Ok(pages) => report.pages = pages,
            Err(problem) => report.problems.push(problem),
        }
        match tables {
            Ok(tables) => {
                report.records = tables.records;
                report.problems.extend(tables.problems);
            }
            // Where a database is only read, a damaged page is taken for one that has been written anew.
            Err(Error::Outdated(_)) if is_damaged => {}
            Err(error) => return Err(error),
        }
        if !report.problems.is_empty() {
            // What takes it for damage that a segment was used anew is no finding.
            files.check_current()?;
        }
        Ok(report)
    }

    /// How many pages the newest checkpoint leads to, all whole; or what is wrong with it.
    ///
    /// # Errors
    /// [`Error::Outdated`] if another process has written a newer one; the operating system's.
    fn check_checkpoint(&self, files: &LogFiles) -> Result<Result<u64, String>> {
        let Engine { checkpoints, read_only, .. } = &*self.shared.engine;
        if checkpoints.newest_bytes() == 0 {
            return Ok(Ok(0));
        }
        let error = match durability::check_checkpoint(files, checkpoints.newest()) {
            Ok(pages) => return Ok(Ok(pages)),
            Err(error) => error,
        };
        if *read_only {
            return match durability::is_newest_checkpoint(files, checkpoints.newest())? {
                true => Ok(Err(error.to_string())),
                false => Err(LogError::Outdated { path: files.directory().path().into() }.into()),
            };
        }
        // What is in a damaged image may be nowhere else.
        let is_in_memory = !matches!(error, LogError::DamagedPage { .. });
        let hint = "; while the database is open it has all that was in there: write a checkpoint now, which takes the \
                    place of this one";
        Ok(Err(format!("{error}{}", if is_in_memory { hint } else { "" })))
    }

    /// Copies the database into an empty directory, which then opens as one: all that was committed
    /// before one LSN, and nothing else. Transactions go on meanwhile; blocks until it is done. To
    /// restore, open the copy, or a copy of it.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("database");
    /// let db = Database::open(&path, Options::default().workers(1))?;
    /// let names: Table<str, u64> = pollster::block_on(db.create_table("names"))?;
    /// pollster::block_on(db.put(&names, "ada", &7))?;
    /// let copy = directory.path().join("copy");
    /// db.backup(&copy)?;
    /// // It opens as a database.
    /// let copied = Database::open(&copy, Options::default().workers(1))?;
    /// let names: Table<str, u64> = pollster::block_on(copied.open_table("names"))?;
    /// assert_eq!(pollster::block_on(copied.get(&names, "ada"))?, Some(7));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NoLog`](crate::Misuse); [`Misuse::WouldBlock`](crate::Misuse) from within a transaction;
    /// [`BusyWith::Checkpoint`](crate::BusyWith), as a check; [`Error::Closed`]; [`Error::Failed`]; [`Error::Directory`] if the
    /// directory is not empty, or lies within the database's; the operating system's.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<Backup> {
        refuse_on_worker()?;
        block_on(self.checkpoint())?;
        let engine = &self.shared.engine;
        // Nothing is freed meanwhile.
        let _under_way = engine.checkpoints.begin().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        let files = engine.log.files().expect("a log with a checkpoint has files");
        let checkpoint = durability::checkpoint_name(engine.checkpoints.newest());
        let until = engine.log.durable();
        let mut page_bytes = 0;
        let bytes = files.copy_to(directory.as_ref(), &checkpoint, until, |copy| {
            page_bytes = engine.pages().map_or(Ok(0), |pages| pages.copy_images_to(copy))?;
            Ok(page_bytes)
        })?;
        Ok(Backup { lsn: until.0, bytes, page_bytes })
    }

    /// Blocks of the log, `most` at most, from the one at the LSN `from`, which is 0 or the end of
    /// one that was returned, and where the next one is. Blocks until they are read.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.put(&names, &1, "ada").await?;
    /// let (mut next, mut blocks) = (0, Vec::new());
    /// loop {
    ///     let (more, after) = db.log_blocks(next, 100)?;
    ///     if more.is_empty() {
    ///         break;
    ///     }
    ///     blocks.extend(more);
    ///     next = after;
    /// }
    /// assert!(blocks.len() >= 2, "the table and the record");
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NoLog`](crate::Misuse); [`Misuse::WouldBlock`](crate::Misuse) from within a transaction;
    /// [`BusyWith::Checkpoint`](crate::BusyWith), as a checkpoint may free what is to be read; [`Error::Closed`];
    /// [`Error::Failed`]; [`Error::Corrupt`] if there is no whole block.
    pub fn log_blocks(&self, from: u64, most: usize) -> Result<(Vec<LogBlock>, u64)> {
        refuse_on_worker()?;
        let engine = &self.shared.engine;
        let files = engine.log.readable_files().ok_or(Misuse::NoLog)?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        // Nothing is freed meanwhile.
        let _under_way = engine.checkpoints.begin().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let first = files.first_block(engine.checkpoints.newest());
        let until = engine.log.readable_until();
        let blocks = files.blocks(first.max(Lsn(from)), until, most);
        if blocks.is_err() {
            // As in a check.
            files.check_current()?;
        }
        let (blocks, end) = blocks?;
        let blocks = blocks.iter().map(|block| LogBlock {
            lsn: block.lsn.0,
            bytes: block.end.0 - block.lsn.0,
            kind: match block.kind {
                BlockKind::Commit { .. } => "commit",
                BlockKind::Part { .. } => "part",
                BlockKind::Moved => "moved",
                BlockKind::Skip => "skip",
            },
            records: block.records().count() as u64,
            durable: block.durable.0,
        });
        Ok((blocks.collect(), end.0))
    }
}
