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
    state: Mutex<State>,
    /// Wakes all that wait for a change of the state.
    wakes: watch::Sender<()>,
    /// End of the time in which entries wait for the program.
    attach_until: Instant,
}

#[derive(Debug, Default)]
struct State {
    tables: BTreeMap<String, TableIndexes>,
    /// Number of changes so far that transactions must not miss.
    changes: u64,
    /// Newest number of entries of an index.
    generation: u64,
}

#[derive(Debug, Default)]
struct TableIndexes {
    /// Held by each reason for which the database must not build an index of the table now.
    block: Arc<()>,
    /// Number of the last change.
    changed: u64,
    indexes: BTreeMap<String, LocalIndex>,
}

impl TableIndexes {
    fn is_blocked(&self) -> bool {
        Arc::strong_count(&self.block) > 1
    }

    /// Returns whether entries with this number are those of an index of the table.
    fn has_generation(&self, generation: u64) -> bool {
        self.indexes.values().any(|index| index.generation == generation)
    }
}

impl State {
    /// Changes an index, and counts the change if transactions must not miss it.
    fn change_index<T>(
        &mut self,
        table: &str,
        index: &str,
        change: impl FnOnce(&mut LocalIndex, &mut u64) -> T,
    ) -> T {
        let table = self.tables.entry(table.to_owned()).or_default();
        let index = table.indexes.entry(index.to_owned()).or_insert_with(|| {
            self.generation += 1;
            LocalIndex { generation: self.generation, ..LocalIndex::default() }
        });
        let before = index.for_transactions();
        let changed = change(index, &mut self.generation);
        if index.for_transactions() != before {
            self.changes += 1;
            table.changed = self.changes;
        }
        changed
    }

    /// Changes the index whose entries have this number, wherever it is now. Returns `None` if these
    /// entries were dropped.
    fn change_generation<T>(
        &mut self,
        generation: u64,
        change: impl FnOnce(&mut LocalIndex) -> T,
    ) -> Option<T> {
        let (table, index) =
            self.tables.iter().find_map(|(table, TableIndexes { indexes, .. })| {
                let (index, _) =
                    indexes.iter().find(|(_, index)| index.generation == generation)?;
                Some((table.clone(), index.clone()))
            })?;
        Some(self.change_index(&table, &index, |index, _| change(index)))
    }
}

#[derive(Debug, Default)]
struct LocalIndex {
    /// The index in the cluster's catalog, if it is there.
    declared: Option<ClusterIndex>,
    stage: LocalStage,
    /// The definition of the entries, once they are complete. It has the number of the index in the
    /// cluster's catalog, or 0 if it is not there yet.
    built: Option<ClusterIndex>,
    /// Number of the entries, also before they exist. No other entries on this node have it, and
    /// those that follow a drop have another one.
    generation: u64,
}

impl LocalIndex {
    /// Returns whether the cluster has the index, and this node all of its entries.
    fn is_complete(&self) -> bool {
        self.declared.is_some() && self.built == self.declared && self.stage == LocalStage::Ready
    }

    /// Returns whether this node has all entries of another index of this name.
    fn is_other(&self) -> bool {
        self.stage == LocalStage::Ready && self.declared.is_some() && !self.is_complete()
    }

    /// Lets complete entries be those of the index in the cluster's catalog, if they fit.
    fn adopt(&mut self) {
        if let (Some(declared), Some(built)) = (&self.declared, &mut self.built)
            && built.created == 0
            && built.is_same(declared)
        {
            built.created = declared.created;
        }
    }

    /// Returns a value that differs after changes which a transaction must not miss.
    fn for_transactions(&self) -> (Option<u64>, u64, bool) {
        let declared = self.declared.as_ref().map(|declared| declared.created);
        (declared, self.generation, self.stage == LocalStage::Ready)
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
    held: Option<Arc<()>>,
}

impl Drop for BuildBlock {
    fn drop(&mut self) {
        self.indexes.change(|_| drop(self.held.take()));
    }
}

/// A call that builds or attaches an index.
#[derive(Debug)]
pub struct IndexBuild {
    indexes: Arc<LocalIndexes>,
    /// Number of the entries.
    generation: u64,
    was_detached: bool,
}

impl IndexBuild {
    /// Waits until the database must stop to build the index.
    pub async fn must_stop(&self) {
        let must_stop = |state: &mut State| {
            let table = state.tables.values().find(|table| table.has_generation(self.generation));
            table.is_none_or(TableIndexes::is_blocked)
        };
        self.indexes.wait(must_stop).await;
    }

