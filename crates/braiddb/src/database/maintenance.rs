//! Maintenance that does not keep the database open: checkpoints, compaction, checks.

use std::sync::Arc;

use super::blocking::{block_on, refuse_on_worker};
use super::error::{BusyWith, Error, Misuse, Result};
use super::recovery::Checkpoint;
use super::workers::Workers;
use crate::durability;
use crate::log::{LogError, LogFiles};
use crate::transaction::Engine;

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[non_exhaustive]
pub struct Compaction {
    /// Freed segments of the log.
    pub segments: u64,
    /// Live records that were logged again.
    pub moved: u64,
    /// Bytes of the freed segments.
    pub bytes: u64,
    /// Bytes freed inside the page files (`pages-*.zone`).
    pub page_bytes_freed: u64,
    /// Bytes of pages on disk, which compaction does not move.
    pub page_bytes: u64,
}

/// The result of a check of the log, the records, the pages in use, and the page images of the
/// newest checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Checked blocks of the log. All are intact, unless `problems` names one.
    pub blocks: u64,
    /// Checked records, including those of the catalog and of paged tables.
    pub records: u64,
    /// Checked pages of the newest checkpoint. All are intact, unless `problems` names one.
    pub pages: u64,
    /// The problems found, one sentence each; empty if the database is intact.
    pub problems: Vec<String>,
}

/// Access to the maintenance of a database.
#[derive(Clone)]
pub(super) struct Maintenance {
    engine: Arc<Engine>,
    workers: Workers,
}

impl Maintenance {
    pub(super) fn new(engine: Arc<Engine>, workers: Workers) -> Self {
        Self { engine, workers }
    }

    fn refuse_if_read_only(&self) -> Result<()> {
        if self.engine.read_only { Err(Misuse::ReadOnlyDatabase.into()) } else { Ok(()) }
    }

    /// Writes a checkpoint. If `frees_log`, frees log before it that no transaction sees.
    pub(super) async fn checkpoint(&self, frees_log: bool) -> Result<Checkpoint> {
        self.refuse_if_read_only()?;
        Ok(self.workers.run(move || durability::checkpoint(frees_log)).await?.into())
    }

    /// See [`Database::compact`](super::Database::compact).
    pub(super) async fn compact(&self) -> Result<Compaction> {
        refuse_on_worker()?;
        self.refuse_if_read_only()?;
        let compacted = self.workers.run(durability::compact).await?;
        let durability::CompactionResult {
            segments,
            moved,
            bytes,
            page_bytes: page_bytes_freed,
            ..
        } = compacted;
        let page_bytes = self.engine.page_stats().zone_bytes;
        Ok(Compaction { segments, moved, bytes, page_bytes_freed, page_bytes })
    }

    /// See [`Database::check`](super::Database::check).
    pub(super) fn check(&self) -> Result<CheckReport> {
        refuse_on_worker()?;
        // Blocks checkpoints, so that nothing is freed during the check.
        let Self { engine, workers } = self;
        let _blocked = engine.checkpoints.block().ok_or(Error::Busy(BusyWith::Checkpoint))?;
        let tables = block_on(workers.run(durability::check_tables));
        let log = &engine.log;
        let _usable = engine.use_files().ok_or_else(|| workers.ended())?;
        let Some(files) = log.readable_files() else {
            return Err(tables.err().unwrap_or(Error::Closed));
        };
        let mut report = CheckReport::default();
        match files.check_blocks(engine.checkpoints.newest(), log.readable_until()) {
            Ok(blocks) => report.blocks = blocks,
            Err(error) => report.problems.push(error.to_string()),
        }
        match self.check_checkpoint(&files)? {
            Ok(pages) => report.pages = pages,
            Err(problem) => report.problems.push(problem),
        }
        match tables {
            Ok(tables) => {
                report.records = tables.records;
                report.problems.extend(tables.problems);
            }
            Err(error) => return Err(error),
        }
        if !report.problems.is_empty() {
            // Apparent damage because a segment was reused is not a problem.
            files.check_current()?;
        }
        Ok(report)
    }

    /// Returns the number of pages of the newest checkpoint if all are intact, or a description of
    /// the problem.
    ///
    /// # Errors
    /// [`Error::Outdated`] if another process has written a newer checkpoint; errors of the
    /// operating system.
    fn check_checkpoint(&self, files: &LogFiles) -> Result<Result<u64, String>> {
        let Engine { checkpoints, read_only, .. } = &*self.engine;
        if checkpoints.newest_bytes() == 0 {
            return Ok(Ok(0));
        }
        let error = match durability::check_checkpoint(files, checkpoints.newest()) {
            Ok(pages) => return Ok(Ok(pages)),
            Err(error) => error,
        };
        if files.is_superseded() {
            return Err(LogError::Outdated { path: files.directory().path().into() }.into());
        }
        if *read_only {
            return Ok(Err(error.to_string()));
        }
        // The contents of a damaged image may exist nowhere else.
        let is_in_memory = !matches!(error, LogError::DamagedPage { .. });
        let hint = "; the open database still has all its contents: write a checkpoint now, which \
                    replaces this one";
        Ok(Err(format!("{error}{}", if is_in_memory { hint } else { "" })))
    }
}
