//! Maximum number of steps of a task before its worker notices new arrivals.

use std::sync::mpsc;

use super::super::local::{MAX_STEPS_ALONE, MAX_STEPS_SHARED};
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::sync::atomic::AtomicU32;

/// Total number of steps of each long task.
const STEPS: u32 = 1_000_000;
/// Steps of each task before one of them sends a job.
const WARM_UP: u32 = 1_000;

/// A step of every kind.
async fn step(number: u32) {
    match number % 3 {
        0 => touch(&raw const number).await,
        1 => suspend_memory().await,
        _ => count_steps(1).await,
    }
}

/// Runs `long` tasks concurrently. Returns the number of steps of all tasks together, from the
/// sending of a job to its first poll.
fn steps_until_begun(long: usize, width: Width, steps_each: u32) -> u32 {
    let executor = Arc::new(start(1, Policy::DualQueue, width));
    let (taken, warm) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (begun, begins) = mpsc::channel();
    for number in 0..long {
        let (others, taken, begun) = (executor.clone(), taken.clone(), begun.clone());
        let warm = warm.clone();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                let mut sends = number == 0;
                for place in 0..STEPS {
                    let now = taken.fetch_add(1, Ordering::SeqCst);
                    warm.fetch_add(u32::from(place == WARM_UP), Ordering::SeqCst);
                    if sends && warm.load(Ordering::SeqCst) as usize == long {
                        sends = false;
                        let (taken, begun) = (taken.clone(), begun.clone());
                        let arrival: Job = Box::new(move || {
                            Box::pin(async move {
                                begun.send(taken.load(Ordering::SeqCst) - now).unwrap();
                            })
                        });
                        others.jobs().spawn(arrival).unwrap();
                    }
                    if steps_each == 1 {
                        step(place).await;
                    } else {
                        count_steps(steps_each).await;
                    }
                }
            })
        });
        executor.jobs().spawn(job).unwrap();
    }
    begins.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn a_job_begins_within_the_steps_of_one_slice_of_each_task() {
    with_limit(PART_SECONDS, |_| {
        let widths = [Width::Auto, Width::Fixed(1), Width::Fixed(4), Width::Fixed(48)];
        for width in widths {
            let alone = steps_until_begun(1, width, 1);
            // Its worker's next check, and a slice together with the job.
            assert!(alone <= MAX_STEPS_ALONE + MAX_STEPS_SHARED, "{width:?}: {alone} steps");
            for long in [2, 8, 40] {
                let beside = steps_until_begun(long, width, 1);
                // The current round, and the round in which the job starts.
                let most = 2 * long as u32 * MAX_STEPS_SHARED + MAX_STEPS_ALONE;
                assert!(beside <= most, "{width:?}, {long}: {beside} steps");
            }
        }
        // Steps that do more work are counted accordingly.
        assert!(steps_until_begun(1, Width::Fixed(1), 64) <= MAX_STEPS_ALONE / 64 + 1);
    });
}
