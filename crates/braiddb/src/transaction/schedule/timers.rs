//! Timers: times at which a worker's tasks must resume.
//!
//! They are checked at each turn of the worker, and a sleeping worker wakes for the earliest.
//! Invariant: a timer is in the map until it has fired or is dropped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

use crate::sched::{self, Waiter};

/// The timers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Ordered by time, and by number for equal times.
    waiting: RefCell<BTreeMap<(Instant, u64), Waiter>>,
    numbers: Cell<u64>,
}

/// A timer that was set; dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Timer<'t> {
    timers: &'t Timers,
    key: (Instant, u64),
}

impl Timers {
    /// Resumes `waiter` at this time or slightly later, unless the result is dropped before.
    pub(crate) fn set(&self, at: Instant, waiter: Waiter) -> Timer<'_> {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        self.waiting.borrow_mut().insert((at, number), waiter);
        Timer { timers: self, key: (at, number) }
    }

    /// The earliest time for which a task waits.
    pub(in crate::transaction) fn earliest(&self) -> Option<Instant> {
        self.waiting.borrow().first_key_value().map(|(&(at, _), _)| at)
    }

    /// Resumes waiters whose time has passed at `now`.
    pub(in crate::transaction) fn release(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(entry) = waiting.first_entry()
            && entry.key().0 <= now
        {
            sched::resume(entry.remove());
        }
    }
}

impl Timer<'_> {
    /// Returns whether the timer has fired.
    pub(crate) fn is_over(&self) -> bool {
        !self.timers.waiting.borrow().contains_key(&self.key)
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        // Removed before it is dropped, because a waker inside a task may be user code.
        let waiter = self.timers.waiting.borrow_mut().remove(&self.key);
        drop(waiter);
    }
}
