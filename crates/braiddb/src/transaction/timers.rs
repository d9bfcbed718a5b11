//! Moments at which a worker's tasks are to go on, whatever else happens or does not.
//!
//! They are looked at when the worker has a turn, and a worker that sleeps gets up for the earliest.
//! Invariant: a timer is in the map until its moment is over, or it is dropped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

use crate::sched::{self, Waiter};

/// The timers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// By moment, and by number where several have the same.
    waiting: RefCell<BTreeMap<(Instant, u64), Waiter>>,
    numbers: Cell<u64>,
}

/// A timer that was set.
#[derive(Debug)]
pub(crate) struct Timer<'t> {
    timers: &'t Timers,
    key: (Instant, u64),
}

impl Timers {
    /// Resumes `waiter` at a moment, or a little later, unless the result is dropped before.
    pub(crate) fn set(&self, at: Instant, waiter: Waiter) -> Timer<'_> {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        self.waiting.borrow_mut().insert((at, number), waiter);
        Timer { timers: self, key: (at, number) }
    }

    /// The earliest moment for which somebody waits.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.waiting.borrow().first_key_value().map(|(&(at, _), _)| at)
    }

    /// Resumes those whose moment is over at `now`.
    pub(super) fn release(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(entry) = waiting.first_entry()
            && entry.key().0 <= now
        {
            sched::resume(entry.remove());
        }
    }
}

impl Timer<'_> {
    /// Whether its moment is over.
    pub(crate) fn is_over(&self) -> bool {
        !self.timers.waiting.borrow().contains_key(&self.key)
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        // Taken out before it is dropped: the waker of a part of a task is a user's code.
        let waiter = self.timers.waiting.borrow_mut().remove(&self.key);
        drop(waiter);
    }
}
