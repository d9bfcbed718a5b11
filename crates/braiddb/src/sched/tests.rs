//! The executor on a device that only sleeps: every policy runs every task, wake-ups from other
//! threads are not lost, panics are contained, idle workers sleep.

mod arrivals;
mod closing;
mod contention;
mod steps;
mod takeover;
mod wake_ups;

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::sync::oneshot;
use parking_lot::{Condvar, Mutex};

use super::source::TaskSource;
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{Completion, Device, Notify, Operation};

/// A device without a disk: `wait` sleeps until it is notified.
#[derive(Default)]
struct SleepingDevice {
    bell: Arc<SleepNotifier>,
}

#[derive(Default)]
struct SleepNotifier {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Notify for SleepNotifier {
    fn notify(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }
}

impl Device for SleepingDevice {
    fn submit(&mut self, _operation: Operation, _token: u64) {
        unreachable!("no disk here");
    }

    fn poll(&mut self, _deliver: &mut dyn FnMut(Completion)) {}

    fn wait(&mut self, timeout: Option<Duration>, _deliver: &mut dyn FnMut(Completion)) {
        let mut rung = self.bell.rung.lock();
        let timeout = timeout.unwrap_or(Duration::from_secs(60));
        self.bell.changed.wait_while_for(&mut rung, |rung| !*rung, timeout);
        *rung = false;
    }

    fn outstanding(&self) -> usize {
        0
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.bell.clone()
    }
}

struct NoHousekeeping;

impl Driver for NoHousekeeping {
    fn turn(&mut self, _device: &mut dyn Device, _idle: bool) -> Turn {
        Turn::default()
    }
    fn complete(&mut self, _completion: Completion) {}
    fn before_sleep(&mut self) {}
    fn after_sleep(&mut self) {}
    fn drain(&mut self, _device: &mut dyn Device) -> bool {
        true
    }
}

fn options(workers: usize, policy: Policy, hot_width: Width) -> ExecutorOptions {
    ExecutorOptions {
        workers,
        pin: false,
        policy,
        hot_width,
        cold_width: 64,
        max_open: 4096,
        read_depth: 4,
        trace: 0,
        seed: None,
    }
}

fn start(workers: usize, policy: Policy, hot_width: Width) -> Executor {
    let options = options(workers, policy, hot_width);
    let device = |_| Ok(Box::new(SleepingDevice::default()) as Box<dyn Device>);
    Executor::start(options, Arc::default(), device, |_, _| NoHousekeeping, |_| ()).unwrap()
}

const POLICIES: [Policy; 4] =
    [Policy::Sequential, Policy::Batch, Policy::Pipeline, Policy::DualQueue];

/// Suspends for memory `hops` times, and yields twice.
async fn walk(hops: u64) -> u64 {
    for hop in 0..hops {
        touch(&raw const hop).await;
    }
    yield_now(WaitCause::Undecided).await;
    yield_now(WaitCause::Undecided).await;
    hops
}

#[test]
fn every_policy_runs_every_job() {
    with_limit(PART_SECONDS, |_| {
        for policy in POLICIES {
            let executor = start(2, policy, Width::Fixed(4));
            let sum = Arc::new(AtomicU64::new(0));
            for hops in 0..200 {
                let sum = sum.clone();
                let job: Job = Box::new(move || {
                    Box::pin(async move { _ = sum.fetch_add(walk(hops).await, Ordering::Relaxed) })
                });
                executor.jobs().spawn(job).unwrap();
            }
            executor.stop();
            assert_eq!(sum.load(Ordering::Relaxed), (0..200).sum::<u64>(), "{policy:?}");
            let finished: u64 = executor.counters().iter().map(|c| c.tasks_finished.get()).sum();
            assert_eq!(finished, 200);
            assert_eq!(executor.jobs().spawn(Box::new(|| Box::pin(async {}))), Err(ExecutorClosed));
        }
    });
}

/// Walks of all lengths up to a number, counted by the source itself.
struct Walks {
    left: u64,
    sum: Arc<AtomicU64>,
}

impl TaskSource for Walks {
    type Input = u64;
    type Task = Pin<Box<dyn Future<Output = ()>>>;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        Some(self.left)
    }

