//! View of a value that a transaction found, until it is decoded.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

use super::large::LargeRead;
use crate::log::ColdRecord;
use crate::memory::Buffer;
use crate::reclaim::OperationGuard;
use crate::record::{Copies, MemoryRecords};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::schedule::ordered_admission::AdmissionPermit;
use crate::types::{DecodeError, Value};

/// A value that a transaction found. It should be decoded immediately: it may hold memory that
/// other tasks wait for.
#[derive(Debug)]
pub(crate) struct FoundValue<'tx> {
    transaction: &'tx ActiveTransaction,
    value: NonNull<[u8]>,
    backing: ValueBacking,
}

/// The owner that keeps the value allocated.
#[derive(Debug)]
enum ValueBacking {
    /// The transaction: the version stays allocated until it ends. A version that it wrote
    /// does not.
    Lasting,
    /// The operation that found it.
    Operation { _guard: OperationGuard },
    /// This view. Boxed, because views of resident values are returned through several layers of
    /// futures.
    Record(Box<RecordBacking>),
    /// This view.
    Large(Box<LargeBacking>),
}

/// A record that was read from the log, until the transaction's copies take it.
#[derive(Debug)]
struct RecordBacking {
    record: RefCell<Option<ColdRecord>>,
    _permit: AdmissionPermit,
}

/// A large value that was read, until the transaction's copies take it.
#[derive(Debug)]
struct LargeBacking {
    value: RefCell<Option<Buffer>>,
    _permit: Option<Rc<AdmissionPermit>>,
}

/// A resident value that a transaction found without waiting.
#[derive(Debug)]
pub(crate) struct ResidentValue<'tx> {
    transaction: &'tx ActiveTransaction,
    value: NonNull<[u8]>,
    /// The operation that found it; `None` if the version stays allocated until the transaction
    /// ends.
    guard: Option<OperationGuard>,
}

impl<'tx> ResidentValue<'tx> {
    /// # Safety
    /// The value was found under `guard`, in a version of `table` that the transaction sees, and
    /// that it wrote itself if `is_own`.
    #[inline(always)]
    pub(in crate::transaction) unsafe fn new(
        transaction: &'tx ActiveTransaction,
        table: &MemoryRecords,
        (value, is_own): (NonNull<[u8]>, bool),
        guard: OperationGuard,
    ) -> Self {
        let guard = if table.keeps_versions() && !is_own { None } else { Some(guard) };
        Self { transaction, value, guard }
    }

    /// The encoded value.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and unchanged as long as the guard, or the transaction, which is
        // borrowed for `'tx`.
        unsafe { self.value.as_ref() }
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid encoding.
    #[inline(always)]
    pub(crate) fn decode<V: Value + ?Sized>(&self) -> Result<V::Ref<'tx>, DecodeError> {
        let bytes = self.bytes();
        V::decode_kept(bytes, || {
            let memory = &self.transaction.engine().memory;
            match self.guard {
                // SAFETY: allocated and unchanged as long as the transaction, which is borrowed
                // for `'tx`.
                None => unsafe { self.value.as_ref() },
                Some(_) => self.transaction.copies().keep(memory, bytes),
            }
        })
    }
}

impl<'tx> FoundValue<'tx> {
    /// Creates a view of a resident value.
    ///
    /// # Safety
    /// The value was found under `guard`, in a version of `table` that the transaction sees, and
    /// that it wrote itself if `is_own`.
    pub(super) unsafe fn in_memory(
        transaction: &'tx ActiveTransaction,
        table: &MemoryRecords,
        (value, is_own): (NonNull<[u8]>, bool),
        guard: OperationGuard,
    ) -> Self {
        let backing = match table.keeps_versions() && !is_own {
            true => ValueBacking::Lasting,
            false => ValueBacking::Operation { _guard: guard },
        };
        Self { transaction, value, backing }
    }

    /// Creates a view of a value that stays allocated as long as the transaction.
    ///
    /// # Safety
    /// The value stays allocated as long as the transaction.
    pub(in crate::transaction) unsafe fn lasting(
        transaction: &'tx ActiveTransaction,
        value: NonNull<[u8]>,
    ) -> Self {
        Self { transaction, value, backing: ValueBacking::Lasting }
    }

    /// Creates a view of an empty value.
    pub(super) fn empty(transaction: &'tx ActiveTransaction) -> Self {
        Self { transaction, value: NonNull::from(&[]), backing: ValueBacking::Lasting }
    }

    /// Creates a view of a value that was read from the log.
    pub(super) fn in_log(
        transaction: &'tx ActiveTransaction,
        record: ColdRecord,
        permit: AdmissionPermit,
    ) -> Self {
        let value = NonNull::from(record.view().value);
        let record = RefCell::new(Some(record));
        let backing = ValueBacking::Record(Box::new(RecordBacking { record, _permit: permit }));
        Self { transaction, value, backing }
    }

    /// Creates a view of a large value.
    pub(in crate::transaction) fn large(
        transaction: &'tx ActiveTransaction,
        read: LargeRead,
    ) -> Self {
        let LargeRead { value: bytes, permit } = read;
        let value = NonNull::from(&*bytes);
        let backing = LargeBacking { value: RefCell::new(Some(bytes)), _permit: permit };
        Self { transaction, value, backing: ValueBacking::Large(Box::new(backing)) }
    }

    /// Skips bytes at the start of the value that are not the user's.
    pub(super) fn pass_bytes(&mut self, count: usize) {
        self.value = NonNull::from(&self.bytes()[count..]);
    }

    /// The value's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and unchanged while the backing lasts; a record's value is in the
        // transaction's copies afterwards (see `keep`).
        unsafe { self.value.as_ref() }
    }

    /// The value's bytes, for as long as the transaction is borrowed.
    pub(crate) fn keep(&self) -> &'tx [u8] {
        let (copies, memory) = (self.transaction.copies(), &self.transaction.engine().memory);
        let record = match &self.backing {
            // SAFETY: the transaction is borrowed for `'tx`, so it is active, and sees the version,
            // or has the value in its copies.
            ValueBacking::Lasting => return unsafe { self.value.as_ref() },
            ValueBacking::Record(backing) if Copies::adopts(self.value.len()) => {
                backing.record.take()
            }
            ValueBacking::Large(backing) => {
                if let Some(value) = backing.value.take() {
                    // The buffer does not move: `bytes` stays valid.
                    let kept = copies.keep_buffer(memory, value);
                    return &kept[kept.len() - self.value.len()..];
                }
                None
            }
            ValueBacking::Operation { .. } | ValueBacking::Record(_) => None,
        };
        match record {
            // The value does not move: nothing is copied, and `bytes` stays valid.
            Some(record) => {
                let kept = copies.keep_record(memory, record);
                &kept[kept.len() - self.value.len()..]
            }
            None => copies.keep(memory, self.bytes()),
        }
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid encoding.
    pub(crate) fn decode<V: Value + ?Sized>(&self) -> Result<V::Ref<'tx>, DecodeError> {
        V::decode_kept(self.bytes(), || self.keep())
    }
}
