//! A turnstile for transactions that others keep from committing.
//!
//! A long transaction that writes may fail its certification again and again, because short ones change
//! what it reads in the meantime. After a number of failures it takes the turnstile: until it is over,
//! whoever else would commit a write is turned away, and tries again later. So it gets on, at the cost of
//! others, and only one at a time does.
//!
//! Those who had passed before it was taken may make its next attempt fail too. Later ones may only if they
//! were turned away so often that they pass all the same: the holder may be waiting for one of them, as for
//! a transaction that it runs within its own.

use super::context::Transaction;
use super::engine::Engine;
use super::worker::WorkerTransactions;
use crate::sched::{self, Cause};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Failed certifications after which a transaction takes the turnstile.
pub(crate) const FAILURES: u32 = if cfg!(braid_simulation) { 2 } else { 8 };

/// How often one who was turned away looks whether the turnstile is free before trying again.
const MAX_LOOKS: u32 = 10_000;
/// How often one is turned away in a row before it passes all the same.
const MAX_CONFLICTED_ATTEMPTS: u32 = 8;
/// In place of a token: passes, whoever has the turnstile.
const PASSES: u64 = u64::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    /// The token of whoever has it, or 0.
    holder: AtomicU64,
    next: AtomicU64,
}

/// The turnstile, taken until this is dropped, or its transaction has committed.
#[derive(Debug)]
pub(crate) struct TakenTurnstile<'e> {
    turnstile: &'e Turnstile,
    token: u64,
}

impl Turnstile {
    /// Takes it, unless somebody has.
    fn take(&self) -> Option<TakenTurnstile<'_>> {
        // Relaxed: only unlike others.
        let token = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        // SeqCst: whoever adds to the log's tail after that was read for the holder's next begin stamp sees it
        // taken (see `is_taken_by_other`). Relaxed on failure: nothing is concluded.
        let taken = self.holder.compare_exchange(0, token, Ordering::SeqCst, Ordering::Relaxed);
        taken.ok().map(|_| TakenTurnstile { turnstile: self, token })
    }

    /// Whether somebody has it whose token is not `own`; asked by those who have drawn an LSN.
    pub(super) fn is_taken_by_other(&self, own: u64) -> bool {
        let holder = self.holder.load(Ordering::SeqCst);
        holder != 0 && holder != own && own != PASSES
    }

    /// Gives it back, if it is still `token`'s.
    pub(super) fn give_back(&self, token: u64) {
        // Relaxed: nothing is read under it; those who were turned away look again.
        _ = self.holder.compare_exchange(token, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl TakenTurnstile<'_> {
    /// Lets a transaction pass, which gives the turnstile back when it has committed.
    pub(crate) fn let_pass(&self, transaction: &Transaction) {
        transaction.set_turnstile(self.token);
    }
}

impl Drop for TakenTurnstile<'_> {
    fn drop(&mut self) {
        self.turnstile.give_back(self.token);
    }
}

/// How often a transaction was turned away since it was last let pass.
#[derive(Debug, Default)]
pub(crate) struct TurnedAway(u32);

impl TurnedAway {
    /// Exempts the next attempt from the turnstile if the ones before were turned away too often.
    pub(crate) fn exempt_after_refusals(&mut self, transaction: &Transaction) {
        if self.0 >= MAX_CONFLICTED_ATTEMPTS {
            self.0 = 0;
            transaction.set_turnstile(PASSES);
        }
    }
}

impl Engine {
    /// Takes the turnstile for a transaction whose certification failed so often, unless somebody has it.
    pub(crate) fn take_turnstile(&self, failures: u32) -> Option<TakenTurnstile<'_>> {
        if failures < FAILURES { None } else { self.turnstile.take() }
    }
}

impl WorkerTransactions {
    /// An attempt was turned away: waits until nobody has the turnstile, for a while.
    pub(crate) async fn wait_for_turnstile(&self, turned_away: &mut TurnedAway) {
        turned_away.0 += 1;
        for _ in 0..MAX_LOOKS {
            if !self.engine().turnstile.is_taken_by_other(0) {
                return;
            }
            sched::yield_now(Cause::Undecided).await;
        }
    }
}
