//! Changes of the cluster's indexes.

use braiddb::Result;

use super::{Applier, EntryChanges, MAX_NAME_BYTES, MAX_TYPE_NAME_BYTES, no_table};
use crate::command::{ClusterIndex, ClusterTable, Decision};

impl Applier {
    /// Lists an index, unless the table has it.
    ///
    /// Transactions that read or wrote the table before conflict. From here on, a node executes
    /// transactions that write it only with all entries of the index, so all of them name the keys
    /// of its entries, and check that those of a unique index are unique. If two records have one key
    /// of a unique index, no node has all entries, and the table is not written until the index is
    /// dropped.
    pub(super) async fn create_index(
        &mut self,
        entry: u64,
        table: &str,
        created: u64,
        mut index: ClusterIndex,
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        if self.tables.get(table).is_none_or(|found| found.created != created) {
            return Ok(no_table(table));
        }
        let ClusterIndex { name, key_type, .. } = &index;
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || key_type.len() > MAX_TYPE_NAME_BYTES {
            let reason = format!("{name:?} or its type of keys is not the name of an index");
            return Ok(Decision::Refused(reason));
        }
        let row = (created, name.clone());
        match self.indexes.get(&row) {
            Some(found) if found.is_same(&index) => return Ok(Decision::Committed),
            Some(found) => {
                return Ok(Decision::Refused(format!(
                    "the table {table:?} has the index {name:?} with another definition, {}",
                    found.definition()
                )));
            }
            None => {}
        }
        index.created = self.applied.count_table();
        let storage = &self.replica.storage;
        storage.indexes.declare(table, index.clone());
        if storage.indexes.is_other(table, &index.name) {
            storage.drop_entries_of(table, &index.name).await?;
        }
        self.indexes.insert(row.clone(), index.clone());
        changes.index_rows.push((row, Some(index)));
        self.record_catalog(entry, &[table], changes);
        Ok(Decision::Committed)
    }

    /// Lists an index no more. Transactions that read it before conflict, because later writers do
    /// not name the keys of its entries.
    pub(super) async fn drop_index(
        &mut self,
        entry: u64,
        table: &str,
        (name, created): (String, u64),
        changes: &mut EntryChanges,
    ) -> Result<Decision> {
        let Some(ClusterTable { created: number, .. }) = self.tables.get(table) else {
            return Ok(no_table(table));
        };
        let row = (*number, name);
        if self.indexes.get(&row).is_none_or(|found| found.created != created) {
            let reason = format!("the table {table:?} has no index {:?}", row.1);
            return Ok(Decision::Refused(reason));
        }
        self.record_catalog(entry, &[table], changes);
        self.indexes.remove(&row);
        let storage = &self.replica.storage;
        storage.indexes.undeclare(table, &row.1);
        storage.drop_entries_of(table, &row.1).await?;
        changes.index_rows.push((row, None));
        Ok(Decision::Committed)
    }

    /// Lists the indexes of a dropped table no more.
    pub(super) fn drop_indexes_of(&mut self, table: &ClusterTable, changes: &mut EntryChanges) {
        let of_table = |(number, _): &(u64, String)| *number == table.created;
        let rows: Vec<_> = self.indexes.keys().filter(|row| of_table(row)).cloned().collect();
        for row in rows {
            self.indexes.remove(&row);
            changes.index_rows.push((row, None));
        }
        self.replica.storage.indexes.remove_table(&table.name);
    }

    /// Compares the indexes of the database with the cluster's, and drops the others.
    pub(super) async fn reset_indexes(&self) -> Result<()> {
        let by_number = |number: u64| self.tables.values().find(|table| table.created == number);
        let declared = self.indexes.iter().filter_map(|((number, _), index)| {
            Some((by_number(*number)?.name.clone(), index.clone()))
        });
        let is_table = |name: &str| self.tables.contains_key(name);
        let storage = &self.replica.storage;
        for (table, index) in storage.indexes.reset(declared.collect(), is_table) {
            storage.drop_entries_of(&table, &index).await?;
        }
        Ok(())
    }
}
