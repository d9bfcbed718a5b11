//! Waits of transactions between two attempts: random back-off after conflicts, and the priority
//! token after repeated failures (`starvation_guard.rs`).

use std::time::Duration;

use super::active_transaction::ActiveTransaction;
use super::engine::Engine;
use super::starvation_guard::{NO_LIMIT, PriorityToken};
use super::worker::WorkerTransactions;
use crate::sched::{self, WaitCause};
use crate::sync::{self, clock};

/// Failed certifications after which a transaction takes the priority token.
pub(crate) const MIN_FAILURES: u32 = if cfg!(braid_simulation) { 2 } else { 8 };
/// Maximum number of times that an aborted transaction polls the token before it retries.
const MAX_POLLS: u32 = 10_000;
/// Maximum time for which it polls: on a busy machine each poll may cost a time slice of another
/// thread. Simulations bound the polls only, because time costs steps.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// Number of consecutive aborts after which a transaction is exempted.
const MAX_CONFLICTED_ATTEMPTS: u32 = 8;

impl PriorityToken<'_> {
    /// Lets a transaction pass; it releases the token when it has committed.
    pub(crate) fn exempt(&self, transaction: &ActiveTransaction) {
        transaction.set_priority_token(self.token);
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
    /// Waits for a random time whose range doubles with each attempt: first for some rounds of the
    /// worker, then for up to a quarter of a second. In all, a transaction backs off for some seconds
    /// before it fails, without using processor time.
    pub(crate) async fn back_off(&self, attempt: u32) {
        const MAX_ROUNDS: u32 = 1 << 12;
        const MAX_TIME: Duration = Duration::from_millis(256);
        let max_rounds = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        // In a simulation, behaviour must not depend on real time, except on the time of a controlled
        // schedule.
        let knows_no_time = cfg!(braid_simulation) && !sync::takes_part();
        if max_rounds <= MAX_ROUNDS || knows_no_time {
            for _ in 0..fastrand::u32(0..max_rounds.min(MAX_ROUNDS)) {
                sched::yield_now(WaitCause::Undecided).await;
            }
            return;
        }
        let most = Duration::from_millis(u64::from(max_rounds / MAX_ROUNDS)).min(MAX_TIME);
        let until = clock::now() + most.mul_f64(fastrand::f64());
        let timer = self.timers.set(until, sched::current_waiter().await);
        while !timer.is_over() {
            sched::park(WaitCause::BackOff).await;
        }
    }

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
