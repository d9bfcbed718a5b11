//! Guests: threads that participate in a domain for one short operation each, such as the caller of
//! a read.
//!
//! Callers come and go in any number, so none registers. A guest takes one of a bounded number of
//! places with a compare-and-swap and frees it with a store. Between operations it has no place, so
//! it delays nothing.
//!
//! Invariant: the word of a place is [`NO_BOUND`] while the place is free. Otherwise only the guest
//! in the place writes it. A guest publishes its epoch and passes a fence before it loads a link.
//! So the proof at the head of `reclaim/mod.rs` applies to it as to a participant that wakes.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crossbeam_utils::CachePadded;

use super::{CURRENT, Domain, OperationGuard};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use crate::sync::takes_part;

/// Maximum number of guests at the same time.
pub(crate) const MAX_GUESTS: usize = if cfg!(loom) { 2 } else { 64 };

/// The word of a place without a guest: later than every epoch and LSN.
const NO_BOUND: u64 = u64::MAX;

#[cfg(not(loom))]
thread_local! {
    /// The place that this thread took last, in any database. Threads that meet in a place move
    /// apart, so each soon has a cache line that no other thread writes.
    static LAST_PLACE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One word per place of a guest: a lower bound of what the guest uses. The words of places that
/// were never taken are not read.
#[derive(Debug)]
pub(crate) struct GuestBounds {
    words: Box<[CachePadded<AtomicU64>]>,
    /// The number of the first place that was never taken.
    first_unused: CachePadded<AtomicU64>,
}

impl GuestBounds {
    pub(crate) fn new() -> Self {
        let free = || CachePadded::new(AtomicU64::new(NO_BOUND));
        let words = (0..MAX_GUESTS).map(|_| free()).collect();
        Self { words, first_unused: CachePadded::default() }
    }

    /// The smallest bound, or `u64::MAX`. The caller has passed a `SeqCst` fence. If this misses a
    /// guest, then all loads of that guest after its own fence see the caller's earlier stores.
    pub(crate) fn oldest(&self) -> u64 {
        // Relaxed, paired with the loads and stores of `note_used`, all ordered by the two fences.
        let used = self.first_unused.load(Ordering::Relaxed) as usize;
        // Acquire pairs with the Release in `withdraw`: the guest's operation has ended.
        let bounds = self.words[..used].iter().map(|word| word.load(Ordering::Acquire));
        bounds.min().unwrap_or(NO_BOUND)
    }

    /// Makes `oldest` read the word of a place.
    fn note_used(&self, place: usize) {
        // Relaxed: the fence of the guest follows, with its partner before `oldest`.
        if self.first_unused.load(Ordering::Relaxed) <= place as u64 {
            self.first_unused.fetch_max(place as u64 + 1, Ordering::Relaxed);
        }
    }

    /// Takes one of the first `places` and publishes `bound` in it; `None` if all are taken. The
    /// caller must pass a `SeqCst` fence before it relies on the bound.
    fn take(&self, bound: u64, places: usize) -> Option<usize> {
        let first = last_place();
        let place = (0..places).map(|step| (first + step) % places).find(|&place| {
            let word = &self.words[place];
            // Relaxed: a hint. The exchange has Acquire, paired with the Release in `withdraw`: this
            // guest sees what the last one in the place did. Relaxed on failure: the next place is
            // tried.
            word.load(Ordering::Relaxed) == NO_BOUND
                && word
                    .compare_exchange(NO_BOUND, bound, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        set_last_place(place);
        self.note_used(place);
        Some(place)
    }

    /// Publishes a bound in a place that the caller has taken elsewhere. The caller must pass a
    /// `SeqCst` fence before it relies on the bound.
    pub(crate) fn publish(&self, place: usize, bound: u64) {
        self.note_used(place);
        // Relaxed: the fence of the guest follows, with its partner before `oldest`.
        self.words[place].store(bound, Ordering::Relaxed);
    }

    /// Ends the use of a place.
    pub(crate) fn withdraw(&self, place: usize) {
        // Release pairs with the Acquire in `oldest` and in `take`.
        self.words[place].store(NO_BOUND, Ordering::Release);
    }
}

fn last_place() -> usize {
    #[cfg(not(loom))]
    if !takes_part() {
        return LAST_PLACE.get();
    }
    // The assignment of system threads to the threads of a schedule is random.
    0
}

fn set_last_place(place: usize) {
    #[cfg(not(loom))]
    LAST_PLACE.set(place);
    _ = place;
}

/// The operation of a guest: everything it finds linked stays allocated until this is dropped.
#[derive(Debug)]
pub(crate) struct GuestOperation<'d> {
    domain: &'d Domain,
    place: usize,
    /// Never dropped: the destructor ends an operation of a participant.
    operation: ManuallyDrop<OperationGuard>,
}

impl Domain {
    /// Begins an operation of this thread as a guest in one of the first `places`, once `announce`
    /// was called with the number of its place, and then a `SeqCst` fence was passed. `None` if the
    /// thread is a participant of some domain, or if each of these places is taken.
    pub(crate) fn enter_as_guest(
        &self,
        places: usize,
        announce: impl FnOnce(usize),
    ) -> Option<GuestOperation<'_>> {
        if !CURRENT.with(|current| current.get()).is_null() {
            return None;
        }
        let epoch = self.epoch.load(Ordering::SeqCst);
        let place = self.guests.take(epoch, places)?;
        let operation = ManuallyDrop::new(OperationGuard::of_epoch(epoch));
        let operation = GuestOperation { domain: self, place, operation };
        announce(place);
        // The operation sees what was unlinked before the epoch was reached, or before an `oldest`
        // that missed it.
        fence(Ordering::SeqCst);
        Some(operation)
    }
}

impl GuestOperation<'_> {
    /// Returns the epoch in which it began, which its place publishes. It belongs to this domain.
    pub(super) fn epoch(&self, domain: &Domain) -> u64 {
        assert!(std::ptr::eq(domain, self.domain), "a guest of the same domain");
        self.operation.epoch
    }

    /// The number of its place.
    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

impl Deref for GuestOperation<'_> {
    type Target = OperationGuard;

    fn deref(&self) -> &OperationGuard {
        &self.operation
    }
}

impl Drop for GuestOperation<'_> {
    fn drop(&mut self) {
        self.domain.guests.withdraw(self.place);
    }
}
