//! Transactions of a feed whose tables are not known yet: the contents of their blocks, and the events
//! of tables.

use std::collections::BTreeMap;

use super::item::{Change, ChangeKind, ChangeTransaction};
use super::table_selection::TableSelection;
use super::tables::{CatalogRows, KnownTable, KnownTables, TableEvent};
use super::token::ChangeToken;
use crate::database::expiry::moment;
use crate::database::{Error, Result};
use crate::log::{Block, BlockKind, Lsn, RecordKind, RecordView};
use crate::record::{EXPIRY_BYTES, split_expiry};
use crate::rid::CATALOG;

/// The catalog rows of a transaction, and its records of tables that may be selected.
#[derive(Debug, Default)]
pub(super) struct PendingTransaction {
    rows: CatalogRows,
    records: Vec<PendingRecord>,
}

/// A record of a transaction, kept until the transaction's changes to tables are known.
#[derive(Debug)]
struct PendingRecord {
    table: u32,
    kind: ChangeKind,
    key: Vec<u8>,
    stored: Vec<u8>,
}

impl PendingTransaction {
    /// Adds the contents of one of the transaction's blocks.
    ///
    /// # Errors
    /// An error if a catalog row does not decode.
    pub(super) fn add(
        &mut self,
        block: &Block,
        tables: &KnownTables,
        selection: &TableSelection,
    ) -> Result<()> {
        for (_, record) in block.records() {
            let RecordView { table, kind, key, value, .. } = record;
            if table == CATALOG {
                self.rows.add(kind, key, value)?;
                continue;
            }
            // A table's row is logged before its creator's writes to the table.
            let is_selected = match tables.get(table.0) {
                Some(known) => selection.has(known.id, &known.name),
                None => self.rows.has_made(table.0),
            };
            if is_selected {
                let kind = change_kind(kind);
                let (key, stored) = (key.to_vec(), value.to_vec());
                self.records.push(PendingRecord { table: table.0, kind, key, stored });
            }
        }
        Ok(())
    }

    /// Applies the changes of tables, and returns the transaction with the changes of selected
    /// tables; `None` without any. The resume point of `token` is the one after the commit.
    ///
    /// # Errors
    /// What `damaged` makes of a reason, if a record is malformed.
    pub(super) fn into_transaction(
        self,
        commit: &Block,
        token: ChangeToken,
        tables: &mut KnownTables,
        selection: &TableSelection,
        damaged: impl Fn(&'static str) -> Error,
    ) -> Result<Option<ChangeTransaction>> {
        let mut changes = Vec::with_capacity(self.records.len());
        for event in self.rows.into_events() {
            tables.apply(&event);
            changes.extend(event_change(event, selection));
        }
        for PendingRecord { table, kind, key, mut stored } in self.records {
            let Some(known) = tables.get(table) else { continue };
            if !selection.has(known.id, &known.name) {
                continue;
            }
            let mut expires_at = None;
            if known.expires && kind.gives_value() {
                if stored.len() < EXPIRY_BYTES {
                    return Err(damaged("a record of an expiring table has no expiry time"));
                }
                expires_at = Some(moment(split_expiry(&stored).0));
                stored.drain(..EXPIRY_BYTES);
            }
            let (table, table_id) = (known.name.clone(), known.id);
            changes.push(Change { table, table_id, kind, key, value: stored, expires_at });
        }
        let token = ChangeToken { given: commit.lsn, sum: commit.sum, ..token };
        let (commit_lsn, token) = (commit.lsn.0, Some(token));
        let given = ChangeTransaction { commit_lsn, snapshot: false, changes, token };
        Ok((!given.changes.is_empty()).then_some(given))
    }
}

/// Returns the kind of change that a record in the log is.
fn change_kind(kind: RecordKind) -> ChangeKind {
    match kind {
        RecordKind::Insert => ChangeKind::Insert,
        RecordKind::Update => ChangeKind::Update,
        RecordKind::PutByKey => ChangeKind::Put,
        RecordKind::Delete | RecordKind::DeleteByKey => ChangeKind::Delete,
    }
}

/// Returns the change that reports an event, if its table is selected.
fn event_change(event: TableEvent, selection: &TableSelection) -> Option<Change> {
    let (table, kind) = match event {
        TableEvent::Created(table) => (table, ChangeKind::TableCreated),
        TableEvent::Published(table) => (table, ChangeKind::TablePublished),
        TableEvent::Dropped(table) => (table, ChangeKind::TableDropped),
        TableEvent::Renamed(table, to) => (table, ChangeKind::TableRenamed { to }),
    };
    let mut is_selected = selection.has(table.id, &table.name);
    if let ChangeKind::TableRenamed { to } = &kind {
        is_selected |= selection.has(table.id, to);
    }
    let KnownTable { id, name, .. } = table;
    is_selected.then(|| Change::of_table(name, id, kind))
}

/// Changes of tables in consecutive blocks of the log.
#[derive(Debug)]
pub(super) struct TableHistory {
    /// Transactions that committed up to here are left out.
    after: Lsn,
    events: Vec<TableEvent>,
    /// Catalog rows of transactions whose commits were not met, by the first of their parts.
    of_parts: BTreeMap<Lsn, CatalogRows>,
}

impl TableHistory {
    pub(super) fn new(after: Lsn) -> Self {
        Self { after, events: Vec::new(), of_parts: BTreeMap::new() }
    }

    /// Adds the next block.
    ///
    /// # Errors
    /// An error if a catalog row does not decode.
    pub(super) fn add(&mut self, block: &Block) -> Result<()> {
        match block.kind {
            BlockKind::Part { first_part } => {
                add_rows(block, self.of_parts.entry(first_part).or_default())?;
            }
            BlockKind::Commit { first_part } => {
                let parts = first_part.and_then(|first| self.of_parts.remove(&first));
                let mut rows = parts.unwrap_or_default();
                if block.lsn > self.after {
                    add_rows(block, &mut rows)?;
                    self.events.extend(rows.into_events());
                }
            }
            BlockKind::Moved | BlockKind::Skip => {}
        }
        Ok(())
    }

    /// Turns the tables after the blocks into those before, and returns the first parts of the
    /// transactions whose commits were not met.
    pub(super) fn take_back(self, tables: &mut KnownTables) -> impl Iterator<Item = Lsn> + use<> {
        self.events.iter().rev().for_each(|event| tables.take_back(event));
        self.of_parts.into_keys()
    }
}

/// Adds the catalog rows of a block.
fn add_rows(block: &Block, rows: &mut CatalogRows) -> Result<()> {
    let mut of_catalog = block.records().filter(|(_, record)| record.table == CATALOG);
    Ok(of_catalog.try_for_each(|(_, record)| rows.add(record.kind, record.key, record.value))?)
}
