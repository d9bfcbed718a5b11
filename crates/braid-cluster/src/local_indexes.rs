//! Indexes on this node: those that the cluster has, and the entries that this node keeps.
//!
//! The entries of an index follow from the records, so each node keeps them itself and the log does
//! not contain them. A node without the entries of an index applies entries of the log like the
//! others. But it executes no transactions that write the table, because it can neither check unique
//! keys nor name the keys of index entries for the certification.
//!
//! The database refuses writes to a table with an index that the program has not attached, and
//! writes for which a key function fails. The log does not wait for that: the node drops such
//! entries, and builds them again when the program attaches the index.

mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braiddb::indexes::{IndexDescription, IndexStage};
use braiddb::proposals::{KeySet, RowWrites};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::command::ClusterIndex;

pub use writes::{is_missing, is_of_index};

/// Time after the start of a node in which entries that write an indexed table wait until the
/// program has attached the index.
const ATTACH_TIME: Duration = Duration::from_secs(2);

/// The indexes of all tables of the cluster.
#[derive(Debug)]
pub struct LocalIndexes {
    tables: Mutex<BTreeMap<String, TableIndexes>>,
    /// Number of changes so far.
    changes: watch::Sender<u64>,
    /// End of the time in which entries wait for the program.
    attach_until: Instant,
}

#[derive(Debug, Default)]
struct TableIndexes {
    /// Number of reasons for which the database must not build an index of the table now.
    blocks: u32,
    indexes: BTreeMap<String, LocalIndex>,
}

#[derive(Debug, Default)]
struct LocalIndex {
    /// The index in the cluster's catalog, if it is there.
    declared: Option<ClusterIndex>,
    stage: LocalStage,
    /// The definition of the entries, once they are complete.
    built: Option<ClusterIndex>,
    /// Number of times that its entries were dropped.
    drops: u64,
}

impl LocalIndex {
    /// Returns whether this node has all entries of an index with this definition.
    fn is_built(&self, wanted: &ClusterIndex) -> bool {
        let is_same = self.built.as_ref().is_some_and(|built| built.is_same(wanted));
        is_same && self.stage == LocalStage::Ready
    }

    /// Returns whether the cluster has the index, and this node all of its entries.
    fn is_complete(&self) -> bool {
        self.declared.as_ref().is_some_and(|declared| self.is_built(declared))
    }

    /// Returns whether this node has all entries of an index with another definition.
    fn is_other(&self) -> bool {
        self.stage == LocalStage::Ready && self.declared.is_some() && !self.is_complete()
    }
}

/// Entries of an index on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LocalStage {
    /// The node has none.
    #[default]
    Absent,
    /// The program has not attached them. Until then, the table cannot be written.
    Detached,
    /// They are attached, and may be incomplete.
    Building,
    /// They are attached and complete.
    Ready,
    /// They are being dropped.
    Dropping,
}

/// Decision about whether a node may propose a transaction.
#[derive(Debug, PartialEq, Eq)]
pub enum IndexCheck {
    Passed,
    /// An index changed at the same time.
    Changed,
    /// The node cannot execute transactions that write the table.
    NotAttached {
        table: String,
        index: String,
    },
}

/// Keeps the database from building indexes of a table, which would delay changes of the table.
#[derive(Debug)]
pub struct BuildBlock {
    indexes: Arc<LocalIndexes>,
    table: String,
}

impl Drop for BuildBlock {
    fn drop(&mut self) {
        self.indexes.change(|tables| {
            if let Some(table) = tables.get_mut(&self.table) {
                table.blocks = table.blocks.saturating_sub(1);
            }
        });
    }
}

/// A call that builds or attaches an index.
#[derive(Debug)]
pub struct IndexBuild {
    indexes: Arc<LocalIndexes>,
    table: String,
    index: String,
    /// Number of times that the entries had been dropped when the call began.
    drops: u64,
    was_detached: bool,
}

impl IndexBuild {
    /// Waits until the database must stop to build the index.
    pub async fn must_stop(&self) {
        let holds = |tables: &BTreeMap<String, TableIndexes>| {
            tables.get(&self.table).is_none_or(|table| {
                let index = table.indexes.get(&self.index);
                table.blocks > 0 || index.is_none_or(|index| index.drops != self.drops)
            })
        };
        self.indexes.wait(holds).await;
    }

