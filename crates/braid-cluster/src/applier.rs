//! Application of log entries, each in one local transaction.
//!
//! An entry's transaction also writes the state machine's position, so a node that stops applies
//! no entry twice and skips none.

mod indexes;
mod staged;

use std::collections::BTreeMap;
use std::sync::Arc;

use braiddb::proposals::{KeySet, KeySpace, OrderedCertifier, RowWrites};
use braiddb::{Result, Transaction};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::catalog;
use crate::command::{
    Action, CatalogChange, ClusterIndex, ClusterStagedTable, ClusterTable, Command, Decision,
    ExecutedTransaction, Submission,
};
use crate::error::{self, Error};
use crate::raft::{EncodedCommand, LogId, Membership};
use crate::received::create_table;
use crate::replica::Replica;
use crate::storage::{Applied, RESERVED_PREFIX, Storage, encode, row};

/// Number of log indices after which a proposal is too old to be certified. All nodes of a cluster
/// must use the same, so it is a constant of the protocol.
pub const WINDOW: u64 = 4096;
/// Bytes of the certification window, about: older entries leave it early. A constant of the protocol
/// too.
pub const WINDOW_BYTES: u64 = 64 << 20;
/// Limits of the database for names of tables, indexes and types.
const MAX_NAME_BYTES: usize = 512;
const MAX_TYPE_NAME_BYTES: usize = u16::MAX as usize;
/// Prefix of names that the database keeps for itself, and the name by which transactions read its
/// catalog.
const ENGINE_PREFIX: &str = "braid.";
const CATALOG_SPACE: KeySpace<'static> = KeySpace { table: "braid.catalog", index: None };

/// Applies entries, in log order.
#[derive(Debug)]
pub struct Applier {
    replica: Arc<Replica>,
    applied: Applied,
    /// The cluster's tables, by name.
    tables: BTreeMap<String, ClusterTable>,
    /// The cluster's indexes, by the number of the table's creation and by name.
    indexes: BTreeMap<(u64, String), ClusterIndex>,
    /// Staged tables, by their hidden names.
    staged: BTreeMap<String, ClusterStagedTable>,
    /// Keys that recent entries wrote.
    certifier: OrderedCertifier,
}

/// Changes of one entry.
#[derive(Debug, Default)]
struct EntryChanges {
    created: Vec<ClusterTable>,
    /// Table that was renamed, with its new name.
    renamed: Option<ClusterTable>,
    /// Names of tables that were dropped or renamed.
    removed: Vec<String>,
    /// Indexes that were created or dropped (`None`).
    index_rows: Vec<((u64, String), Option<ClusterIndex>)>,
    /// Staged tables that were changed, or published or discarded (`None`).
    staged_rows: BTreeMap<String, Option<ClusterStagedTable>>,
    writes: Vec<RowWrites>,
    /// Encoded keys of `writes`, and of the catalog if it is changed.
    keys: Vec<Bytes>,
}

impl Applier {
    /// Reads the state after the last applied entry.
    ///
    /// # Errors
    /// [`Error::Version`] if the node does not understand the version of the cluster.
    pub async fn open(replica: Arc<Replica>) -> error::Result<Self> {
        let applied = replica.storage.applied().await?;
        // First, because the tables may have another format. An empty node has no version yet.
        if applied.log_id.is_some()
            || replica.storage.db.last(&replica.storage.log).await?.is_some()
        {
            check_version(&replica, applied.version())?;
        }
        let tables = replica.storage.cluster_tables().await?;
        let tables = tables.into_iter().map(|table| (table.name.clone(), table)).collect();
        let indexes = replica.storage.cluster_indexes().await?;
        let staged = replica.storage.staged_tables().await?;
        let bytes = replica.window_bytes;
        let certifier = restore_certifier(&replica.storage, &applied, bytes).await?;
        replica.reset_applied(applied.index());
        replica.local.set_version(applied.version());
        let applier = Self { replica, applied, tables, indexes, staged, certifier };
        applier.reset_indexes().await?;
        applier.list_staged();
        Ok(applier)
    }

