//! Restriction of writes to one caller, such as the replication of the database.

use std::sync::Arc;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Name of the only caller whose transactions may write; none if all may.
#[derive(Debug, Default)]
pub(crate) struct WriteRestriction {
    is_set: AtomicBool,
    is_changing: AtomicBool,
    writer: RwLock<Option<Arc<str>>>,
}

/// The right to change the restriction, which one caller has at a time.
#[derive(Debug)]
pub(crate) struct RestrictionChange<'r>(&'r WriteRestriction);

impl Drop for RestrictionChange<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `begin_change`: the next change sees this one.
        self.0.is_changing.store(false, Ordering::Release);
    }
}

impl WriteRestriction {
    /// Returns the right to change the restriction, unless another caller has it.
    pub(crate) fn begin_change(&self) -> Option<RestrictionChange<'_>> {
        // Acquire pairs with the Release of the previous change.
        (!self.is_changing.swap(true, Ordering::Acquire)).then_some(RestrictionChange(self))
    }

    /// Sets or removes the restriction. A transaction that does not see this yet began before the
    /// next commit of the caller; [`Records::is_indexed`](crate::record::Records) gives the reason.
    pub(crate) fn set(&self, writer: Option<Arc<str>>) {
        let mut stored = self.writer.write();
        // Release pairs with the Acquire in `is_set`.
        self.is_set.store(writer.is_some(), Ordering::Release);
        *stored = writer;
    }

    /// Returns whether only one caller may write.
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        // Acquire pairs with the Release in `set`.
        self.is_set.load(Ordering::Acquire)
    }

    /// Returns the name of the only caller that may write, if one is set.
    pub(crate) fn writer(&self) -> Option<Arc<str>> {
        self.writer.read().clone()
    }
}
