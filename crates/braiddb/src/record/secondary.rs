//! Secondary indexes of a table, as seen by writes to the table.
//!
//! The entries of an index are records of a separate table. The engine writes them in the same
//! transactions as the indexed table (`transaction/operations/index/changes.rs`); `docs/indexes.md`
//! documents the protocol.
//!
//! Invariants: an index is listed with its table from its opening or creation until it is dropped.
//! A table with an unattached index cannot be written, since the index keys cannot be computed.

use std::sync::Arc;

use super::records::Records;
use super::show_key::ShowKey;
use crate::log::Lsn;
use crate::sched::Contained;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{OnceLock, RwLock};
use crate::types::{DecodeError, KeyBuffer};

/// Computes the index keys of a record from its encoded value, each encoded as a part of a tuple.
/// It runs user code, so its callers contain panics.
type KeyExtractor =
    Box<dyn Fn(&[u8], &mut Vec<KeyBuffer>) -> Result<(), DecodeError> + Send + Sync>;

/// Functions for an index's key type, available once the index is attached.
pub(crate) struct IndexCode {
    pub(crate) extract: KeyExtractor,
    /// Returns the length of the index key at the start of an entry's key.
    pub(crate) split: fn(&[u8]) -> Result<usize, DecodeError>,
    /// Formats the index key, encoded as a part of a tuple, in errors.
    pub(crate) show_key: ShowKey,
}

/// Replaces the LSN from which on an index may be read: it is being built.
const UNUSABLE: u64 = u64::MAX;

/// A secondary index.
pub(crate) struct Secondary {
    name: Box<str>,
    /// Its entries. A unique index maps a key to the encoded key of its record. Another index maps
    /// both, concatenated, to an empty value.
    entries: Arc<Records>,
    unique: bool,
    code: OnceLock<Contained<IndexCode>>,
    /// Transactions that began later may read the index.
    usable_after: AtomicU64,
    dropped: AtomicBool,
}

impl std::fmt::Debug for Secondary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secondary({:?} in table {})", self.name, self.entries.id.0)
    }
}

/// The exclusive right to create or drop an index of a table; dropping this releases it.
#[derive(Debug)]
pub(crate) struct ChangingIndexes(Arc<Records>);

impl ChangingIndexes {
    /// Takes the right for `table`; `None` while it is taken.
    pub(crate) fn begin(table: &Arc<Records>) -> Option<Self> {
        // AcqRel, of which the Acquire pairs with the Release when the previous right is dropped.
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
    /// Creates an unattached index.
    pub(crate) fn new(name: &str, entries: Arc<Records>, unique: bool) -> Self {
        // The entries of an index belong to it for their life.
        _ = entries.secondaries.of_index.set(name.into());
        Self {
            name: name.into(),
            entries,
            unique,
            code: OnceLock::new(),
            usable_after: AtomicU64::new(UNUSABLE),
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

    /// The entry key of a record with the key `primary`, under the index key `part`.
    pub(crate) fn entry_key(&self, part: &[u8], primary: &[u8]) -> KeyBuffer {
        let mut entry = KeyBuffer::new();
        entry.extend_from_slice(part);
        if !self.unique {
            entry.extend_from_slice(primary);
        }
        entry
    }

    /// The entry value of a record with the key `primary`.
    pub(crate) fn entry_value<'k>(&self, primary: &'k [u8]) -> &'k [u8] {
        if self.unique { primary } else { &[] }
    }

    /// Attaches the key functions of the index; only the first attachment has an effect.
    pub(crate) fn attach(&self, code: IndexCode) {
        if self.unique {
            // Entries of a unique index have only the index key as their key.
            self.entries.set_show_key(code.show_key);
        }
        // A program attaches the same functions each time, or declares another version.
        _ = self.code.set(Contained::new(code));
    }

    /// The key functions of the index; `None` while it is not attached.
    pub(crate) fn code(&self) -> Option<&IndexCode> {
        self.code.get().map(|code| &**code)
    }

    /// Lets transactions read the index that begin after `lsn`.
    pub(crate) fn make_usable(&self, lsn: Lsn) {
        // Release pairs with the Acquire in `is_usable_at` and `is_built`.
        self.usable_after.store(lsn.0, Ordering::Release);
    }

    /// Returns whether every record that a transaction with this begin stamp sees has its entries.
    pub(crate) fn is_usable_at(&self, begin: Lsn) -> bool {
        // Acquire pairs with the Release in `make_usable`.
        begin.0 > self.usable_after.load(Ordering::Acquire)
    }

    /// Returns whether every committed record has its entries.
    pub(crate) fn is_built(&self) -> bool {
        // Acquire pairs with the Release in `make_usable`.
        self.usable_after.load(Ordering::Acquire) != UNUSABLE
    }

    /// Closes the index to all readers.
    pub(crate) fn mark_dropped(&self) {
        // SeqCst, so that a task which then finds the index not attached knows that no transaction
        // reads it.
        self.dropped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// The indexes of one table.
#[derive(Debug, Default)]
pub(super) struct Secondaries {
    /// Set if the table has any; the only field that a write to a table without indexes reads.
    any: AtomicBool,
    /// Set while an index is being created or dropped.
    changing: AtomicBool,
    list: RwLock<Arc<[Arc<Secondary>]>>,
    /// The name of the index, if the table holds the entries of one.
    of_index: OnceLock<Box<str>>,
}

impl Records {
    /// Returns whether the table has secondary indexes.
    ///
    /// A transaction that does not see an index that was just listed began before the next commit
    /// of the listing transaction. Otherwise its begin stamp would be read from the chain of
    /// additions to the log's tail after that commit's, and it would see everything before that.
    #[inline(always)]
    pub(crate) fn is_indexed(&self) -> bool {
        // Acquire pairs with the Release in `change_secondaries`; for later transactions, with the
        // addition of the commit LSN.
        self.secondaries.any.load(Ordering::Acquire)
    }

    /// The name of the index whose entries the table holds, if it does.
    pub(crate) fn of_index(&self) -> Option<&str> {
        self.secondaries.of_index.get().map(|name| &**name)
    }

    /// The table's secondary indexes.
    pub(crate) fn secondaries(&self) -> Arc<[Arc<Secondary>]> {
        self.secondaries.list.read().clone()
    }

    /// The secondary index of this name.
    pub(crate) fn secondary(&self, name: &str) -> Option<Arc<Secondary>> {
        self.secondaries.list.read().iter().find(|one| one.name() == name).cloned()
    }

    /// Lists an index with the table, unless one of its name is listed; returns the listed one.
    pub(crate) fn list_secondary(&self, new: Arc<Secondary>) -> Arc<Secondary> {
        self.change_secondaries(|list| {
            if let Some(there) = list.iter().find(|one| one.name() == new.name()) {
                return there.clone();
            }
            list.push(new.clone());
            new
        })
    }

    /// Removes an index from the table's list.
    pub(crate) fn unlist_secondary(&self, gone: &Arc<Secondary>) {
        self.change_secondaries(|list| list.retain(|one| !Arc::ptr_eq(one, gone)));
    }

    fn change_secondaries<T>(&self, change: impl FnOnce(&mut Vec<Arc<Secondary>>) -> T) -> T {
        let mut list = self.secondaries.list.write();
        let mut changed = list.to_vec();
        let result = change(&mut changed);
        let any = !changed.is_empty();
        *list = changed.into();
        // Release pairs with the Acquire in `is_indexed`: a thread that sees it sees the list.
        self.secondaries.any.store(any, Ordering::Release);
        result
    }
}