    /// Returns the state after the last applied entry.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    pub async fn apply_blank(&mut self, log_id: LogId) -> Result<()> {
        self.commit(log_id, EntryChanges::default()).await
    }

    pub async fn apply_membership(&mut self, log_id: LogId, members: Membership) -> Result<()> {
        self.applied.membership = members;
        let mut changes = EntryChanges::default();
        self.discard_of_others(log_id.index, &mut changes).await?;
        self.commit(log_id, changes).await
    }

    /// Applies the submissions of an entry.
    ///
    /// # Errors
    /// [`Error::Version`] if the node does not understand the version that the cluster uses from
    /// this entry on; [`Error::Undecodable`] if the node does not understand a part of the entry. Other
    /// programs may understand it, so it is never skipped.
    pub async fn apply_command(
        &mut self,
        log_id: LogId,
        command: &EncodedCommand,
    ) -> error::Result<()> {
        let index = log_id.index;
        let command: Command = decode_part(index, &command.0)?;
        let (mut changes, mut decisions) = (EntryChanges::default(), Vec::new());
        let is_alone = command.submissions.len() == 1;
        for submission in command.submissions {
            let Submission { id, action } = decode_part(index, &submission)?;
            let decision = match action {
                Action::Transaction(executed) => self.certify(index, &executed, &mut changes)?,
                Action::Load(rows) => self.load(index, &rows, &mut changes)?,
                Action::SetVersion { members, .. }
                    if members != *self.applied.membership.log_id() =>
                {
                    Decision::Conflict
                }
                Action::SetVersion { version, .. } => {
                    check_version(&self.replica, version)?;
                    self.applied.raise_version(version);
                    Decision::Committed
                }
                Action::Catalog { base, change } => {
                    let change = (base, change);
                    self.change_catalog(index, change, is_alone, &mut changes).await?
                }
            };
            decisions.push((id, decision));
        }
        self.commit(log_id, changes).await?;
        self.replica.counters.count_decisions(&decisions);
        self.replica.decide(index, decisions);
        Ok(())
    }

    /// Decides whether a transaction commits, from the log alone. Its writes count for all later
    /// ones, also in the same entry.
    fn certify(
        &mut self,
        index: u64,
        executed: &ExecutedTransaction,
        changes: &mut EntryChanges,
    ) -> error::Result<Decision> {
        let (reads, writes) = executed.decode().map_err(|damage| undecodable(index, damage))?;
        // First: a transaction that used a table before it was dropped or renamed runs again.
        let keys = writes.keys();
        if self.certifier.certify(&reads, &keys, executed.base).is_err() {
            return Ok(Decision::Conflict);
        }
        for row in writes.rows() {
            let Some(table) = self.table(row.table) else {
                return Ok(no_table(row.table));
            };
            if row.value.is_some() && row.expires_at_ms.is_some() != table.ttl_ms.is_some() {
                let reason = format!("the table {:?} has another lifetime of records", row.table);
                return Ok(Decision::Refused(reason));
            }
        }
        changes.writes.push(writes);
        changes.keys.push(Bytes::copy_from_slice(keys.as_bytes()));
        self.certifier.record(index, keys);
        Ok(Decision::Committed)
    }

    /// Decides about a change of the catalog from the log alone, and makes it. A change that is not
    /// a part of the entry's transaction has been made before if the node applies the entry again.
    async fn change_catalog(
        &mut self,
        index: u64,
        (base, change): (u64, CatalogChange),
        is_alone: bool,
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        if change.version() > self.applied.version() {
            let reason = format!("the change needs version {} of the cluster", change.version());
            return Ok(Decision::Refused(reason));
        }
        let whole = KeySet::whole([CATALOG_SPACE]);
        if self.certifier.certify(&whole, &KeySet::default(), base).is_err() {
            return Ok(Decision::Conflict);
        }
        let storage = self.replica.storage.clone();
        let db = &storage.db;
        match change {
            CatalogChange::Create(table) => Ok(self.create_table(index, table, changes)),
            CatalogChange::CreateIndex { table, created, index: wanted } => {
                self.create_index(index, &table, created, wanted, changes).await
            }
            CatalogChange::DropIndex { table, index: name, created } => {
                self.drop_index(index, &table, (name, created), changes).await
            }
            CatalogChange::Stage { id, table } => Ok(self.stage(index, id, table, changes)),
            _ if !is_alone => Ok(Decision::Refused("the change needs its own entry".to_owned())),
            CatalogChange::Drop(name) => {
                if self.table(&name).is_none() {
                    return Ok(no_table(&name));
                }
                self.record_catalog(index, &[&name], changes);
                let _no_build = storage.indexes.block(&name);
                // From here on, closures may see it.
                self.replica.begin_applying(index);
                catalog::drop_table(db, &name).await?;
                if let Some(table) = self.tables.remove(&name) {
                    self.drop_indexes_of(&table, changes);
                }
                changes.removed.push(name);
                Ok(Decision::Committed)
            }
            CatalogChange::Publish(id) => self.publish(index, id, changes).await,
            CatalogChange::Discard(id) => self.discard(index, id, changes).await,
            CatalogChange::Rename { from, to } => {
                if let Err(reason) = check_name(&to) {
                    return Ok(Decision::Refused(reason));
                }
                let Some(table) = self.table(&from) else { return Ok(no_table(&from)) };
                if from == to {
                    return Ok(Decision::Committed);
                }
                if self.tables.contains_key(&to) {
                    let reason = format!("the cluster has a table {to:?} already");
                    return Ok(Decision::Refused(reason));
                }
                let renamed = ClusterTable { name: to.clone(), ..table.clone() };
                self.record_catalog(index, &[&from, &to], changes);
                let _no_build = storage.indexes.block(&from);
                self.replica.begin_applying(index);
                catalog::rename_table(db, &from, &to).await?;
                self.tables.remove(&from);
                self.tables.insert(to.clone(), renamed.clone());
                storage.indexes.rename_table(&from, &to);
                changes.renamed = Some(renamed);
                changes.removed.push(from);
                Ok(Decision::Committed)
            }
        }
    }

    /// Returns a table that transactions may use.
    fn table(&self, name: &str) -> Option<&ClusterTable> {
        self.tables.get(name).filter(|_| !name.starts_with(RESERVED_PREFIX))
    }

    /// Records a change of the catalog and of whole tables with their indexes: every transaction
    /// that read or wrote them before conflicts.
    fn record_catalog(&mut self, index: u64, tables: &[&str], changes: &mut EntryChanges) {
        let tables = tables.iter().map(|table| KeySpace { table, index: None });
        let keys = KeySet::whole(tables.chain([CATALOG_SPACE]));
        changes.keys.push(Bytes::copy_from_slice(keys.as_bytes()));
        self.certifier.record(index, keys);
    }

    /// Creates a table unless the cluster has it. Refuses what the database would refuse, because a
    /// node that cannot apply an entry stops.
    fn create_table(
        &mut self,
        index: u64,
        mut table: ClusterTable,
        changes: &mut EntryChanges,
    ) -> Decision {
        if let Err(reason) = check_table(&table) {
            return Decision::Refused(reason);
        }
        if !self.tables.contains_key(&table.name) {
            table.created = self.applied.count_table();
            self.tables.insert(table.name.clone(), table.clone());
            changes.created.push(table);
            // A transaction that looked for the table before conflicts.
            self.record_catalog(index, &[], changes);
        }
        Decision::Committed
    }

    /// Commits the changes of an entry and the new position. The commit need not be durable: the
    /// entry is, and a node that loses the commit applies the entry again.
    async fn commit(&mut self, log_id: LogId, changes: EntryChanges) -> Result<()> {
        let index = log_id.index;
        self.applied.log_id = Some(log_id);
        self.certifier.advance(index);
        let window_start = self.certifier.oldest_snapshot();
        self.applied.set_window_start(window_start);
        let (storage, applied) = (self.replica.storage.clone(), encode(&self.applied));
        let is_staged_changed = !changes.staged_rows.is_empty();
        let changes = Arc::new(changes);
        let all = changes.clone();
        let written = || {
            let rows = all.writes.iter().flat_map(RowWrites::rows);
            rows.map(|row| row.table.to_owned()).collect()
        };
        let write = async move |tx: &Transaction| {
            for table in &changes.created {
                create_table(tx, table).await?;
                tx.put(&storage.catalog, &table.name, &encode(table)).await?;
            }
            for name in &changes.removed {
                tx.delete(&storage.catalog, name).await?;
            }
            if let Some(table) = &changes.renamed {
                tx.put(&storage.catalog, &table.name, &encode(table)).await?;
            }
            for (key, index) in &changes.index_rows {
                match index {
                    Some(index) => tx.put(&storage.index_rows, key, &encode(index)).await?,
                    None => _ = tx.delete(&storage.index_rows, key).await?,
                }
            }
            for (name, staged) in &changes.staged_rows {
                match staged {
                    Some(staged) => tx.put(&storage.staged_rows, name, &encode(staged)).await?,
                    None => _ = tx.delete(&storage.staged_rows, name).await?,
                }
            }
            for writes in &changes.writes {
                tx.apply(writes).await?;
            }
            if !changes.keys.is_empty() {
                tx.put(&storage.window, &index, &encode(&changes.keys)).await?;
            }
            // Also this entry, if it is too large for the window.
            tx.delete_range(&storage.window, ..=window_start).await?;
            tx.put(&storage.state, row::APPLIED, &applied).await
        };
        self.replica.begin_applying(index);
        let storage = &self.replica.storage;
        let (lsn, _) =
            storage.write_indexed(written, || storage.run_visible(write.clone())).await?;
        self.replica.local.set_version(self.applied.version());
        self.replica.set_applied(index, lsn);
        if is_staged_changed {
            self.list_staged();
        }
        Ok(())
    }
}

