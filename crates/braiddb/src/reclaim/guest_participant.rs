//! State of guests that write: a guest then counts operations and retires blocks as a participant
//! does.
//!
//! Invariants: one thread at a time uses such a state, while it is a guest of the same domain. The
//! place of the guest publishes the epoch of all operations that are counted, so the state needs no
//! slot. The retired blocks have no tag. A participant adopts them after the guest has ended, and
//! tags them with an epoch that it reads later, so the proof at the head of `reclaim/mod.rs` applies.

use std::cell::Cell;
use std::sync::Arc;

use super::guests::GuestOperation;
use super::{CURRENT, Domain, ParticipantState, local};
use crate::sync::thread;

/// The state of one guest at a time.
pub(crate) struct GuestParticipant(Box<ParticipantState>);

/// Makes this thread use the state of a guest until it is dropped.
pub(crate) struct EnteredParticipant<'a> {
    state: &'a ParticipantState,
    /// Publishes the epoch of the state.
    _operation: &'a GuestOperation<'a>,
}

impl GuestParticipant {
    pub(crate) fn new(domain: Arc<Domain>) -> Self {
        Self(Box::new(ParticipantState::new(domain)))
    }

    /// Makes this thread, which is a guest, count operations and retire blocks in this state.
    pub(crate) fn enter<'a>(&'a self, operation: &'a GuestOperation<'a>) -> EnteredParticipant<'a> {
        assert!(CURRENT.with(Cell::get).is_null(), "a participant is no guest");
        let state = &*self.0;
        state.epoch.set(operation.epoch(&state.domain));
        CURRENT.with(|current| current.set(state));
        EnteredParticipant { state, _operation: operation }
    }

    /// Passes the retired blocks to the participant of this thread.
    pub(crate) fn pass_garbage(&self) {
        local(|participant| participant.fresh.borrow_mut().append(&mut self.0.fresh.borrow_mut()));
    }
}

impl Drop for EnteredParticipant<'_> {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(std::ptr::null()));
        assert!(self.state.is_quiet() || thread::panicking(), "operations end before their guest");
    }
}

impl Drop for GuestParticipant {
    fn drop(&mut self) {
        self.0.leave_garbage();
    }
}