    fn make(&self, hops: u64) -> Self::Task {
        let sum = self.sum.clone();
        Box::pin(async move { _ = sum.fetch_add(walk(hops).await, Ordering::Relaxed) })
    }
}

/// A task that waits for another one's decision must not keep that one out of the only place.
#[test]
fn undecided_tasks_yield_to_the_deciding_task() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(1, Policy::DualQueue, Width::Fixed(1));
        let decided = Arc::new(AtomicU64::new(0));
        let place = Arc::new(Mutex::new(None));
        let (decides, parked) = (decided.clone(), place.clone());
        let decider: Job = Box::new(move || {
            Box::pin(async move {
                let waiter = current_waiter().await;
                *parked.lock() = Some(waiter);
                park(WaitCause::LogSpace).await;
                decides.store(1, Ordering::Relaxed);
            })
        });
        let (seen, (done, wait)) = (decided.clone(), oneshot::channel());
        let waiter: Job = Box::new(move || {
            Box::pin(async move {
                resume(place.lock().take().expect("the decider came first"));
                while seen.load(Ordering::Relaxed) == 0 {
                    yield_now(WaitCause::Undecided).await;
                }
                done.send(()).unwrap();
            })
        });
        executor.jobs().spawn(decider).unwrap();
        executor.jobs().spawn(waiter).unwrap();
        pollster::block_on(wait).unwrap();
        executor.stop();
        assert_eq!(decided.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn sources_run_beside_jobs_and_come_back() {
    with_limit(PART_SECONDS, |_| {
        for policy in POLICIES {
            let executor = start(1, policy, Width::Auto);
            let sum = Arc::new(AtomicU64::new(0));
            // A job that is open during the source's whole life.
            let (sender, receiver) = oneshot::channel::<()>();
            let (reply, waited) = oneshot::channel();
            let job: Job = Box::new(move || {
                Box::pin(async move {
                    receiver.await.unwrap();
                    reply.send(walk(3).await).unwrap();
                })
            });
            executor.jobs().spawn(job).unwrap();
            let sources = [300, 100].map(|left| {
                let sum = sum.clone();
                executor.run_source(0, move || Walks { left, sum }).unwrap()
            });
            for source in sources {
                pollster::block_on(source.done()).unwrap();
            }
            sender.send(()).unwrap();
            assert_eq!(pollster::block_on(waited), Ok(3));
            assert_eq!(sum.load(Ordering::Relaxed), (0..300).sum::<u64>() + (0..100).sum::<u64>());
        }
    });
}

/// Tasks that end at their first poll do not prevent others from being polled.
#[test]
fn short_tasks_starve_no_other() {
    with_limit(PART_SECONDS, |_| {
        const TASKS: u64 = 10_000;
        const WIDTH: u64 = 8;
        for policy in POLICIES {
            let executor = start(1, policy, Width::Fixed(WIDTH as usize));
            let ended = Arc::new(AtomicU64::new(0));
            let (seen, mut next) = (ended.clone(), 0);
            let source = move || {
                let draw = move || {
                    next += 1;
                    (next <= TASKS).then(|| next - 1)
                };
                FromFn(draw, move |number: u64| {
                    let seen = seen.clone();
                    async move {
                        let before = seen.fetch_add(1, Ordering::Relaxed);
                        assert!(before.abs_diff(number) <= WIDTH, "{number} ran after {before}");
                    }
                })
            };
            pollster::block_on(executor.run_source(0, source).unwrap().done()).unwrap();
            assert_eq!(ended.load(Ordering::Relaxed), TASKS);
        }
    });
}

#[test]
fn wake_ups_from_other_threads_are_not_lost() {
    with_limit(PART_SECONDS, |_| {
        const ROUNDS: usize = 2000;
        let executor = start(2, Policy::DualQueue, Width::Fixed(2));
        for round in 0..ROUNDS {
            let (sender, receiver) = oneshot::channel();
            let (reply, result) = oneshot::channel();
            let job: Job = Box::new(move || {
                Box::pin(async move { reply.send(receiver.await.unwrap()).unwrap() })
            });
            executor.jobs().spawn(job).unwrap();
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            sender.send(round).unwrap();
            assert_eq!(pollster::block_on(result), Ok(round));
        }
    });
}

thread_local! {
    /// The task of [`spawn_parked`], on its worker.
    static WAITING: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Starts a task that waits until it is resumed, and then replies.
fn spawn_parked(executor: &Executor) -> oneshot::Receiver<()> {
    let (reply, result) = oneshot::channel();
    let job: Job = Box::new(move || {
        Box::pin(async move {
            let waiter = current_waiter().await;
            WAITING.with(|waiting| *waiting.borrow_mut() = Some(waiter));
            park(WaitCause::Commit).await;
            reply.send(()).unwrap();
        })
    });
    executor.jobs().spawn(job).unwrap();
    result
}

#[test]
fn parked_tasks_are_resumed_by_their_own_worker() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(1, Policy::DualQueue, Width::Fixed(4));
        let result = spawn_parked(&executor);
        let job: Job = Box::new(move || {
            Box::pin(async move {
                loop {
                    if let Some(waiter) = WAITING.with(|waiting| waiting.borrow_mut().take()) {
                        return resume(waiter);
                    }
                    yield_now(WaitCause::Undecided).await;
                }
            })
        });
        executor.jobs().spawn(job).unwrap();
        pollster::block_on(result).unwrap();
        let suspensions = &executor.counters()[0].suspensions;
        assert_eq!(suspensions[WaitCause::Commit as usize].get(), 1);
    });
}

