//! Places of guests that write: each has the state that such a guest uses, and that no thread owns.
//!
//! Invariants:
//!
//! - One thread at a time uses the state of a place, under its lock, and never waits for the lock.
//! - No garbage is forgotten. A guest that has used a place raises `is_used` afterwards, unless it is
//!   raised, and then rings a worker. A worker that sees it raised lowers it within a bounded time,
//!   and then visits every place. If it finds a place locked, it raises it again, and visits again.
//! - After [`GuestPlaces::close`] no place is used.

#[cfg(all(test, loom))]
mod model;

use crossbeam_utils::CachePadded;

use super::durability_level::Durability;
use crate::log::MAX_GUEST_FILLERS;
use crate::planted::{Bug, is_planted};
use crate::sync::ModelMutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::version::TransactionName;

/// Maximum number of guests that write at the same time, in a database with this number of workers.
/// Their contexts follow those of the workers. None writes if its result had to wait for the log.
pub(in crate::transaction) fn max_guest_writers(
    workers: usize,
    durability: Durability,
    is_read_only: bool,
) -> usize {
    match durability {
        Durability::Relaxed | Durability::Volatile if !is_read_only => {
            MAX_GUEST_FILLERS.min(TransactionName::MAX_WORKERS - workers)
        }
        _ => 0,
    }
}

/// Returns the number of rows of contexts: those of workers, and those of guests that write.
pub(super) fn status_rows(workers: usize, durability: Durability, is_read_only: bool) -> usize {
    workers + max_guest_writers(workers, durability, is_read_only)
}

/// The states of the places; `None` in a place that is closed.
#[derive(Debug)]
pub(in crate::transaction) struct GuestPlaces<T> {
    places: Box<[CachePadded<ModelMutex<Option<T>>>]>,
    /// True if a place may have been used since a worker last visited it.
    is_used: CachePadded<AtomicBool>,
}

/// Result of a use of a place.
#[derive(Debug)]
pub(crate) struct PlaceUse<R> {
    pub(crate) result: R,
    /// True if the caller must make a worker take a turn.
    pub(crate) must_ring: bool,
}

impl<T> GuestPlaces<T> {
    pub(in crate::transaction) fn new(states: impl Iterator<Item = T>) -> Self {
        let places = states.map(|state| CachePadded::new(ModelMutex::new(Some(state))));
        Self { places: places.collect(), is_used: CachePadded::new(AtomicBool::new(false)) }
    }

    /// Returns the number of places.
    pub(in crate::transaction) fn len(&self) -> usize {
        self.places.len()
    }

    /// Calls `work` with the state of a place, which may be closed by taking the state. `None` if no
    /// place has this number, or if it is locked or closed.
    pub(in crate::transaction) fn enter<R>(
        &self,
        place: usize,
        work: impl FnOnce(&mut Option<T>) -> R,
    ) -> Option<PlaceUse<R>> {
        let mut state = self.places.get(place)?.try_lock().filter(|state| state.is_some())?;
        let result = work(&mut state);
        drop(state);
        // Relaxed: if a worker has visited this place before its use, the lock orders the lowering
        // before this load. AcqRel pairs with itself in `visit`.
        let must_ring =
            !self.is_used.load(Ordering::Relaxed) && !self.is_used.swap(true, Ordering::AcqRel);
        Some(PlaceUse { result, must_ring })
    }

    /// Returns whether a worker must visit the places within a bounded time.
    #[inline(always)]
    pub(in crate::transaction) fn are_used(&self) -> bool {
        // Relaxed: a hint; the worker that is rung sees it.
        self.is_used.load(Ordering::Relaxed)
    }

    /// Calls `adopt` with the state of each place. A place that is in use is left for later.
    pub(in crate::transaction) fn visit(&self, mut adopt: impl FnMut(&T)) {
        // AcqRel pairs with itself in `enter`.
        let lower = || self.is_used.swap(false, Ordering::AcqRel);
        let is_late = is_planted(Bug::GuestPlacesVisitedEarly);
        if !is_late {
            lower();
        }
        for place in &self.places {
            match place.try_lock() {
                Some(state) => state.iter().for_each(&mut adopt),
                // AcqRel as above.
                None => _ = self.is_used.swap(true, Ordering::AcqRel),
            }
        }
        if is_late {
            lower();
        }
    }

    /// Waits until no place is used, and closes all.
    pub(in crate::transaction) fn close(&self) {
        self.places.iter().for_each(|place| drop(place.lock().take()));
    }
}
