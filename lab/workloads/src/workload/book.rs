//! What committed transactions changed, to be held against what is there in the end.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

/// The sum of all changes. Handles share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book<S>(Arc<Mutex<S>>);

impl<S: AddAssign + Copy + Default + PartialEq> Book<S> {
    /// Adds what one transaction changed.
    pub(crate) fn add(&self, change: S) {
        if change != S::default() {
            *self.0.lock().expect("nobody panics while it is locked") += change;
        }
    }

    /// What all changed.
    pub(crate) fn total(&self) -> S {
        *self.0.lock().expect("nobody panics while it is locked")
    }
}
