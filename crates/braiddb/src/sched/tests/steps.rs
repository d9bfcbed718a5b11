//! Steps: the worker continues them without polling their task, unless something else of the task
//! has run.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::Poll;

use super::*;
use crate::sched::{Steps, forget_step, stepped};

/// Steps that pause `left` times, and count their calls.
struct Pauses {
    left: u32,
    calls: Arc<AtomicU64>,
}

impl Steps for Pauses {
    type Output = u64;

    fn advance(&mut self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        }
    }

    fn output(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

fn pauses(left: u32) -> (Pauses, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    (Pauses { left, calls: calls.clone() }, calls)
}

/// Runs a task of one worker and returns its result.
fn on_worker<T: Send + 'static>(task: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let executor = start(1, Policy::DualQueue, Width::Fixed(4));
    let (reply, result) = mpsc::channel();
    let job: Job = Box::new(move || Box::pin(async move { reply.send(task().await).unwrap() }));
    executor.jobs().spawn(job).unwrap();
    let value = result.recv().unwrap();
    executor.stop();
    value
}

/// Polls a future, and counts the polls.
async fn counted<F: Future>(future: F, polls: &mut u32) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        *polls += 1;
        future.as_mut().poll(context)
    })
    .await
}

#[test]
fn a_paused_step_continues_without_polls_of_its_task() {
    with_limit(PART_SECONDS, |_| {
        let (calls, polls) = on_worker(async || {
            let ((steps, _), mut polls) = (pauses(10), 0);
            (counted(stepped(steps), &mut polls).await, polls)
        });
        // The first and the last poll call the steps, the worker calls them in between.
        assert_eq!((calls, polls), (12, 2));
    });
}

#[test]
fn parts_that_pause_in_one_poll_are_polled_together() {
    with_limit(PART_SECONDS, |_| {
        let calls = on_worker(async || {
            let ((first, _), (second, _)) = (pauses(5), pauses(9));
            let (mut first, mut second) = (pin!(stepped(first)), pin!(stepped(second)));
            let mut results = [None; 2];
            poll_fn(move |context| {
                if results[0].is_none()
                    && let Poll::Ready(calls) = first.as_mut().poll(context)
                {
                    results[0] = Some(calls);
                }
                if results[1].is_none()
                    && let Poll::Ready(calls) = second.as_mut().poll(context)
                {
                    results[1] = Some(calls);
                }
                match results {
                    [Some(first), Some(second)] => Poll::Ready([first, second]),
                    _ => Poll::Pending,
                }
            })
            .await
        });
        // The worker continues the second alone after the first has ended.
        assert_eq!(calls[0], 6);
        assert!(calls[1] >= 10, "{calls:?}");
    });
}

/// Polls a step, and disposes of it by `dispose` in the same poll of its task. Returns how often the
/// step was called until the task had been woken five more times.
fn calls_after_one_poll(
    dispose: impl FnOnce(Pin<Box<dyn Future<Output = u64>>>) + Send + 'static,
) -> u64 {
    on_worker(async || {
        let (steps, calls) = pauses(100);
        let step: Pin<Box<dyn Future<Output = u64>>> = Box::pin(stepped(steps));
        let mut unused = Some((step, dispose));
        let mut rounds = 0;
        poll_fn(move |context| {
            if let Some((mut step, dispose)) = unused.take() {
                assert!(step.as_mut().poll(context).is_pending());
                dispose(step);
            }
            rounds += 1;
            context.waker().wake_by_ref();
            if rounds > 5 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        calls.load(Ordering::SeqCst)
    })
}

#[test]
fn a_step_that_was_dropped_in_its_poll_is_not_called() {
    with_limit(PART_SECONDS, |_| {
        assert_eq!(calls_after_one_poll(drop), 1);
    });
}

#[test]
fn a_leaked_step_is_not_called_after_the_end_of_its_transaction() {
    with_limit(PART_SECONDS, |_| {
        let calls = calls_after_one_poll(|step| {
            std::mem::forget(step);
            // As the end of a transaction does.
            forget_step();
        });
        assert_eq!(calls, 1);
    });
}

#[test]
fn a_step_is_polled_with_the_rest_of_its_task_after_another_suspension() {
    with_limit(PART_SECONDS, |_| {
        let polls = on_worker(async || {
            let ((steps, _), mut polls) = (pauses(3), 0);
            let mut step = Box::pin(counted(stepped(steps), &mut polls));
            poll_fn(|context| {
                let polled = step.as_mut().poll(context);
                if polled.is_pending() {
                    // Another part of the task, which is polled again in the next round.
                    assert!(pin!(yield_now(WaitCause::Undecided)).poll(context).is_pending());
                }
                polled
            })
            .await;
            drop(step);
            polls
        });
        assert_eq!(polls, 4, "each poll of the task polled the step");
    });
}
