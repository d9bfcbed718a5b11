//! Secondary indexes of a table, as writes to it find them.
//!
//! An index is a table of its own, its *entries*, which the engine writes in the same transactions as the
//! table it is of (`transaction/index_changes.rs`); `docs/indexes.md` has the protocol.
//!
//! Invariants: an index is listed with its table from when it is opened or created until it is dropped,
//! and a table with an index that nobody has attached is not written, since nobody knows its keys.

use std::sync::Arc;

use super::records::Records;
use super::show_key::ShowKey;
use crate::log::Lsn;
use crate::sched::Contained;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{OnceLock, RwLock};
use crate::types::{DecodeError, KeyBuffer};

/// Gives the keys under which a record with an encoded value is in an index, each encoded as a part of a
/// tuple. It runs a user's code, so its callers contain it.
type Extract = Box<dyn Fn(&[u8], &mut Vec<KeyBuffer>) -> Result<(), DecodeError> + Send + Sync>;

/// What an index knows of its keys' type once it is attached.
pub(crate) struct IndexCode {
    pub(crate) extract: Extract,
    /// Bytes that the index's key takes at the start of an entry's.
    pub(crate) split: fn(&[u8]) -> Result<usize, DecodeError>,
    /// How errors show the index's key, encoded as a part of a tuple.
    pub(crate) show_key: ShowKey,
}

/// In place of the LSN from which on an index may be read: it is being built.
const NEVER: u64 = u64::MAX;

/// A secondary index.
pub(crate) struct Secondary {
    name: Box<str>,
    /// Its entries: of a unique index, from a key to the encoded key of its record; of another, from both,
    /// one after the other, to nothing.
    entries: Arc<Records>,
    unique: bool,
    code: OnceLock<Contained<IndexCode>>,
    /// Transactions that began later may read it.
    usable_after: AtomicU64,
    dropped: AtomicBool,
}

impl std::fmt::Debug for Secondary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secondary({:?} in table {})", self.name, self.entries.id.0)
    }
}

/// The right to create or drop an index of a table, given up when dropped.
#[derive(Debug)]
pub(crate) struct ChangingIndexes(Arc<Records>);

impl ChangingIndexes {
    /// The right for `table`; `None` while somebody has it.
    pub(crate) fn begin(table: &Arc<Records>) -> Option<Self> {
        // AcqRel, of which the Acquire pairs with the Release when the last one's right is dropped.
        let begun = !table.secondaries.changing.swap(true, Ordering::AcqRel);
        begun.then(|| Self(table.clone()))
    }

    /// The table whose indexes may be changed.
    pub(crate) fn table(&self) -> &Arc<Records> {
        &self.0
    }
}

impl Drop for ChangingIndexes {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `begin`.
        self.0.secondaries.changing.store(false, Ordering::Release);
    }
}

impl Secondary {
    /// An index that is not attached.
    pub(crate) fn new(name: &str, entries: Arc<Records>, unique: bool) -> Self {
        Self {
            name: name.into(),
            entries,
            unique,
            code: OnceLock::new(),
            usable_after: AtomicU64::new(NEVER),
            dropped: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn entries(&self) -> &Arc<Records> {
        &self.entries
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.unique
    }

    /// The key of the entry of a record with the key `primary`, under the key `part` of the index.
    pub(crate) fn entry_key(&self, part: &[u8], primary: &[u8]) -> KeyBuffer {
        let mut entry = KeyBuffer::new();
        entry.extend_from_slice(part);
        if !self.unique {
            entry.extend_from_slice(primary);
        }
        entry
    }

    /// The value of the entry of a record with the key `primary`.
    pub(crate) fn entry_value<'k>(&self, primary: &'k [u8]) -> &'k [u8] {
        if self.unique { primary } else { &[] }
    }

    /// Attaches what gives the index its keys; of several, the first stays.
    pub(crate) fn attach(&self, code: IndexCode) {
        if self.unique {
            // Its entries have the index's keys and nothing else.
            self.entries.set_show_key(code.show_key);
        }
        // A database's program attaches the same code each time, or says another version.
        _ = self.code.set(Contained::new(code));
    }

    /// What gives the index its keys; `None` while it is not attached.
    pub(crate) fn code(&self) -> Option<&IndexCode> {
        self.code.get().map(|code| &**code)
    }

    /// Lets transactions read the index that begin after `lsn`.
    pub(crate) fn make_usable(&self, lsn: Lsn) {
        // Release pairs with the Acquire in `is_usable_at` and `is_built`.
        self.usable_after.store(lsn.0, Ordering::Release);
    }

    /// Whether every record that a transaction with this begin stamp sees has its entries.
    pub(crate) fn is_usable_at(&self, begin: Lsn) -> bool {
        // Acquire pairs with the Release in `make_usable`.
        begin.0 > self.usable_after.load(Ordering::Acquire)
    }

    /// Whether every committed record has its entries.
    pub(crate) fn is_built(&self) -> bool {
        // Acquire pairs with the Release in `make_usable`.
        self.usable_after.load(Ordering::Acquire) != NEVER
    }

    /// Lets nobody read the index any more.
    pub(crate) fn mark_dropped(&self) {
        // Release pairs with the Acquire in `is_dropped`.
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        // Acquire pairs with the Release in `mark_dropped`.
        self.dropped.load(Ordering::Acquire)
    }
}

/// The indexes of one table.
#[derive(Debug, Default)]
pub(super) struct Secondaries {
    /// Whether there is any: all that a write to a table without indexes looks at.
    any: AtomicBool,
    /// Whether somebody creates or drops one at this moment.
    changing: AtomicBool,
    list: RwLock<Arc<[Arc<Secondary>]>>,
}

impl Records {
    /// Whether the table has secondary indexes.
    ///
    /// A transaction that does not see one that was just listed began before the next commit of whoever
    /// listed it: its begin stamp is otherwise read from the chain of additions to the log's tail after
    /// that commit's, and so is what came before that.
    #[inline(always)]
    pub(crate) fn is_indexed(&self) -> bool {
        // Acquire pairs with the Release in `change_secondaries`; for later transactions, with the
        // addition of the commit LSN.
        self.secondaries.any.load(Ordering::Acquire)
    }

    /// The table's secondary indexes.
    pub(crate) fn secondaries(&self) -> Arc<[Arc<Secondary>]> {
        self.secondaries.list.read().clone()
    }

    /// The secondary index of this name.
    pub(crate) fn secondary(&self, name: &str) -> Option<Arc<Secondary>> {
        self.secondaries.list.read().iter().find(|one| one.name() == name).cloned()
    }

    /// Lists an index with the table, if none of its name is; returns the one that is listed then.
    pub(crate) fn list_secondary(&self, new: Arc<Secondary>) -> Arc<Secondary> {
        self.change_secondaries(|list| {
            if let Some(there) = list.iter().find(|one| one.name() == new.name()) {
                return there.clone();
            }
            list.push(new.clone());
            new
        })
    }

    /// Takes an index off the table's list.
    pub(crate) fn unlist_secondary(&self, gone: &Arc<Secondary>) {
        self.change_secondaries(|list| list.retain(|one| !Arc::ptr_eq(one, gone)));
    }

    fn change_secondaries<T>(&self, change: impl FnOnce(&mut Vec<Arc<Secondary>>) -> T) -> T {
        let mut list = self.secondaries.list.write();
        let mut changed = list.to_vec();
        let result = change(&mut changed);
        let any = !changed.is_empty();
        *list = changed.into();
        // Release pairs with the Acquire in `is_indexed`: who sees it sees the list.
        self.secondaries.any.store(any, Ordering::Release);
        result
    }
}