/// Checks that this node understands a version that the cluster uses.
fn check_version(replica: &Replica, version: u32) -> error::Result<()> {
    if replica.local.understands(version) {
        return Ok(());
    }
    let understood = replica.local.versions();
    let remedy = match version < *replica.local.understood.start() {
        true => "an older program, and let the cluster use a newer version first",
        false => "a newer program",
    };
    Err(Error::Version(format!(
        "the cluster uses version {version}, and this node understands {understood}; start the node \
         with {remedy}"
    )))
}

/// Decodes a part of an entry.
fn decode_part<T: DeserializeOwned>(index: u64, bytes: &[u8]) -> error::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| undecodable(index, error))
}

fn undecodable(index: u64, reason: impl std::fmt::Display) -> Error {
    Error::Undecodable { index, reason: reason.to_string() }
}

fn no_table(name: &str) -> Decision {
    Decision::Refused(format!("the cluster has no table {name:?}"))
}

/// Checks that the database accepts a new table.
fn check_table(table: &ClusterTable) -> std::result::Result<(), String> {
    let ClusterTable { name, key_type, value_type, ttl_ms, .. } = table;
    check_name(name)?;
    if key_type.len().max(value_type.len()) > MAX_TYPE_NAME_BYTES {
        return Err(format!("the name of a type has more than {MAX_TYPE_NAME_BYTES} bytes"));
    }
    if *ttl_ms == Some(0) {
        return Err("the lifetime of records is shorter than one millisecond".to_owned());
    }
    Ok(())
}

