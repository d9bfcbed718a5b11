//! A minimal interleaver of coroutines: a fixed array of slots polled round robin.
//!
//! It has no wakers, queues, causes or statistics: a baseline for schedulers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Suspends once.
#[derive(Debug, Default)]
pub(crate) struct Suspend {
    suspended: bool,
}

impl Future for Suspend {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.suspended, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Prefetches the cache line of `line` and suspends once.
#[inline(always)]
pub(crate) fn touch<T>(line: *const T) -> Suspend {
    prefetch(line);
    Suspend { suspended: false }
}

/// Prefetches the cache line of `line`; any address is allowed, even an unmapped one.
#[inline(always)]
pub(crate) fn prefetch<T>(line: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Runs the tasks of `next` to completion, `width` at a time, and passes each result to `done`.
pub(crate) fn interleave<F: Future>(
    width: usize,
    mut next: impl FnMut() -> Option<F>,
    mut done: impl FnMut(F::Output),
) {
    assert!(width > 0, "a width of none runs nothing");
    let mut context = Context::from_waker(Waker::noop());
    let mut slots: Box<[Option<F>]> = (0..width).map(|_| next()).collect();
    let mut running = slots.iter().flatten().count();
    while running > 0 {
        for slot in &mut slots {
            let Some(task) = slot else { continue };
            // SAFETY: tasks stay in place in the boxed slice: they are dropped in place, by the
            // assignment below or with the slice, and never moved out.
            let task = unsafe { Pin::new_unchecked(task) };
            if let Poll::Ready(output) = task.poll(&mut context) {
                done(output);
                *slot = next();
                running -= usize::from(slot.is_none());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tasks_run_at_any_width() {
        for width in [1, 3, 8, 200] {
            let mut tasks = (0..100u64).map(|i| async move {
                for _ in 0..i % 5 {
                    touch(&raw const i).await;
                }
                i
            });
            let mut sum = 0;
            interleave(width, || tasks.next(), |i| sum += i);
            assert_eq!(sum, 4950, "width {width}");
        }
    }
}