/// The tasks of a source take each other's places, but not that of a task that may continue.
#[test]
fn resumed_tasks_precede_those_of_a_source() {
    with_limit(PART_SECONDS, |_| {
        const MOST: usize = 4;
        let executor = start(1, Policy::DualQueue, Width::Fixed(1));
        let mut parked = spawn_parked(&executor);
        let source = move || {
            let mut drawn = 0;
            let draw = move || {
                let mut context = Context::from_waker(Waker::noop());
                if Pin::new(&mut parked).poll(&mut context).is_ready() {
                    return None;
                }
                drawn += 1;
                assert!(drawn <= MOST, "{drawn} tasks preceded it");
                Some(())
            };
            FromFn(draw, |()| async {
                if let Some(waiter) = WAITING.with(|waiting| waiting.borrow_mut().take()) {
                    resume(waiter);
                }
            })
        };
        pollster::block_on(executor.run_source(0, source).unwrap().done()).unwrap();
    });
}

/// User code is contained within tasks, so a panic out of a task is the engine's.
#[test]
fn a_panic_in_a_task_ends_all_workers_and_fails_all_waiters() {
    with_limit(PART_SECONDS, |_| {
        let failure = Arc::<Failure>::default();
        let device = |_| Ok(Box::new(SleepingDevice::default()) as Box<dyn Device>);
        let options = options(2, Policy::DualQueue, Width::Fixed(4));
        let (left, all_left) = std::sync::mpsc::channel();
        let on_end = move |end| match end {
            WorkersEnd::Failed => {}
            WorkersEnd::Left => left.send(()).unwrap(),
        };
        let executor =
            Executor::start(options, failure.clone(), device, |_, _| NoHousekeeping, on_end)
                .unwrap();
        let spawn_waiting = |task: fn() -> Pin<Box<dyn Future<Output = ()>>>| {
            let (reply, result) = oneshot::channel::<()>();
            let reply = UntilRecorded::new(reply);
            let job: Job = Box::new(move || {
                Box::pin(async move {
                    let _reply = reply;
                    task().await;
                })
            });
            executor.jobs().spawn(job).unwrap();
            result
        };
        let mut waiting: Vec<_> =
            (0..4).map(|_| spawn_waiting(|| Box::pin(std::future::pending()))).collect();
        waiting.push(spawn_waiting(|| {
            Box::pin(async {
                walk(5).await;
                panic!("on purpose");
            })
        }));
        for result in waiting {
            assert!(pollster::block_on(result).is_err(), "its task was dropped");
            assert_eq!(failure.message().map(|message| &**message), Some("on purpose"));
        }
        assert_eq!(executor.jobs().spawn(Box::new(|| Box::pin(async {}))), Err(ExecutorClosed));
        all_left.recv().unwrap();
        executor.stop();
    });
}

