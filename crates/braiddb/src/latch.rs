//! Latch: lock and version of a node or a page in one word (optimistic lock coupling).
//!
//! Bit 0: latched. Bit 1: obsolete, permanently. The higher bits are a version that every change
//! increments. Protocol: a reader loads the version, reads, and validates that the word has not
//! changed; data read before that is unreliable. A writer increments the version while it holds the
//! latch. A latch is never held across a suspension, so waits are short.

use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{spin_loop, yield_thread};

const LATCHED: u64 = 1;
const OBSOLETE: u64 = 2;
const VERSION: u64 = 4;
/// Spins before the thread yields: the holder may have been preempted.
const MAX_SPINS: u32 = 100;

/// A version of a node, as loaded by a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatchVersion(u64);

/// Error: the node has changed, or has left the tree. The operation must start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restart;

/// The latch word.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Latch(AtomicU64);

impl Latch {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(VERSION))
    }

    /// The value of a zeroed word: free, at its first version.
    #[cfg(loom)]
    pub(crate) fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Waits until the node is not latched, and loads its version.
    #[inline(always)]
    pub(crate) fn version(&self) -> Result<LatchVersion, Restart> {
        // Acquire pairs with the Release in the drop of `LatchGuard`: later reads are not older.
        let word = self.0.load(Ordering::Acquire);
        if word & (LATCHED | OBSOLETE) == 0 {
            return Ok(LatchVersion(word));
        }
        self.wait()
    }

    /// The version, if the node is not latched now.
    pub(crate) fn version_now(&self) -> Option<LatchVersion> {
        // Acquire as in `version`.
        let word = self.0.load(Ordering::Acquire);
        (word & (LATCHED | OBSOLETE) == 0).then_some(LatchVersion(word))
    }

    #[cold]
    fn wait(&self) -> Result<LatchVersion, Restart> {
        let mut spins = 0;
        loop {
            // Acquire as in `version`.
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return Err(Restart);
            }
            if word & LATCHED == 0 {
                return Ok(LatchVersion(word));
            }
            spins += 1;
            if spins % MAX_SPINS == 0 || cfg!(loom) {
                yield_thread();
            } else {
                spin_loop();
            }
        }
    }

    /// Checks that nothing has changed since `version` was loaded.
    #[inline(always)]
    pub(crate) fn validate(&self, version: LatchVersion) -> Result<(), Restart> {
        if is_planted(Bug::OptimisticReadNotValidated) {
            return Ok(());
        }
        // Acquire pairs with the Release fence in `acquire`: if a read before this fence saw a
        // store made under a latch, the load below sees the latch word that came before that store.
        if !is_planted(Bug::ValidatedWithoutFence) {
            fence(Ordering::Acquire);
        }
        // Relaxed: ordered by the fence.
        if self.0.load(Ordering::Relaxed) == version.0 { Ok(()) } else { Err(Restart) }
    }

    /// Latches the node if it has not changed since `version` was loaded.
    pub(crate) fn acquire(&self, version: LatchVersion) -> Result<LatchGuard<'_>, Restart> {
        assert_eq!(version.0 & (LATCHED | OBSOLETE), 0);
        let latched = version.0 | LATCHED;
        // Acquire pairs with the Release in the drop of `LatchGuard`: the last writer's changes are
        // seen. Relaxed on failure: the caller starts again.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        if self.0.compare_exchange(version.0, latched, success, failure).is_err() {
            return Err(Restart);
        }
        // Release pairs with the Acquire fence in `validate`: orders the latch before the changes.
        fence(Ordering::Release);
        Ok(LatchGuard { latch: self, word: version.0 })
    }

    /// Latches a node that is not shared yet.
    pub(crate) fn acquire_unshared(&self) -> LatchGuard<'_> {
        // Relaxed, both: no other thread has access; the link that shares it is stored with
        // Release.
        let word = self.0.load(Ordering::Relaxed);
        assert_eq!(word & (LATCHED | OBSOLETE), 0);
        self.0.store(word | LATCHED, Ordering::Relaxed);
        LatchGuard { latch: self, word }
    }
}

/// A held latch, released when dropped. The version changes only if `changed` was called.
#[derive(Debug)]
#[must_use]
pub(crate) struct LatchGuard<'n> {
    latch: &'n Latch,
    /// The latch word after the release.
    word: u64,
}

impl LatchGuard<'_> {
    /// Announces a change of the node: readers of the previous version will start again.
    pub(crate) fn changed(&mut self) {
        self.word += VERSION;
    }

    /// The version that the node will have when this is dropped, unless it changes before.
    pub(crate) fn version_after(&self) -> LatchVersion {
        LatchVersion(self.word)
    }

    /// Marks the node as removed from the tree.
    pub(crate) fn obsolete(&mut self) {
        self.word = (self.word + VERSION) | OBSOLETE;
    }
}

impl Drop for LatchGuard<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `version` and `acquire`.
        self.latch.0.store(self.word, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two words that are always equal outside the latch: no reader that validates sees them
    /// differ, and no update is lost between two writers.
    #[test]
    fn model_of_the_latch_shows_no_half_made_change() {
        loom::model(|| {
            let node = Arc::new((Latch::new(), AtomicU64::new(0), AtomicU64::new(0)));
            let write = |node: &(Latch, AtomicU64, AtomicU64)| {
                let (latch, left, right) = node;
                let Ok(version) = latch.version() else { unreachable!("never obsolete") };
                let Ok(mut latched) = latch.acquire(version) else { return false };
                latched.changed();
                let next = left.load(Ordering::Relaxed) + 1;
                left.store(next, Ordering::Relaxed);
                right.store(next, Ordering::Relaxed);
                true
            };
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let node = node.clone();
                    thread::spawn(move || write(&node))
                })
                .collect();
            let (latch, left, right) = &*node;
            let version = latch.version().unwrap();
            let seen = (right.load(Ordering::Relaxed), left.load(Ordering::Relaxed));
            if latch.validate(version).is_ok() {
                assert_eq!(seen.0, seen.1);
            }
            let written = writers.into_iter().filter_map(|w| w.join().ok()).filter(|w| *w).count();
            assert_eq!(left.load(Ordering::Relaxed), written as u64);
        });
    }
}
