//! Starvation guard: a priority token for transactions that repeatedly fail because of others.
//!
//! A long writing transaction may fail certification repeatedly, because short ones change what it
//! reads. After a number of failures it takes the priority token. Until it ends, every other
//! transaction that would commit a write is aborted and retried later. So the holder makes
//! progress, at the cost of the others. Only one transaction holds the token.
//!
//! Transactions that had passed the check before the token was taken may make the holder's next
//! attempt fail too. Later ones may only if they were aborted so often that they are exempted. This
//! is needed because the holder may be waiting for one of them, such as a transaction that it runs
//! within its own.

use std::time::Duration;

use super::context::ActiveTransaction;
use super::engine::Engine;
use super::worker::WorkerTransactions;
use crate::sched::{self, WaitCause};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::clock;

/// Failed certifications after which a transaction takes the priority token.
pub(crate) const MIN_FAILURES: u32 = if cfg!(braid_simulation) { 2 } else { 8 };

/// Maximum number of times that an aborted transaction polls the token before it retries.
const MAX_POLLS: u32 = 10_000;
/// Maximum time for which it polls: on a busy machine each poll may cost a time slice of another
/// thread. Simulations bound the polls only, because time costs steps.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// Number of consecutive aborts after which a transaction is exempted.
const MAX_CONFLICTED_ATTEMPTS: u32 = 8;
/// Replaces a token: the transaction passes, whichever one holds the token.
const NO_LIMIT: u64 = u64::MAX;

/// The priority token; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct StarvationGuard {
    /// The holder's token number, or 0.
    holder: AtomicU64,
    next: AtomicU64,
}

/// The priority token, held until this is dropped or its transaction has committed.
#[derive(Debug)]
pub(crate) struct PriorityToken<'e> {
    priority_token: &'e StarvationGuard,
    token: u64,
}

impl StarvationGuard {
    /// Takes the token, unless it is held.
    fn take(&self) -> Option<PriorityToken<'_>> {
        // Relaxed: the number only has to be unique.
        let token = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        // SeqCst: a transaction that adds to the log's tail after that was read for the holder's
        // next begin stamp sees the token as taken (see `is_taken_by_other`). Relaxed on failure:
        // no decision depends on it.
        let taken = self.holder.compare_exchange(0, token, Ordering::SeqCst, Ordering::Relaxed);
        taken.ok().map(|_| PriorityToken { priority_token: self, token })
    }

    /// Returns whether another transaction than `own` holds the token; called after an LSN was
    /// drawn.
    pub(super) fn is_taken_by_other(&self, own: u64) -> bool {
        let holder = self.holder.load(Ordering::SeqCst);
        holder != 0 && holder != own && own != NO_LIMIT
    }

    /// Releases the token, if `token` still holds it.
    pub(super) fn release(&self, token: u64) {
        // Relaxed: the token guards no data; aborted transactions check again.
        _ = self.holder.compare_exchange(token, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl PriorityToken<'_> {
    /// Lets a transaction pass; it releases the token when it has committed.
    pub(crate) fn exempt(&self, transaction: &ActiveTransaction) {
        transaction.set_priority_token(self.token);
    }
}

impl Drop for PriorityToken<'_> {
    fn drop(&mut self) {
        self.priority_token.release(self.token);
    }
}

/// Number of consecutive aborts of a transaction because of the token.
#[derive(Debug, Default)]
pub(crate) struct YieldedToPriority(u32);

impl YieldedToPriority {
    /// Exempts the next attempt if the previous ones were aborted too often.
    pub(crate) fn exempt_after_aborts(&mut self, transaction: &ActiveTransaction) {
        if self.0 >= MAX_CONFLICTED_ATTEMPTS {
            self.0 = 0;
            transaction.set_priority_token(NO_LIMIT);
        }
    }
}

impl Engine {
    /// Takes the token for a transaction whose certification failed this often, unless it is held.
    pub(crate) fn take_priority_token(&self, failures: u32) -> Option<PriorityToken<'_>> {
        if failures < MIN_FAILURES { None } else { self.starvation_guard.take() }
    }
}

impl WorkerTransactions {
    /// Waits a limited time until the token is free, after it aborted an attempt.
    pub(crate) async fn wait_for_priority_token(&self, yielded: &mut YieldedToPriority) {
        yielded.0 += 1;
        let deadline = (!cfg!(braid_simulation)).then(|| clock::now() + MAX_WAIT);
        for _ in 0..MAX_POLLS {
            let is_free = !self.engine().starvation_guard.is_taken_by_other(0);
            if is_free || deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return;
            }
            sched::yield_now(WaitCause::Undecided).await;
        }
    }
}
