//! The shard of a counter that a thread adds to.

use std::cell::Cell;
use std::marker::PhantomData;

use super::reused;
use crate::sync::Mutex;

/// Number of shards; threads that own none share shard 0.
pub(super) const SHARDS: usize = 64;
const SHARED: usize = 0;

/// Bit `n` is set while no thread owns shard `n`.
static FREE: Mutex<u64> = Mutex::new(!(1 << SHARED));

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(SHARED) };
}

/// A thread's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard(usize);

impl Shard {
    #[inline(always)]
    pub(super) fn current() -> Self {
        // The assignment of system threads to the threads of a schedule is random.
        match crate::sync::number_in_schedule() {
            Some(number) => Self(number % SHARDS),
            // The remainder is the number itself, known to be in bounds.
            None => Self(CURRENT.get() % SHARDS),
        }
    }

    #[inline(always)]
    pub(super) fn number(self) -> usize {
        self.0
    }

    /// Returns whether only this thread adds to the shard.
    #[inline(always)]
    pub(super) fn is_owned(self) -> bool {
        self.0 != SHARED && !cfg!(any(loom, braid_simulation))
    }
}

/// This thread's ownership of a shard, for as long as the value exists. The thread then also reuses
/// freed blocks. If all shards are taken, or the thread owns one already, it changes nothing.
#[derive(Debug)]
pub(crate) struct OwnShard {
    owned: Option<usize>,
    /// Bound to the thread that created it.
    bound: PhantomData<*const ()>,
}

impl OwnShard {
    pub(crate) fn take() -> Self {
        let bound = PhantomData;
        if CURRENT.get() != SHARED || cfg!(any(loom, braid_simulation)) {
            return Self { owned: None, bound };
        }
        let mut free = FREE.lock();
        if *free == 0 {
            return Self { owned: None, bound };
        }
        let number = free.trailing_zeros() as usize;
        *free &= !(1 << number);
        CURRENT.set(number);
        reused::start();
        Self { owned: Some(number), bound }
    }
}

impl Drop for OwnShard {
    fn drop(&mut self) {
        if let Some(number) = self.owned {
            CURRENT.set(SHARED);
            reused::stop();
            // The lock orders this thread's additions before those of the next owner.
            *FREE.lock() |= 1 << number;
        }
    }
}

#[cfg(all(test, not(any(loom, braid_simulation))))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};
    use crate::memory::{MemoryCounters, MemoryKind};

    #[test]
    fn more_threads_than_shards_count_every_byte() {
        with_limit(PART_SECONDS, |_| {
            let counters = MemoryCounters::new();
            let all = std::sync::Barrier::new(SHARDS + 8);
            std::thread::scope(|scope| {
                for _ in 0..SHARDS + 8 {
                    scope.spawn(|| {
                        let _own = OwnShard::take();
                        all.wait();
                        (0..1000).for_each(|_| counters.count(MemoryKind::Copy, 3));
                        all.wait();
                    });
                }
            });
            assert_eq!(counters.bytes(MemoryKind::Copy), 3 * 1000 * (SHARDS as u64 + 8));
        });
    }
}
