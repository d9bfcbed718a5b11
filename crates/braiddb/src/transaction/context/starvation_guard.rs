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

use crate::sync::atomic::{AtomicU64, Ordering};

/// Replaces a token: the transaction passes, whichever one holds the token.
pub(super) const NO_LIMIT: u64 = u64::MAX;

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
    pub(super) token: u64,
}

impl StarvationGuard {
    /// Takes the token, unless it is held.
    pub(in crate::transaction) fn take(&self) -> Option<PriorityToken<'_>> {
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
    pub(in crate::transaction) fn is_taken_by_other(&self, own: u64) -> bool {
        let holder = self.holder.load(Ordering::SeqCst);
        holder != 0 && holder != own && own != NO_LIMIT
    }

    /// Releases the token, if `token` still holds it.
    pub(in crate::transaction) fn release(&self, token: u64) {
        // Relaxed: the token guards no data; aborted transactions check again.
        _ = self.holder.compare_exchange(token, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for PriorityToken<'_> {
    fn drop(&mut self) {
        self.priority_token.release(self.token);
    }
}
