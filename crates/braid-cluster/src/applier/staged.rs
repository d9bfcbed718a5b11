//! Staged tables: filled by many entries, and published by one.

use braiddb::Result;
use braiddb::proposals::{RowWrite, RowWrites};

use super::{Applier, EntryChanges, check_name, check_table, undecodable};
use crate::catalog;
use crate::command::{ClusterStagedTable, ClusterTable, Decision, StagedRows, SubmissionId};
use crate::error;
use crate::storage::staged_name;

impl Applier {
    /// Creates a staged table, unless it exists.
    pub(super) fn stage(
        &mut self,
        entry: u64,
        id: SubmissionId,
        table: ClusterTable,
        changes: &mut EntryChanges,
    ) -> Decision {
        let hidden = staged_name(id);
        if self.staged.contains_key(&hidden) {
            return Decision::Committed;
        }
        if let Err(reason) = check_table(&table) {
            return Decision::Refused(reason);
        }
        if self.tables.contains_key(&table.name) {
            return has_table(&table.name);
        }
        // Its tables would be discarded when the node was removed, which has happened.
        if self.applied.membership.membership().get_node(&id.node).is_none() {
            return Decision::Refused(format!("node {} is not a member", id.node));
        }
        let row = ClusterStagedTable { id, name: table.name.clone(), next: 0 };
        let created = self.applied.count_table();
        let table = ClusterTable { name: hidden.clone(), created, ..table };
        self.tables.insert(hidden.clone(), table.clone());
        changes.created.push(table);
        self.put_staged(hidden, Some(row), changes);
        self.record_catalog(entry, &[], changes);
        Decision::Committed
    }

    /// Adds the next rows to a staged table. A part that was added already has no effect.
    ///
    /// # Errors
    /// [`Error::Undecodable`](error::Error) if the node does not understand the rows.
    pub(super) fn load(
        &mut self,
        entry: u64,
        rows: &StagedRows,
        changes: &mut EntryChanges,
    ) -> error::Result<Decision> {
        let writes =
            RowWrites::decode(&rows.writes).map_err(|damage| undecodable(entry, damage))?;
        let hidden = staged_name(rows.table);
        let (Some(staged), Some(table)) = (self.staged.get(&hidden), self.tables.get(&hidden))
        else {
            return Ok(not_staged());
        };
        if rows.number != staged.next {
            let is_added = rows.number < staged.next;
            return Ok(if is_added { Decision::Committed } else { Decision::Conflict });
        }
        let fits = |row: RowWrite<'_>| {
            let has_expiry = row.value.is_none() || row.expires_at_ms.is_some();
            row.table == hidden && has_expiry == (table.ttl_ms.is_some() || row.value.is_none())
        };
        if !writes.rows().all(fits) {
            return Ok(Decision::Refused("the rows are of another table".to_owned()));
        }
        let row = ClusterStagedTable { next: staged.next + 1, ..staged.clone() };
        changes.writes.push(writes);
        self.put_staged(hidden, Some(row), changes);
        Ok(Decision::Committed)
    }

    /// Gives a staged table its name.
    pub(super) async fn publish(
        &mut self,
        entry: u64,
        id: SubmissionId,
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        let hidden = staged_name(id);
        let (Some(staged), Some(table)) = (self.staged.get(&hidden), self.tables.get(&hidden))
        else {
            return Ok(not_staged());
        };
        let name = staged.name.clone();
        if let Err(reason) = check_name(&name) {
            return Ok(Decision::Refused(reason));
        }
        if self.tables.contains_key(&name) {
            return Ok(has_table(&name));
        }
        let published = ClusterTable { name: name.clone(), ..table.clone() };
        // From here on, closures may see it.
        self.replica.begin_applying(entry);
        catalog::rename_table(&self.replica.storage.db, &hidden, &name).await?;
        self.tables.remove(&hidden);
        self.tables.insert(name, published.clone());
        changes.renamed = Some(published);
        changes.removed.push(hidden.clone());
        self.put_staged(hidden, None, changes);
        self.record_catalog(entry, &[], changes);
        Ok(Decision::Committed)
    }

    /// Drops a staged table.
    pub(super) async fn discard(
        &mut self,
        entry: u64,
        id: SubmissionId,
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        let hidden = staged_name(id);
        if !self.staged.contains_key(&hidden) {
            return Ok(not_staged());
        }
        catalog::drop_table(&self.replica.storage.db, &hidden).await?;
        self.tables.remove(&hidden);
        changes.removed.push(hidden.clone());
        self.put_staged(hidden, None, changes);
        self.record_catalog(entry, &[], changes);
        Ok(Decision::Committed)
    }

    /// Drops the staged tables of nodes that are members no more.
    pub(super) async fn discard_of_others(
        &mut self,
        entry: u64,
        changes: &mut EntryChanges,
    ) -> Result<()> {
        let members = self.applied.membership.membership();
        let is_other = |id: &SubmissionId| members.get_node(&id.node).is_none();
        let staged = self.staged.values().map(|staged| staged.id);
        for id in staged.filter(is_other).collect::<Vec<_>>() {
            self.discard(entry, id, changes).await?;
        }
        Ok(())
    }

    fn put_staged(
        &mut self,
        hidden: String,
        row: Option<ClusterStagedTable>,
        changes: &mut EntryChanges,
    ) {
        match &row {
            Some(row) => _ = self.staged.insert(hidden.clone(), row.clone()),
            None => _ = self.staged.remove(&hidden),
        }
        changes.staged_rows.insert(hidden, row);
    }

    /// Shows the staged tables to the task that discards those which are given up.
    pub(super) fn list_staged(&self) {
        self.replica.staged.list(self.staged.values().map(|staged| staged.id).collect());
    }
}

fn not_staged() -> Decision {
    Decision::Refused("the staged table was published or discarded".to_owned())
}

fn has_table(name: &str) -> Decision {
    Decision::Refused(format!("the cluster has a table {name:?} already"))
}
