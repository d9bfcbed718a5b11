//! Maintenance of a database: checkpoints, compaction, checks, backups, and inspection of the log.

use std::path::Path;

use super::blocking::{block_on, refuse_on_worker};
use super::error::{BusyWith, Error, Misuse, Result};
use super::handle::Database;
use super::maintenance::{CheckReport, Compaction};
use super::read_only::while_files_change;
use super::recovery::Checkpoint;
use crate::durability::{self, BackupCopy, ReplayResult};
use crate::io::OpenMode;
use crate::log::{Block, BlockKind, DirectoryCopy, LogOptions, Lsn, RecordKind};

/// A completed backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Backup {
    /// The backup contains exactly the commits before this LSN.
    pub lsn: u64,
    /// Copied bytes.
    pub bytes: u64,
    /// Copied bytes of pages, also counted in `bytes`.
    pub page_bytes: u64,
}

/// A block of the log: a committed transaction, a part of one, or padding.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LogBlock {
    /// The position of the block.
    pub lsn: u64,
    /// The size of the block in bytes.
    pub bytes: u64,
    /// `commit`, `part`, `moved` (records logged again by compaction), or `skip` (padding).
    pub kind: &'static str,
    /// Records in the block.
    pub records: u64,
    /// The writes in the block, by table, in the order of their first ones.
    pub writes: Vec<LogWrites>,
    /// The durable end of the log when the block was filled.
    pub durable: u64,
}

/// The writes to a table in a block of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct LogWrites {
    /// The number of the table ([`TableDescription::id`](crate::tables::TableDescription::id)), or
    /// of the entries of an index. The catalog has the number 0.
    pub table: u32,
    /// Inserted records.
    pub inserted: u64,
    /// Updated records.
    pub updated: u64,
    /// Writes to a paged table, which do not record whether the key existed.
    pub put: u64,
    /// Deleted records.
    pub deleted: u64,
}

impl LogWrites {
    /// Returns the writes of a block.
    fn of(block: &Block) -> Vec<Self> {
        let mut tables: Vec<Self> = Vec::new();
        for (_, record) in block.records() {
            let at = tables.iter().position(|writes| writes.table == record.table.0);
            let at = at.unwrap_or_else(|| {
                tables.push(Self { table: record.table.0, ..Self::default() });
                tables.len() - 1
            });
            let writes = &mut tables[at];
            *match record.kind {
                RecordKind::Insert => &mut writes.inserted,
                RecordKind::Update => &mut writes.updated,
                RecordKind::PutByKey => &mut writes.put,
                RecordKind::Delete | RecordKind::DeleteByKey => &mut writes.deleted,
            } += 1;
        }
        tables
    }
}

