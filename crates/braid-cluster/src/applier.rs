//! Application of log entries, each in one local transaction.
//!
//! An entry's transaction also writes the state machine's position, so a node that stops applies
//! no entry twice and skips none.

use std::collections::BTreeSet;
use std::sync::Arc;

use braiddb::{Result, Transaction};

use crate::command::{Action, ClusterTable, Command, Decision, Submission};
use crate::raft::{EncodedCommand, LogId, Membership};
use crate::received::create_table;
use crate::replica::Replica;
use crate::storage::{Applied, RESERVED_PREFIX, encode, row};

/// Applies entries, in log order.
#[derive(Debug)]
pub struct Applier {
    replica: Arc<Replica>,
    applied: Applied,
    /// Names of the cluster's tables.
    tables: BTreeSet<String>,
}

/// Changes of one entry.
#[derive(Debug, Default)]
struct EntryChanges {
    created: Vec<ClusterTable>,
}

impl Applier {
    /// Reads the state after the last applied entry.
    pub async fn open(replica: Arc<Replica>) -> Result<Self> {
        let applied = replica.storage.applied().await?;
        let tables = replica.storage.cluster_tables().await?;
        // Everything that was applied before is visible to every snapshot from now on.
        replica.set_applied(applied.index(), 0);
        Ok(Self { replica, applied, tables: tables.into_iter().map(|table| table.name).collect() })
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
        for submission in command.submissions {
            let Ok(Submission { id, action }) = postcard::from_bytes(&submission) else { continue };
            let decision = match action {
                Action::CreateTable(table) => self.create_table(table, &mut changes).await?,
            };
            decisions.push((id, decision));
        }
        self.commit(log_id, changes).await?;
        self.replica.decide(log_id.index, decisions);
        Ok(())
    }

    /// Creates a table unless the cluster has it. A node that stops before the entry is applied
    /// finds the table when it applies the entry again.
    async fn create_table(
        &mut self,
        table: ClusterTable,
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        if table.name.starts_with(RESERVED_PREFIX) {
            return Ok(Decision::Refused(format!(
                "names starting with {RESERVED_PREFIX:?} are reserved"
            )));
        }
        if self.tables.contains(&table.name) {
            return Ok(Decision::Committed);
        }
        let existing = self.replica.storage.db.tables().await?;
        if !existing.iter().any(|other| other.name == table.name) {
            create_table(&self.replica.storage, &table).await?;
        }
        self.tables.insert(table.name.clone());
        changes.created.push(table);
        Ok(Decision::Committed)
    }

    /// Commits the changes of an entry and the new position.
    async fn commit(&mut self, log_id: LogId, changes: EntryChanges) -> Result<()> {
        self.applied.log_id = Some(log_id);
        let storage = self.replica.storage.clone();
        let applied = encode(&self.applied);
        let write = async move |tx: &Transaction| {
            for table in &changes.created {
                tx.put(&storage.catalog, &table.name, &encode(table)).await?;
            }
            tx.put(&storage.state, row::APPLIED, &applied).await
        };
        let outcome = self.replica.storage.db.transaction().run(write).await?;
        self.replica.set_applied(log_id.index, outcome.commit_lsn);
        Ok(())
    }
}
