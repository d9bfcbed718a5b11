//! The initial snapshot of a feed: all records of its tables, returned in pieces.

use std::collections::VecDeque;
use std::ops::Bound;

use super::item::{Change, ChangeKind};
use super::table_selection::TableSelection;
use super::tables::{KnownTable, KnownTables};
use crate::database::expiry::moment;
use crate::database::workers::Workers;
use crate::database::{Error, InteractiveTransaction, Result, Transaction};
use crate::log::Lsn;
use crate::record::{EXPIRY_BYTES, split_expiry};
use crate::rid::TableId;
use crate::sched::{self, engine_code};
use crate::transaction::{ScanBounds, WorkerTransactions};
use crate::types::KeyBuffer;

/// Approximate bytes of keys and values in one piece; more if a single record is larger.
const PIECE_BYTES: usize = 1 << 20;

/// A snapshot that is being read.
#[derive(Debug)]
pub(super) struct SnapshotScan {
    transaction: InteractiveTransaction,
    lsn: Lsn,
    tables: KnownTables,
    /// Tables that are not completely read.
    left: VecDeque<KnownTable>,
    /// The last record read of the first table in `left`.
    last: Option<KeyBuffer>,
    begun: bool,
}

/// Some records of a table, and the last key if more may follow.
type SnapshotPage = (Vec<Change>, Option<KeyBuffer>);

impl SnapshotScan {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// As [`Database::snapshot`](crate::Database::snapshot).
    pub(super) async fn begin(workers: &Workers, selection: &TableSelection) -> Result<Self> {
        let (transaction, lsn) = workers.begin_unlimited().await?;
        let tables = async move |tx: &Transaction| {
            // With every durability setting, the feed returns only changes that survive a crash.
            WorkerTransactions::current().wait_durable(Lsn(lsn.0 - 1)).await?;
            sched::upkeep(tx.tables()).await
        };
        let tables = transaction.step(tables).await?;
        let is_selected = |table: &KnownTable| selection.has(table.id, &table.name);
        let left = tables.iter().map(KnownTable::from).filter(is_selected).collect();
        let tables = KnownTables::new(&tables);
        Ok(Self { transaction, lsn, tables, left, last: None, begun: false })
    }

    /// Returns the snapshot's LSN: it contains all commits before this LSN.
    pub(super) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the next piece. Do not call it after the last piece. If the snapshot has no tables,
    /// the only piece is empty.
    ///
    /// # Errors
    /// As [`InteractiveTransaction::step`].
    pub(super) async fn next(&mut self) -> Result<Vec<Change>> {
        self.begun = true;
        let Some(table) = self.left.front().cloned() else { return Ok(Vec::new()) };
        let mut changes = match self.last {
            None => vec![Change::of_table(table.name.clone(), table.id, ChangeKind::TableCreated)],
            Some(_) => Vec::new(),
        };
        let after = self.last.take();
        let step = async move |tx: &Transaction| match read_page(tx, &table, after.clone()).await {
            // The engine sheds reads under overload. This read replaces many others and must not
            // restart, so it retries as upkeep.
            Err(Error::Overloaded) => sched::upkeep(read_page(tx, &table, after)).await,
            read => read,
        };
        let (some, last) = self.transaction.step(step).await?;
        changes.extend(some);
        self.last = last;
        if self.last.is_none() {
            self.left.pop_front();
        }
        Ok(changes)
    }

    /// Returns the tables that exist in the snapshot.
    pub(super) fn into_tables(self) -> KnownTables {
        self.tables
    }

    /// Returns whether the last piece was returned.
    pub(super) fn is_over(&self) -> bool {
        self.begun && self.left.is_empty()
    }
}

/// Reads some records of a table after a key. If more records follow, the result contains at least
/// one.
async fn read_page(
    tx: &Transaction,
    table: &KnownTable,
    after: Option<KeyBuffer>,
) -> Result<SnapshotPage> {
    let records = tx.engine().table(TableId(table.id));
    let now = tx.core().time_for(&records);
    let low = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut scan = tx.core().scan(&records, ScanBounds { low, high: Bound::Unbounded });
    let (mut changes, mut bytes, mut last) = (Vec::new(), 0, None);
    while engine_code(scan.load()).await? {
        let (key, stored) = scan.current().expect("loaded");
        let expiry = now.map(|now| (now, split_expiry(stored).0));
        if expiry.is_none_or(|(now, expiry)| expiry > now) {
            if bytes >= PIECE_BYTES {
                return Ok((changes, last));
            }
            let value = stored[if expiry.is_some() { EXPIRY_BYTES } else { 0 }..].to_vec();
            bytes += size_of::<Change>() + key.len() + value.len();
            if bytes >= PIECE_BYTES {
                last = Some(KeyBuffer::from_slice(key));
            }
            changes.push(Change {
                table: table.name.clone(),
                table_id: table.id,
                kind: ChangeKind::Insert,
                key: key.to_vec(),
                value,
                expires_at: expiry.map(|(_, expiry)| moment(expiry)),
            });
        }
        scan.pass();
    }
    Ok((changes, None))
}