impl Database {
    /// Runs a job of the engine on some worker, and returns its result.
    pub(super) async fn on_worker<T, E, F>(
        &self,
        job: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
    {
        self.shared.workers.run(job).await
    }

    /// Writes a checkpoint, so that the next opening does not replay the log before it. Frees the
    /// segments of that log without a live record in which no transaction or snapshot sees an older
    /// one a moment later; [`compact`](Self::compact) frees more. Transactions continue to run. If
    /// the future is dropped, the checkpoint is still written.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path().join("database");
    ///     let db = Database::open(&path, Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     block_on(db.put(&names, "ada", &7))?;
    ///     // The next opening replays only the log after it.
    ///     assert!(block_on(db.checkpoint())?.records > 0);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`BusyWith::Checkpoint`](crate::BusyWith) while another checkpoint runs, including an automatic one;
    /// [`Misuse::NoLog`](crate::Misuse) if the database has no log; [`Error::Closed`]; [`Error::Failed`]; errors
    /// of the device.
    pub async fn checkpoint(&self) -> Result<Checkpoint> {
        self.shared.maintenance().checkpoint(true).await
    }

    /// Writes a checkpoint and frees segments of the log with few live records, after logging these
    /// records again. Every automatic checkpoint
    /// ([`Tuning::checkpoint_bytes`](super::Tuning::checkpoint_bytes)) does the same.
    /// Transactions continue to run. The compaction waits for transactions that may still see the
    /// freed versions, including running bulk operations ([`Database::run_bulk`]). If the future is
    /// dropped, the compaction continues.
    ///
    /// Records of paged tables are not logged again, because the checkpoint references images of
    /// their pages. The log before the checkpoint is freed unless it contains live records of other
    /// tables. Pages are not moved within their files (`pages-*.zone`), so a file shrinks only if
    /// its end is free. Free space between pages is returned to the file system as holes, where it
    /// supports them. The database keeps as much free space as the images of all pages need, for
    /// the next checkpoint.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.clear(&names).await?;
    ///         let compaction = db.compact().await?;
    ///         println!("{compaction:?}");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::checkpoint`]; [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because
    /// it would wait for that transaction.
    pub async fn compact(&self) -> Result<Compaction> {
        self.shared.maintenance().compact().await
    }

    /// Frees disk space that was left before the database was opened:
    ///
    /// - the log of uncommitted transactions, such as an interrupted bulk operation
    /// - the log and the zones of paged tables that no longer exist, if the newest checkpoint or
    ///   the log (`are_gone`) may reference any
    /// - the reserve for them
    ///
    /// It does so only where the checkpoint's file is smaller than the freed space. Returns whether
    /// it wrote a checkpoint.
    pub(super) fn give_back_at_opening(&self, replayed: &ReplayResult, are_gone: bool) -> bool {
        let engine = &self.shared.engine;
        let Some(files) = engine.log.files() else { return false };
        let left = match are_gone {
            true => engine.zone_file_bytes() + (replayed.end.0 - replayed.start.0),
            false => replayed.uncommitted_bytes,
        };
        // The checkpoint writes images only of pages that replay changed; that is part of the cost
        // of opening.
        let takes = durability::estimate_checkpoint_file(engine).max(files.segment_bytes());
        let compacted = match left > takes {
            true => block_on(self.on_worker(durability::compact_in_turn)).map(|_| true),
            false => Ok(false),
        };
        let shrunk = files.shrink_reserve().map_err(Error::from);
        let given_back = compacted.and_then(|compacted| shrunk.map(|()| compacted));
        given_back.unwrap_or_else(|error| {
            tracing::warn!("cannot free disk space left by earlier openings yet: {error}");
            false
        })
    }

    /// Checks the database, and blocks until the check is done. It verifies:
    ///
    /// - every block of the log
    /// - every key: it references its own, intact record
    /// - every attached secondary index: its entries match the table's records
    /// - paged tables: the records are on their pages, in order. Their durable state is in page
    ///   images of the newest checkpoint, which are all read and verified, and in log blocks.
    ///
    /// Transactions continue to run. Each record is checked in its current version; the check holds
    /// no old versions.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path().join("database");
    ///     let db = Database::open(&path, Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     block_on(db.put(&names, "ada", &7))?;
    ///     let report = db.check()?;
    ///     assert!(report.problems.is_empty(), "{:?}", report.problems);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Problems found are returned in the report, not as errors. [`Misuse::NoLog`](crate::Misuse) if the database
    /// has no log; [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction;
    /// [`BusyWith::Checkpoint`](crate::BusyWith) while a checkpoint runs, including an automatic one: try again
    /// later; [`Error::Closed`]; [`Error::Failed`]; [`Error::Outdated`]; any error that prevents
    /// the check from continuing.
    pub fn check(&self) -> Result<CheckReport> {
        self.shared.maintenance().check()
    }

    /// Copies the database into an empty directory, and blocks until the copy is complete. The copy
    /// contains exactly the commits before one LSN, and opens as a database. Transactions continue
    /// to run. To restore, open the copy, or a copy of it.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path().join("database");
    ///     let db = Database::open(&path, Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     block_on(db.put(&names, "ada", &7))?;
    ///     let copy = directory.path().join("copy");
    ///     db.backup(&copy)?;
    ///     // The copy opens as a database.
    ///     let copied = Database::open(&copy, Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(copied.open_table("names"))?;
    ///     assert_eq!(block_on(copied.get(&names, "ada"))?, Some(7));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NoLog`](crate::Misuse) if the database has no log; [`Misuse::WouldBlock`](crate::Misuse) if called within a
    /// transaction; [`BusyWith::Checkpoint`](crate::BusyWith) as for [`Database::check`]; [`Error::Closed`];
    /// [`Error::Failed`]; [`Error::Io`] if the directory is not empty or lies within the
    /// database's directory; errors of the operating system.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<Backup> {
        refuse_on_worker()?;
        block_on(self.shared.maintenance().checkpoint(false))?;
        let engine = &self.shared.engine;
        // Blocks checkpoints, so that nothing is freed during the backup.
        let _blocked = engine.checkpoints.block().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        let files = engine.log.files().expect("a log with a checkpoint has files");
        let checkpoint = durability::checkpoint_name(engine.checkpoints.newest());
        let checkpoint = files.open(&checkpoint, OpenMode::Existing)?;
        let until = engine.log.durable();
        let mut page_bytes = 0;
        let copy_images = |copy: &DirectoryCopy<'_>| {
            page_bytes = engine.pages().map_or(Ok(0), |pages| pages.copy_images_to(copy))?;
            Ok(page_bytes)
        };
        let (directory, checkpoint) = (directory.as_ref(), Some(&checkpoint));
        let bytes = files.copy_to(directory, checkpoint, until, copy_images, |_| Ok(()))?;
        Ok(Backup { lsn: until.0, bytes, page_bytes })
    }

    /// Copies the database in the directory `from` into an empty directory, and blocks until the
    /// copy is complete. Only reads `from`: another process may have the database open, and is not
    /// disturbed. The copy contains exactly the commits before one LSN, like that of
    /// [`Database::backup`]. It takes little memory, because the database is not opened.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let (path, copy) = (directory.path().join("database"), directory.path().join("copy"));
    ///     let db = Database::open(&path, Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     block_on(db.put(&names, "ada", &7))?;
    ///     let backup = Database::backup_directory(&path, &copy)?;
    ///     assert!(backup.bytes > 0);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Directory`] if `from` has no database, or the other directory is not empty or lies
    /// within it; [`Error::Io`]; [`Error::Outdated`] if the process that writes to the database
    /// replaced the files again and again during the copy: try again later.
    pub fn backup_directory(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Backup> {
        let options = LogOptions { create: false, ..LogOptions::new(from.as_ref(), 1) };
        let BackupCopy { until, bytes, page_bytes } =
            while_files_change(&options, || Ok(durability::back_up(&options, to.as_ref())?))?;
        Ok(Backup { lsn: until.0, bytes, page_bytes })
    }

    /// Reads up to `most` blocks of the log, and returns them with the position of the next block.
    /// `from` is 0 or the end of a block returned before. Blocks the caller until they are read.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let (mut next, mut blocks) = (0, Vec::new());
    ///         loop {
    ///             let (more, after) = db.log_blocks(next, 100)?;
    ///             if more.is_empty() {
    ///                 break;
    ///             }
    ///             blocks.extend(more);
    ///             next = after;
    ///         }
    ///         assert!(blocks.len() >= 2, "the table and the record");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NoLog`](crate::Misuse) if the database has no log; [`Misuse::WouldBlock`](crate::Misuse) if called within a
    /// transaction; [`BusyWith::Checkpoint`](crate::BusyWith), because a checkpoint may free these blocks;
    /// [`Error::Closed`]; [`Error::Failed`]; [`Error::Io`] if no intact block is at this position.
    pub fn log_blocks(&self, from: u64, most: usize) -> Result<(Vec<LogBlock>, u64)> {
        refuse_on_worker()?;
        let engine = &self.shared.engine;
        let files = engine.log.readable_files().ok_or(Misuse::NoLog)?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        // Blocks checkpoints, so that nothing is freed during the read.
        let _blocked = engine.checkpoints.block().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let first = files.first_block(engine.checkpoints.newest());
        let until = engine.log.readable_until();
        let blocks = files.blocks(first.max(Lsn(from)), until, most, u64::MAX);
        if blocks.is_err() {
            // As in a check: a reused segment is not damage.
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
            writes: LogWrites::of(block),
            durable: block.durable.0,
        });
        Ok((blocks.collect(), end.0))
    }
}
