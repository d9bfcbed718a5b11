//! Writes that the log asks for, to tables whose indexes this node may not be able to change.

use std::collections::BTreeSet;
use std::time::Duration;

use braiddb::{ErrorKind, IndexError, Result, Table, Transaction};

use super::{LocalIndex, LocalStage, TableIndexes};
use crate::catalog::{PAUSE, is_busy, repeat};
use crate::storage::Storage;

/// Longest pause before a write is repeated that waits for the end of an index.
const MAX_PAUSE: Duration = Duration::from_millis(50);

impl Storage {
    /// Makes a write to `tables` that the log, or a snapshot, asks for. If indexes on this node
    /// prevent it, their entries are dropped first.
    pub async fn write_indexed<T, F>(
        &self,
        tables: impl Fn() -> BTreeSet<String>,
        mut write: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        if self.indexes.has_detached() {
            let tables = tables();
            let is_attached = self.indexes.wait(|state| {
                let written = tables.iter().filter_map(|table| state.tables.get(table));
                let mut indexes = written.flat_map(|table| table.indexes.values());
                indexes.all(|index| index.stage != LocalStage::Detached)
            });
            // Afterwards the write fails, and the entries are dropped.
            _ = tokio::time::timeout_at(self.indexes.attach_until, is_attached).await;
        }
        let mut pause = PAUSE;
        loop {
            match write().await {
                Err(error)
                    if is_of_index(&error) && self.drop_failed(&tables(), &error).await? =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(MAX_PAUSE);
                }
                written => return written,
            }
        }
    }

    /// Drops the entries on this node of the indexes that made a write fail. Returns whether
    /// entries are being dropped.
    async fn drop_failed(&self, tables: &BTreeSet<String>, error: &braiddb::Error) -> Result<bool> {
        let mut failed = Vec::new();
        for (table, TableIndexes { indexes, .. }) in &self.indexes.state().tables {
            for (index, LocalIndex { stage, .. }) in indexes {
                if tables.contains(table) && *stage != LocalStage::Absent {
                    failed.push((table.clone(), index.clone(), *stage));
                }
            }
        }
        if let Some((table, index)) = failed_index(error)
            && failed.iter().any(|(its, name, _)| (&**its, &**name) == (table, index))
        {
            failed.retain(|(its, name, _)| (&**its, &**name) == (table, index));
        }
        // A call has attached it since then, or is about to.
        let is_attached = |stage: &LocalStage| {
            is_detached(error) && matches!(stage, LocalStage::Building | LocalStage::Ready)
        };
        for (table, index, stage) in &failed {
            if *stage != LocalStage::Dropping && !is_attached(stage) {
                tracing::warn!(
                    "this node drops its entries of the index {index:?} of the table {table:?}, \
                     because they prevent the application of the log: {error}; call Cluster::index \
                     to build them again"
                );
                self.drop_entries_of(table, index).await?;
            }
        }
        Ok(!failed.is_empty())
    }

    /// Drops the entries on this node of an index of the table that has this name now. Only the
    /// task that applies the log calls this: no other one renames tables.
    pub async fn drop_entries_of(&self, table: &str, index: &str) -> Result<()> {
        let name = table.to_owned();
        let open = async move |tx: &Transaction| tx.open_encoded_table(&name).await;
        match repeat(|| self.db.run(open.clone())).await {
            Ok((opened, _)) => self.drop_entries(opened, table, index),
            Err(braiddb::Error::TableNotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Drops the entries of an index on this node in the background. The task keeps the handle of
    /// the table, which may be renamed in between.
    pub fn drop_entries(&self, table: Table<[u8], [u8]>, name: &str, index: &str) {
        let Some(generation) = self.indexes.begin_dropping(name, index) else { return };
        let (storage, index) = (self.clone(), index.to_owned());
        tokio::spawn(async move {
            let mut block = None;
            loop {
                match storage.db.drop_index(&table, &index).await {
                    Err(error) if is_busy(&error) => {
                        // Another index of the table is being built, perhaps for a long time.
                        block.get_or_insert_with(|| storage.indexes.block_of(generation));
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) if !is_missing(&error) => {
                        tracing::warn!("the index {index:?} of {table:?} is not dropped: {error}");
                        break;
                    }
                    _ => break,
                }
            }
            storage.indexes.end_dropping(generation);
        });
    }
}

/// Returns whether a write failed because an index was not attached.
fn is_detached(error: &braiddb::Error) -> bool {
    let is_detached = |error: &IndexError| matches!(error, IndexError::Detached { .. });
    matches!(error, braiddb::Error::Index(error) if is_detached(error))
}

/// Returns whether the table or the index is missing.
pub fn is_missing(error: &braiddb::Error) -> bool {
    match error {
        braiddb::Error::TableNotFound(_) => true,
        braiddb::Error::Index(error) => matches!(**error, IndexError::NotFound { .. }),
        _ => false,
    }
}

/// Returns whether the definition of an index, or its function, may be the reason of a failure.
pub fn is_of_index(error: &braiddb::Error) -> bool {
    error.kind() == ErrorKind::Call || matches!(error, braiddb::Error::Decode(_))
}

/// Returns table and name of the index that an error names.
fn failed_index(error: &braiddb::Error) -> Option<(&str, &str)> {
    match error {
        braiddb::Error::UniqueViolation(violation) => Some((&violation.table, &violation.index)),
        braiddb::Error::Index(error) => match &**error {
            IndexError::Detached { table, index } | IndexError::Inconsistent { table, index } => {
                Some((table, index))
            }
            _ => None,
        },
        _ => None,
    }
}
