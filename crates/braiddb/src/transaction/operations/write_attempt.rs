//! An attempt at a write that does not suspend: what it sees, and the reasons why it must wait.

use std::ptr::NonNull;

use smallvec::{SmallVec, smallvec};

use super::large::{LargeRead, ReadMoment};
use crate::page::{Interrupted, LargeRef, PagedTable, ValueBytes, WouldSuspend};
use crate::record::{ColdVersion, MemoryRecords};
use crate::rid::Rid;
use crate::transaction::context::error::OperationError;
use crate::transaction::sets::read_set::ReadPoint;

/// A transaction's view of a record, valid while an operation guard is held.
#[derive(Clone, Debug)]
pub(in crate::transaction) struct VisibleRecord<'o> {
    pub(in crate::transaction) value: Option<SeenBytes<'o>>,
    /// The record, if it is in memory.
    pub(in crate::transaction) point: Option<ReadPoint>,
    /// Identifies a value by its location: in memory, in the log, or in pieces. Copies are compared
    /// by content.
    pub(super) location: (Option<NonNull<u8>>, Option<ColdVersion>, Option<LargeRef>),
}

/// A value that was read.
#[derive(Clone, Debug)]
pub(in crate::transaction) enum SeenBytes<'o> {
    Borrowed(&'o [u8]),
    /// A copy from a page.
    Copied(ValueBytes),
}

impl<'o> VisibleRecord<'o> {
    /// A view of a record on a page.
    pub(in crate::transaction) fn copied(value: Option<ValueBytes>) -> Self {
        Self { value: value.map(SeenBytes::Copied), point: None, location: (None, None, None) }
    }

    /// A view of a record whose value was assembled from pieces.
    pub(in crate::transaction) fn large(value: &'o [u8], large: LargeRef) -> Self {
        let location = (None, None, Some(large));
        Self { value: Some(SeenBytes::Borrowed(value)), point: None, location }
    }

    pub(in crate::transaction) fn bytes(&self) -> Option<&[u8]> {
        match self.value.as_ref()? {
            SeenBytes::Borrowed(value) => Some(value),
            SeenBytes::Copied(value) => Some(value),
        }
    }

    /// Returns whether the record is unchanged since `before` was read under the same guard.
    pub(super) fn is_same_as(&self, before: &Self) -> bool {
        match (&self.value, &before.value) {
            (Some(SeenBytes::Copied(now)), Some(SeenBytes::Copied(before))) => now == before,
            (now, before_value) => {
                now.is_some() == before_value.is_some() && self.location == before.location
            }
        }
    }
}

/// Values that were read from the log, and one that was assembled from pieces.
#[derive(Debug, Default)]
pub(super) struct FetchedValues {
    pub(in crate::transaction) cold: Vec<(ColdVersion, Vec<u8>)>,
    pub(in crate::transaction) large: Option<(LargeRef, LargeRead)>,
}

impl FetchedValues {
    /// A value that was assembled from pieces.
    pub(in crate::transaction) fn large(&self, wanted: LargeRef) -> Option<&[u8]> {
        let (large, read) = self.large.as_ref()?;
        (*large == wanted).then_some(&read.value)
    }
}

/// Reasons why a write must wait.
pub(super) enum WriteWait<'t> {
    /// A value must be read from the log.
    Fetch(&'t MemoryRecords, Rid, ColdVersion),
    /// The pieces of a value must be loaded.
    Large(&'t PagedTable, LargeRef, ReadMoment),
    /// Another worker is about to decide a commit.
    Undecided,
    /// The transaction itself wrote the record in the meantime, or its snapshot was extended.
    Again,
    /// Pages must be loaded, or frames freed.
    Interrupted(SmallVec<[Interrupted; 2]>),
}

pub(super) type WriteAttempt<'t, T> = Result<Result<T, OperationError>, WriteWait<'t>>;

/// Converts the reason why an operation was not done into its result.
pub(super) fn would_suspend<'t, T>(why: WouldSuspend) -> WriteAttempt<'t, T> {
    match why {
        WouldSuspend::Interrupted(why) => Err(WriteWait::Interrupted(smallvec![why])),
        WouldSuspend::Failed(error) => Ok(Err(error.into())),
    }
}

/// Checks that all paths were prefetched; missing pages are waited for together.
pub(super) fn all_prefetched<'t, T>(
    outcomes: impl IntoIterator<Item = Result<(), WouldSuspend>>,
) -> Result<(), WriteAttempt<'t, T>> {
    let mut absent = SmallVec::new();
    for why in outcomes.into_iter().filter_map(Result::err) {
        match why {
            WouldSuspend::Interrupted(why) => absent.push(why),
            WouldSuspend::Failed(error) => return Err(Ok(Err(error.into()))),
        }
    }
    if absent.is_empty() { Ok(()) } else { Err(Err(WriteWait::Interrupted(absent))) }
}
