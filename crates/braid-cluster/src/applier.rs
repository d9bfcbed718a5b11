//! Application of log entries, each in one local transaction.
//!
//! An entry's transaction also writes the state machine's position, so a node that stops applies
//! no entry twice and skips none.

use std::collections::BTreeSet;
use std::sync::Arc;

use braiddb::proposals::{KeySet, KeySpace, OrderedCertifier, RowWrites};
use braiddb::{Result, Transaction};
use bytes::Bytes;

use crate::command::{Action, ClusterTable, Command, Decision, ExecutedTransaction, Submission};
use crate::raft::{EncodedCommand, LogId, Membership};
use crate::received::create_table;
use crate::replica::Replica;
use crate::storage::{Applied, RESERVED_PREFIX, Storage, decode, encode, row};

/// Number of log indices after which a proposal is too old to be certified. All nodes of a cluster
/// must use the same, so it is a constant of the protocol.
pub const WINDOW: u64 = 4096;
/// Limits of the database for names of tables and types.
const MAX_NAME_BYTES: usize = 512;
const MAX_TYPE_NAME_BYTES: usize = u16::MAX as usize;
/// Prefix of names that the database keeps for itself, and the name by which transactions read its
/// catalog.
const ENGINE_PREFIX: &str = "braid.";
const CATALOG: &str = "braid.catalog";

/// Applies entries, in log order.
#[derive(Debug)]
pub struct Applier {
    replica: Arc<Replica>,
    applied: Applied,
    /// Names of the cluster's tables.
    tables: BTreeSet<String>,
    /// Keys that recent entries wrote.
    certifier: OrderedCertifier,
}

/// Changes of one entry.
#[derive(Debug, Default)]
struct EntryChanges {
    created: Vec<ClusterTable>,
    writes: Vec<RowWrites>,
    /// Encoded keys of `writes`, and of the catalog if tables are created.
    keys: Vec<Bytes>,
}

impl Applier {
    /// Reads the state after the last applied entry.
    pub async fn open(replica: Arc<Replica>) -> Result<Self> {
        let applied = replica.storage.applied().await?;
        let tables = replica.storage.cluster_tables().await?;
        let tables = tables.into_iter().map(|table| table.name).collect();
        let certifier = restore_certifier(&replica.storage, applied.index()).await?;
        replica.reset_applied(applied.index());
        Ok(Self { replica, applied, tables, certifier })
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
        self.commit(log_id, EntryChanges::default()).await
    }

    pub async fn apply_command(&mut self, log_id: LogId, command: &EncodedCommand) -> Result<()> {
        // The leader appends only commands that decode; another one has no effect on any node.
        let command: Command = postcard::from_bytes(&command.0).unwrap_or_default();
        let (mut changes, mut decisions) = (EntryChanges::default(), Vec::new());
        let index = log_id.index;
        for submission in command.submissions {
            let Ok(Submission { id, action }) = postcard::from_bytes(&submission) else { continue };
            let decision = match action {
                Action::Transaction(executed) => self.certify(index, &executed, &mut changes),
                Action::CreateTable(table) => self.create_table(index, table, &mut changes),
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
    ) -> Decision {
        let (reads, writes) =
            (KeySet::decode(&executed.reads), RowWrites::decode(&executed.writes));
        let (Ok(reads), Ok(writes)) = (reads, writes) else {
            return Decision::Refused("the transaction cannot be decoded".to_owned());
        };
        if let Some(row) = writes.rows().find(|row| !self.tables.contains(row.table)) {
            return Decision::Refused(format!("the cluster has no table {:?}", row.table));
        }
        let keys = writes.keys();
        if self.certifier.certify(&reads, &keys, executed.base).is_err() {
            return Decision::Conflict;
        }
        changes.writes.push(writes);
        changes.keys.push(Bytes::copy_from_slice(keys.as_bytes()));
        self.certifier.record(index, keys);
        Decision::Committed
    }

    /// Creates a table unless the cluster has it. Refuses the names that the database would refuse,
    /// because a node that cannot apply an entry stops.
    fn create_table(
        &mut self,
        index: u64,
        table: ClusterTable,
        changes: &mut EntryChanges,
    ) -> Decision {
        let ClusterTable { name, key_type, value_type, .. } = &table;
        if !(1..=MAX_NAME_BYTES).contains(&name.len())
            || [RESERVED_PREFIX, ENGINE_PREFIX].iter().any(|prefix| name.starts_with(prefix))
        {
            let reason = format!(
                "{name:?} cannot be the name of a table; use 1 to {MAX_NAME_BYTES} bytes that do not \
                 begin with {RESERVED_PREFIX:?} or {ENGINE_PREFIX:?}"
            );
            return Decision::Refused(reason);
        }
        if key_type.len().max(value_type.len()) > MAX_TYPE_NAME_BYTES {
            let reason = format!("the name of a type has more than {MAX_TYPE_NAME_BYTES} bytes");
            return Decision::Refused(reason);
        }
        if self.tables.insert(name.clone()) {
            changes.created.push(table);
            // A transaction that looked for the table before conflicts.
            let keys = KeySet::whole([KeySpace { table: CATALOG, index: None }]);
            changes.keys.push(Bytes::copy_from_slice(keys.as_bytes()));
            self.certifier.record(index, keys);
        }
        Decision::Committed
    }

    /// Commits the changes of an entry and the new position. The commit need not be durable: the
    /// entry is, and a node that loses the commit applies the entry again.
    async fn commit(&mut self, log_id: LogId, changes: EntryChanges) -> Result<()> {
        let index = log_id.index;
        self.applied.log_id = Some(log_id);
        self.certifier.advance(index);
        let (storage, applied) = (self.replica.storage.clone(), encode(&self.applied));
        let changes = Arc::new(changes);
        let write = async move |tx: &Transaction| {
            for table in &changes.created {
                create_table(tx, table).await?;
                tx.put(&storage.catalog, &table.name, &encode(table)).await?;
            }
            for writes in &changes.writes {
                tx.apply(writes).await?;
            }
            if !changes.keys.is_empty() {
                tx.put(&storage.window, &index, &encode(&changes.keys)).await?;
            }
            // An entry leaves the window with each that enters it.
            tx.delete_range(&storage.window, ..=index.saturating_sub(WINDOW)).await?;
            tx.put(&storage.state, row::APPLIED, &applied).await
        };
        self.replica.begin_applying(index);
        let (lsn, _) = self.replica.storage.run_visible(write).await?;
        self.replica.set_applied(index, lsn);
        Ok(())
    }
}

/// Rebuilds the certifier from the stored window.
async fn restore_certifier(storage: &Storage, applied: u64) -> Result<OrderedCertifier> {
    let mut certifier = OrderedCertifier::starting_at(WINDOW, applied.saturating_sub(WINDOW));
    for (index, sets) in storage.db.scan(&storage.window, ..).await? {
        for keys in decode::<Vec<Bytes>>(&sets) {
            let keys = KeySet::decode(&keys).expect("the window holds key sets of this version");
            certifier.record(index, keys);
        }
    }
    certifier.advance(applied);
    Ok(certifier)
}