    /// Notes that the index is complete. Returns `false` if its entries were dropped since the call
    /// began.
    pub fn end(self, built: &ClusterIndex) -> bool {
        let end = |index: &mut LocalIndex| {
            // The call has found complete entries if it was so before.
            if index.stage != LocalStage::Ready {
                (index.stage, index.built) = (LocalStage::Ready, Some(built.clone()));
                index.adopt();
            }
        };
        self.indexes.change(|state| state.change_generation(self.generation, end)).is_some()
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if self.was_detached {
            // The call ended early, perhaps before it attached the index.
            let detach = |index: &mut LocalIndex| {
                if index.stage == LocalStage::Building {
                    index.stage = LocalStage::Detached;
                }
            };
            self.indexes.change(|state| state.change_generation(self.generation, detach));
        }
    }
}

impl LocalIndexes {
    /// Lists the indexes of a database, of which the program has attached none.
    pub fn new(found: Vec<IndexDescription>) -> Arc<Self> {
        let mut state = State::default();
        for IndexDescription { table, name, stage, .. } in found {
            if stage != IndexStage::Dropping {
                let detach = |index: &mut LocalIndex, _: &mut u64| {
                    index.stage = LocalStage::Detached;
                };
                state.change_index(&table, &name, detach);
            }
        }
        let attach_until = Instant::now() + ATTACH_TIME;
        Arc::new(Self { state: Mutex::new(state), wakes: watch::Sender::new(()), attach_until })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.wakes.send_replace(());
        changed
    }

    /// Returns whether the database has an index that the program has not attached.
    fn has_detached(&self) -> bool {
        let state = self.state();
        let mut indexes = state.tables.values().flat_map(|table| table.indexes.values());
        indexes.any(|index| index.stage == LocalStage::Detached)
    }

    /// Returns the number of changes so far that transactions must not miss.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Waits until a condition holds.
    async fn wait(&self, mut holds: impl FnMut(&mut State) -> bool) {
        let mut wakes = self.wakes.subscribe();
        while !holds(&mut self.state()) {
            // The sender lives as long as `self`.
            _ = wakes.changed().await;
        }
    }

    /// Notes that the cluster has an index.
    pub fn declare(&self, table: &str, declared: ClusterIndex) {
        let name = declared.name.clone();
        let declare = |index: &mut LocalIndex, _: &mut u64| {
            index.declared = Some(declared);
            index.adopt();
        };
        self.change(|state| state.change_index(table, &name, declare));
    }

    /// Returns whether this node has all entries of another index of this name.
    pub fn is_other(&self, table: &str, index: &str) -> bool {
        let state = self.state();
        let index = state.tables.get(table).and_then(|table| table.indexes.get(index));
        index.is_some_and(LocalIndex::is_other)
    }

    /// Returns whether this node has entries, or builds them, of an index that the cluster does not
    /// have.
    pub fn is_undeclared(&self, table: &str, index: &str) -> bool {
        let state = self.state();
        let index = state.tables.get(table).and_then(|table| table.indexes.get(index));
        index.is_some_and(|index| {
            index.declared.is_none()
                && matches!(index.stage, LocalStage::Building | LocalStage::Ready)
        })
    }

    /// Notes that the cluster has an index no more.
    pub fn undeclare(&self, table: &str, index: &str) {
        self.change(|state| state.change_index(table, index, |index, _| index.declared = None));
    }

    /// Notes that a table has another name. An earlier run of the node may have renamed it: then its
    /// entries are listed under the new name already.
    pub fn rename_table(&self, from: &str, to: &str) {
        self.change(|state| {
            let Some(mut renamed) = state.tables.remove(from) else { return };
            let found = state.tables.remove(to).unwrap_or_default();
            for (name, index) in found.indexes {
                let declared = renamed.indexes.remove(&name).and_then(|index| index.declared);
                renamed.indexes.insert(name, LocalIndex { declared, ..index });
            }
            state.changes += 1;
            renamed.changed = state.changes;
            state.tables.insert(to.to_owned(), renamed);
        });
    }

    pub fn remove_table(&self, table: &str) {
        self.change(|state| drop(state.tables.remove(table)));
    }

    /// Replaces the list of the cluster's indexes, by table. Returns the table and the name of those
    /// that this node must drop, because the cluster does not have them any more. `is_table` returns
    /// whether the cluster has a table.
    pub fn reset(
        &self,
        declared: Vec<(String, ClusterIndex)>,
        is_table: impl Fn(&str) -> bool,
    ) -> BTreeSet<(String, String)> {
        self.change(|state| {
            let mut before = BTreeMap::new();
            state.changes += 1;
            for (table, of_table) in &mut state.tables {
                of_table.changed = state.changes;
                for (name, index) in &mut of_table.indexes {
                    let declared = index.declared.take();
                    // An entry that renames the table was not applied completely before the node
                    // stopped. It is applied again.
                    if !is_table(table) {
                        continue;
                    }
                    if declared.is_some() || index.stage == LocalStage::Detached {
                        before.insert((table.clone(), name.clone()), declared);
                    }
                }
            }
            for (table, wanted) in declared {
                let declare = |index: &mut LocalIndex, _: &mut u64| {
                    index.declared = Some(wanted.clone());
                    index.adopt();
                };
                state.change_index(&table, &wanted.name, declare);
            }
            // One that is being created was not in the catalog, and is not.
            before.retain(|(table, name), was| {
                let index = &state.tables[table].indexes[name];
                index.declared.is_none()
                    || index.is_other()
                    // The cluster dropped it, and created one with the same definition.
                    || was.is_some() && *was != index.declared
            });
            before.into_keys().collect()
        })
    }