#[test]
fn interleaved_futures_come_back_in_order() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(1, Policy::DualQueue, Width::Fixed(4));
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                let walks = Interleaved::new([7, 0, 3, 100].map(walk));
                reply.send(walks.await).unwrap();
            })
        });
        executor.jobs().spawn(job).unwrap();
        assert_eq!(pollster::block_on(result).unwrap(), [7, 0, 3, 100]);
    });
}

#[test]
fn foreign_waits_do_not_outlive_the_executor() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(1, Policy::DualQueue, Width::Fixed(4));
        let (reply, result) = oneshot::channel::<()>();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                std::future::pending::<()>().await;
                reply.send(()).unwrap();
            })
        });
        executor.jobs().spawn(job).unwrap();
        executor.stop();
        assert!(pollster::block_on(result).is_err());
    });
}

/// A task waits for one that is dropped because the executor stops.
#[test]
fn what_waits_for_a_task_that_is_dropped_at_the_end_goes_on() {
    with_limit(PART_SECONDS, |_| {
        struct Resumes;

        impl Drop for Resumes {
            fn drop(&mut self) {
                resume(WAITING.with(|waiting| waiting.borrow_mut().take()).expect("it waits"));
            }
        }

        let executor = start(1, Policy::DualQueue, Width::Fixed(4));
        let result = spawn_parked(&executor);
        let job: Job = Box::new(move || {
            Box::pin(async move {
                let _resumes = Resumes;
                std::future::pending::<()>().await;
            })
        });
        executor.jobs().spawn(job).unwrap();
        let (over, stopped) = std::sync::mpsc::channel();
        let stopping = std::thread::spawn(move || {
            executor.stop();
            over.send(()).unwrap();
        });
        let waited = stopped.recv_timeout(std::time::Duration::from_secs(60));
        waited.expect("the worker sleeps, and a task of its could go on");
        stopping.join().unwrap();
        pollster::block_on(result).unwrap();
    });
}

/// Measures the cost of a suspension; not a test of correctness. `cargo test --release -- --ignored
/// --nocapture suspension_costs`
#[test]
#[ignore = "a measurement"]
fn suspension_costs() {
    with_limit(PART_SECONDS, |_| {
        struct Touches(u64);
        impl TaskSource for Touches {
            type Input = ();
            type Task = Pin<Box<dyn Future<Output = ()>>>;

            fn next(&mut self) -> Option<()> {
                self.0 = self.0.checked_sub(1)?;
                Some(())
            }

            fn make(&self, (): ()) -> Self::Task {
                Box::pin(async {
                    for hop in 0..1_000_000u64 {
                        touch(&raw const hop).await;
                    }
                })
            }
        }
        for width in [1, 2, 8, 32] {
            let executor = start(1, Policy::DualQueue, Width::Fixed(width));
            let start = std::time::Instant::now();
            pollster::block_on(executor.run_source(0, || Touches(64)).unwrap().done()).unwrap();
            let each = start.elapsed().as_nanos() as f64 / 64e6;
            println!("width {width:2}: {each:.2} ns a suspension");
        }
    });
}
