//! Records the changes of committed transactions, for comparison with the final contents.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

/// The sum of all changes, shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book<S>(Arc<Mutex<S>>);

impl<S: AddAssign + Copy + Default + PartialEq> Book<S> {
    /// Adds the changes of one transaction.
    pub(crate) fn add(&self, change: S) {
        if change != S::default() {
            *self.0.lock().expect("no thread panics while it is locked") += change;
        }
    }

    /// Returns the sum of all changes.
    pub(crate) fn total(&self) -> S {
        *self.0.lock().expect("no thread panics while it is locked")
    }
}
