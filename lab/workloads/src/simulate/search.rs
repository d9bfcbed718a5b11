//! Parallel search for the smallest seed that finds something.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Tries the seeds in order on `jobs` threads, and returns the smallest one for which `look` returns
/// something. Returns `None` if no seed does, or if `end` passes first.
///
/// `prepare` runs once in each thread, with the thread's number, and makes what its calls of `look` share.
pub(super) fn first<P, T: Send>(
    jobs: usize,
    seeds: Range<u64>,
    end: Option<Instant>,
    prepare: impl Fn(usize) -> P + Sync,
    look: impl Fn(&mut P, u64) -> Option<T> + Sync,
) -> Option<(u64, T)> {
    let (next, best) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, T)>));
    let job = |number: usize| {
        let mut prepared = prepare(number);
        loop {
            // Relaxed: each thread takes another seed; nothing else is published by it.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || end.is_some_and(|end| Instant::now() > end) {
                return;
            }
            let Some(found) = look(&mut prepared, seed) else { continue };
            // Relaxed: threads that see it late only try more seeds.
            next.store(seeds.end, Ordering::Relaxed);
            let mut best = best.lock().expect("no thread panics while it holds the lock");
            if best.as_ref().is_none_or(|(smallest, _)| seed < *smallest) {
                *best = Some((seed, found));
            }
        }
    };
    std::thread::scope(|scope| {
        let job = &job;
        for number in 0..jobs {
            scope.spawn(move || job(number));
        }
    });
    best.into_inner().expect("no thread panics while it holds the lock")
}