/// Checks that the database accepts the name of a table.
fn check_name(name: &str) -> std::result::Result<(), String> {
    let is_reserved = |prefix: &&str| name.starts_with(*prefix);
    if (1..=MAX_NAME_BYTES).contains(&name.len())
        && ![RESERVED_PREFIX, ENGINE_PREFIX].iter().any(is_reserved)
    {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot be the name of a table; use 1 to {MAX_NAME_BYTES} bytes that do not begin \
         with {RESERVED_PREFIX:?} or {ENGINE_PREFIX:?}"
    ))
}

/// Rebuilds the certifier from the stored window.
///
/// # Errors
/// [`Error::Undecodable`] if another program wrote the window.
async fn restore_certifier(
    storage: &Storage,
    applied: &Applied,
    max_bytes: u64,
) -> error::Result<OrderedCertifier> {
    let certifier = OrderedCertifier::starting_at(WINDOW, applied.window_start());
    let mut certifier = certifier.with_max_bytes(max_bytes);
    let window = catalog::repeat(|| storage.db.scan(&storage.window, ..)).await?;
    for (index, sets) in window {
        for keys in decode_part::<Vec<Bytes>>(index, &sets)? {
            let keys = KeySet::decode(&keys).map_err(|damage| undecodable(index, damage))?;
            certifier.record(index, keys);
        }
    }
    certifier.advance(applied.index());
    Ok(certifier)
}