    /// Notes that the index is complete. Returns `false` if its entries were dropped since the call
    /// began.
    pub fn end(self, built: &ClusterIndex) -> bool {
        self.indexes.change_index(&self.table, &self.index, |index| {
            let is_kept = index.drops == self.drops;
            if is_kept {
                (index.stage, index.built) = (LocalStage::Ready, Some(built.clone()));
            }
            is_kept
        })
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if self.was_detached {
            // The call ended early, perhaps before it attached the index.
            self.indexes.change_index(&self.table, &self.index, |index| {
                if index.drops == self.drops && index.stage == LocalStage::Building {
                    index.stage = LocalStage::Detached;
                }
            });
        }
    }
}

impl LocalIndexes {
    /// Lists the indexes of a database, of which the program has attached none.
    pub fn new(found: Vec<IndexDescription>) -> Arc<Self> {
        let mut tables: BTreeMap<String, TableIndexes> = BTreeMap::new();
        for IndexDescription { table, name, stage, .. } in found {
            if stage != IndexStage::Dropping {
                let index = LocalIndex { stage: LocalStage::Detached, ..LocalIndex::default() };
                tables.entry(table).or_default().indexes.insert(name, index);
            }
        }
        let attach_until = Instant::now() + ATTACH_TIME;
        Arc::new(Self { tables: Mutex::new(tables), changes: watch::Sender::new(0), attach_until })
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<String, TableIndexes>> {
        // No code that holds the lock can leave the state half changed.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, TableIndexes>) -> T) -> T {
        let mut tables = self.tables();
        let changed = change(&mut tables);
        // With the lock, so that a reader of both sees either before or after.
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }

    fn change_index<T>(
        &self,
        table: &str,
        index: &str,
        change: impl FnOnce(&mut LocalIndex) -> T,
    ) -> T {
        self.change(|tables| {
            let table = tables.entry(table.to_owned()).or_default();
            change(table.indexes.entry(index.to_owned()).or_default())
        })
    }

    /// Returns whether the database has an index that the program has not attached.
    fn has_detached(&self) -> bool {
        let tables = self.tables();
        let mut indexes = tables.values().flat_map(|table| table.indexes.values());
        indexes.any(|index| index.stage == LocalStage::Detached)
    }

    /// Returns the number of changes so far.
    pub fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until a condition holds.
    async fn wait(&self, mut holds: impl FnMut(&BTreeMap<String, TableIndexes>) -> bool) {
        let mut changes = self.changes.subscribe();
        while !holds(&self.tables()) {
            // The sender lives as long as `self`.
            _ = changes.changed().await;
        }
    }

    /// Notes that the cluster has an index.
    pub fn declare(&self, table: &str, declared: ClusterIndex) {
        let name = declared.name.clone();
        self.change_index(table, &name, |index| index.declared = Some(declared));
    }

    /// Returns whether this node has the entries of an index of this name with another definition.
    pub fn is_other(&self, table: &str, index: &str) -> bool {
        let tables = self.tables();
        let index = tables.get(table).and_then(|table| table.indexes.get(index));
        index.is_some_and(LocalIndex::is_other)
    }

    /// Notes that the cluster has an index no more.
    pub fn undeclare(&self, table: &str, index: &str) {
        self.change_index(table, index, |index| index.declared = None);
    }

    pub fn rename_table(&self, from: &str, to: &str) {
        self.change(|tables| {
            if let Some(mut indexes) = tables.remove(from) {
                indexes.blocks = 0;
                tables.insert(to.to_owned(), indexes);
            }
        });
    }

    pub fn remove_table(&self, table: &str) {
        self.change(|tables| tables.remove(table));
    }

    /// Replaces the list of the cluster's indexes, by table. Returns the table and the name of those
    /// that this node must drop, because the cluster does not have them any more.
    pub fn reset(&self, declared: Vec<(String, ClusterIndex)>) -> BTreeSet<(String, String)> {
        self.change(|tables| {
            let mut before = BTreeSet::new();
            for (table, TableIndexes { indexes, .. }) in &mut *tables {
                for (name, index) in indexes {
                    if index.declared.take().is_some() || index.stage == LocalStage::Detached {
                        before.insert((table.clone(), name.clone()));
                    }
                }
            }
            for (table, index) in declared {
                let (indexes, name) = (tables.entry(table).or_default(), index.name.clone());
                indexes.indexes.entry(name).or_default().declared = Some(index);
            }
            // One that is being created was not in the catalog, and is not.
            before.retain(|(table, name)| {
                let index = &tables[table].indexes[name];
                index.declared.is_none() || index.is_other()
            });
            before
        })
    }

    /// Stops the building of indexes of a table until the result is dropped.
    pub fn block(self: &Arc<Self>, table: &str) -> BuildBlock {
        self.change(|tables| tables.entry(table.to_owned()).or_default().blocks += 1);
        BuildBlock { indexes: self.clone(), table: table.to_owned() }
    }

    /// Waits until no entries of indexes of a table are being dropped.
    pub async fn wait_dropped(&self, table: &str) {
        let is_dropping = |index: &LocalIndex| index.stage == LocalStage::Dropping;
        self.wait(|tables| {
            tables.get(table).is_none_or(|table| !table.indexes.values().any(is_dropping))
        })
        .await;
    }

    /// Waits until an index may be built, and notes that it is.
    pub async fn begin_building(self: &Arc<Self>, table: &str, index: &str) -> IndexBuild {
        loop {
            self.wait(|tables| {
                tables.get(table).is_none_or(|table| {
                    let found = table.indexes.get(index);
                    table.blocks == 0 && found.is_none_or(|it| it.stage != LocalStage::Dropping)
                })
            })
            .await;
            let begun = self.change_index(table, index, |index| {
                let before = index.stage;
                match before {
                    LocalStage::Dropping => return None,
                    LocalStage::Ready => {}
                    LocalStage::Absent | LocalStage::Detached | LocalStage::Building => {
                        index.stage = LocalStage::Building;
                    }
                }
                Some((index.drops, before == LocalStage::Detached))
            });
            if let Some((drops, was_detached)) = begun {
                let (indexes, table, index) = (self.clone(), table.to_owned(), index.to_owned());
                return IndexBuild { indexes, table, index, drops, was_detached };
            }
        }
    }

    /// Returns whether the cluster has this index, and this node its entries.
    pub fn is_ready(&self, table: &str, wanted: &ClusterIndex) -> bool {
        let tables = self.tables();
        let index = tables.get(table).and_then(|table| table.indexes.get(&wanted.name));
        index.is_some_and(|index| index.is_complete() && index.is_built(wanted))
    }

    /// Notes that the entries of an index are about to be dropped. Returns `false` if they are
    /// already.
    fn begin_dropping(&self, table: &str, index: &str) -> bool {
        self.change_index(table, index, |index| {
            index.drops += 1;
            std::mem::replace(&mut index.stage, LocalStage::Dropping) != LocalStage::Dropping
        })
    }

    /// Notes that the node has no entries of an index.
    pub fn end_dropping(&self, table: &str, index: &str) {
        self.change(|tables| {
            let Some(table) = tables.get_mut(table) else { return };
            if let Some(found) = table.indexes.get_mut(index) {
                found.stage = LocalStage::Absent;
                if found.declared.is_none() {
                    table.indexes.remove(index);
                }
            }
        });
    }

    /// Checks that this node had all indexes that a transaction needs, since there were `changes`.
    pub fn check(&self, reads: &KeySet, writes: &RowWrites, changes: u64) -> IndexCheck {
        let tables = self.tables();
        if tables.values().all(|table| table.indexes.is_empty()) {
            return IndexCheck::Passed;
        }
        let mut uses_indexes = false;
        let spaces = reads.points().map(|point| point.0).chain(reads.ranges().map(|it| it.0));
        for space in spaces {
            let Some(index) = space.index else { continue };
            uses_indexes = true;
            let found = tables.get(space.table).and_then(|table| table.indexes.get(index));
            match found.map(|index| index.stage) {
                Some(LocalStage::Building | LocalStage::Ready | LocalStage::Detached) => {}
                Some(LocalStage::Absent | LocalStage::Dropping) | None => {
                    return IndexCheck::Changed;
                }
            }
        }
        let mut last = None;
        for row in writes.rows() {
            if last.replace(row.table) == Some(row.table) {
                continue;
            }
            let Some(table) = tables.get(row.table) else { continue };
            for (name, index) in &table.indexes {
                uses_indexes = true;
                if index.declared.is_some() && !index.is_complete() {
                    let (table, index) = (row.table.to_owned(), name.clone());
                    return IndexCheck::NotAttached { table, index };
                }
            }
        }
        // `change` holds the same lock.
        match uses_indexes && self.changes() != changes {
            true => IndexCheck::Changed,
            false => IndexCheck::Passed,
        }
    }
}