    /// Stops the building of indexes of a table until the result is dropped.
    pub fn block(self: &Arc<Self>, table: &str) -> BuildBlock {
        let held =
            self.change(|state| state.tables.entry(table.to_owned()).or_default().block.clone());
        BuildBlock { indexes: self.clone(), held: Some(held) }
    }

    /// Stops the building of indexes of the table in which entries with this number are dropped,
    /// until the result is dropped.
    fn block_of(self: &Arc<Self>, generation: u64) -> BuildBlock {
        let held = self.change(|state| {
            let table = state.tables.values().find(|table| table.has_generation(generation));
            table.map(|table| table.block.clone())
        });
        BuildBlock { indexes: self.clone(), held }
    }

    /// Waits until an index may be built, and notes that it is.
    pub async fn begin_building(self: &Arc<Self>, table: &str, index: &str) -> IndexBuild {
        let mut begun = None;
        self.wait(|state| {
            let is_blocked = state.tables.get(table).is_some_and(TableIndexes::is_blocked);
            let begin = |index: &mut LocalIndex, _: &mut u64| {
                let before = index.stage;
                match before {
                    LocalStage::Dropping => return None,
                    LocalStage::Ready => {}
                    LocalStage::Absent | LocalStage::Detached | LocalStage::Building => {
                        index.stage = LocalStage::Building;
                    }
                }
                Some((index.generation, before == LocalStage::Detached))
            };
            if !is_blocked {
                begun = state.change_index(table, index, begin);
            }
            begun.is_some()
        })
        .await;
        self.wakes.send_replace(());
        let (generation, was_detached) = begun.expect("it waits for that");
        IndexBuild { indexes: self.clone(), generation, was_detached }
    }

    /// Returns whether the cluster has this index, and this node its entries.
    pub fn is_ready(&self, table: &str, wanted: &ClusterIndex) -> bool {
        let state = self.state();
        let index = state.tables.get(table).and_then(|table| table.indexes.get(&wanted.name));
        index.is_some_and(|index| {
            index.is_complete() && index.built.as_ref().is_some_and(|built| built.is_same(wanted))
        })
    }

    /// Notes that the entries of an index are about to be dropped. Returns the number to end that
    /// with, or `None` if they are being dropped already.
    fn begin_dropping(&self, table: &str, index: &str) -> Option<u64> {
        let begin = |index: &mut LocalIndex, generation: &mut u64| {
            if index.stage == LocalStage::Dropping {
                return None;
            }
            *generation += 1;
            (index.generation, index.stage) = (*generation, LocalStage::Dropping);
            Some(*generation)
        };
        self.change(|state| state.change_index(table, index, begin))
    }

    /// Notes that the entries with this number are dropped.
    fn end_dropping(&self, generation: u64) {
        self.change(|state| {
            state.change_generation(generation, |index| index.stage = LocalStage::Absent);
            for table in state.tables.values_mut() {
                table
                    .indexes
                    .retain(|_, index| index.generation != generation || index.declared.is_some());
            }
        });
    }

    /// Checks that this node had all indexes that a transaction needs, since there were `changes`.
    pub fn check(&self, reads: &KeySet, writes: &RowWrites, changes: u64) -> IndexCheck {
        let state = self.state();
        if state.tables.values().all(|table| table.indexes.is_empty()) {
            return IndexCheck::Passed;
        }
        let spaces = reads.points().map(|point| point.0).chain(reads.ranges().map(|it| it.0));
        for space in spaces {
            let Some(index) = space.index else { continue };
            let found = state
                .tables
                .get(space.table)
                .and_then(|table| table.indexes.get(index).filter(|_| table.changed <= changes));
            match found.map(|index| index.stage) {
                Some(LocalStage::Building | LocalStage::Ready | LocalStage::Detached) => {}
                Some(LocalStage::Absent | LocalStage::Dropping) | None => {
                    return IndexCheck::Changed;
                }
            }
        }
        let (mut last, mut is_changed) = (None, false);
        for row in writes.rows() {
            if last.replace(row.table) == Some(row.table) {
                continue;
            }
            let Some(table) = state.tables.get(row.table) else { continue };
            for (name, index) in &table.indexes {
                if index.declared.is_some() && !index.is_complete() {
                    let (table, index) = (row.table.to_owned(), name.clone());
                    return IndexCheck::NotAttached { table, index };
                }
                is_changed |= table.changed > changes;
            }
        }
        if is_changed { IndexCheck::Changed } else { IndexCheck::Passed }
    }
}
