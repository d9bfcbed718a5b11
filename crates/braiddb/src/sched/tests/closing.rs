//! A stopping worker distinguishes tasks that wait for the engine, for any time, from tasks that
//! wait for something else.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::super::storage::{ordinary_transfers, transfers};
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{Directory, File};

/// Longer than the grace period of foreign futures.
const SLOW: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(60);

/// A device without a disk, whose operations complete when the test releases them.
struct HeldDevice {
    bell: Arc<SleepNotifier>,
    held: VecDeque<u64>,
    /// The number of released operations, and of completed ones.
    released: Arc<AtomicU64>,
    done: u64,
}

impl Device for HeldDevice {
    fn submit(&mut self, _operation: Operation, token: u64) {
        self.held.push_back(token);
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        while self.done < self.released.load(Ordering::SeqCst)
            && let Some(token) = self.held.pop_front()
        {
            self.done += 1;
            deliver(Completion { token, result: Ok(0), buffer: None });
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        let mut rung = self.bell.rung.lock();
        // The release of operations does not ring.
        let timeout = timeout.unwrap_or(LIMIT).min(Duration::from_millis(10));
        self.bell.changed.wait_while_for(&mut rung, |rung| !*rung, timeout);
        *rung = false;
        drop(rung);
        self.poll(deliver);
    }

    fn outstanding(&self) -> usize {
        self.held.len()
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.bell.clone()
    }
}

struct HeldExecutor {
    executor: Executor,
    released: Arc<AtomicU64>,
    file: Arc<File>,
    _directory: tempfile::TempDir,
}

/// Starts one worker whose transfers are held.
fn start_held() -> HeldExecutor {
    start_held_with(options(1, Policy::DualQueue, Width::Fixed(4)))
}

fn start_held_with(options: ExecutorOptions) -> HeldExecutor {
    let released = Arc::new(AtomicU64::new(0));
    let of_device = released.clone();
    let device = move |_| {
        let (bell, held, released) = (Arc::default(), VecDeque::new(), of_device.clone());
        Ok(Box::new(HeldDevice { bell, held, released, done: 0 }) as Box<dyn Device>)
    };
    let driver = |_, _| NoHousekeeping;
    let executor = Executor::start(options, Arc::default(), device, driver, |_| ()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = Directory::open(directory.path(), true).unwrap().handle().clone();
    HeldExecutor { executor, released, file, _directory: directory }
}

impl HeldExecutor {
    /// Runs a task that reports its result.
    fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        task: impl FnOnce(Arc<File>) -> F + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (reply, result) = mpsc::channel();
        let file = self.file.clone();
        let job = move || {
            Box::pin(async move { _ = reply.send(task(file).await) })
                as Pin<Box<dyn Future<Output = ()>>>
        };
        self.executor.jobs().spawn(Box::new(job)).unwrap();
        result
    }

    fn release(&self) {
        self.released.store(u64::MAX, Ordering::SeqCst);
    }

    /// Stops the executor within the time limit.
    fn stop(self) {
        let (over, stopped) = mpsc::channel();
        let counters = self.executor.counters().to_vec();
        let stopping = std::thread::spawn(move || {
            self.executor.stop();
            over.send(()).unwrap();
        });
        if stopped.recv_timeout(LIMIT).is_err() {
            panic!("the executor does not stop: {counters:#?}");
        }
        stopping.join().unwrap();
    }
}

/// Transfers polled by an executor inside the task set no cause while they are not polled; they
/// count nevertheless.
#[test]
fn tasks_that_wait_for_slow_transfers_are_not_dropped() {
    with_limit(PART_SECONDS, |_| {
        let held = start_held();
        let [whole, parts] = [1, 50].map(|transfers| {
            held.run(move |file| async move {
                // More than `join_all` polls without wakers.
                let syncs = join_all((0..transfers).map(|_| sync(file.clone()))).await;
                syncs.into_iter().all(|synced| synced.is_ok())
            })
        });
        let released = held.released.clone();
        let releasing = std::thread::spawn(move || {
            std::thread::sleep(SLOW);
            released.store(u64::MAX, Ordering::SeqCst);
        });
        held.stop();
        releasing.join().unwrap();
        assert_eq!((whole.recv(), parts.recv()), (Ok(true), Ok(true)));
    });
}

/// The same while nothing is closing: a task still waits for the device if only a finished part of
/// it was polled.
#[test]
fn what_waits_for_other_transfers_counts_among_what_runs() {
    with_limit(PART_SECONDS, |_| {
        let held = start_held_with(ExecutorOptions {
            max_open: 1,
            ..options(1, Policy::DualQueue, Width::Fixed(4))
        });
        let parts = held
            .run(|file| async move { join_all((0..50).map(|_| sync(file.clone()))).await.len() });
        held.released.store(1, Ordering::SeqCst);
        let polled_again = || {
            let counters = &held.executor.counters()[0];
            counters.suspensions[WaitCause::Foreign as usize].get() > 0
        };
        let begun = std::time::Instant::now();
        while !polled_again() {
            assert!(begun.elapsed() < LIMIT, "{:#?}", held.executor.counters());
            std::thread::yield_now();
        }
        let (begins, has_begun) = mpsc::channel();
        let other = held.run(move |_| async move { begins.send(()).unwrap() });
        // Too short to fail by chance on a busy machine: at worst an error goes unnoticed.
        assert!(has_begun.recv_timeout(Duration::from_millis(50)).is_err(), "one at a time");
        held.release();
        assert_eq!((parts.recv_timeout(LIMIT), other.recv_timeout(LIMIT)), (Ok(50), Ok(())));
        held.stop();
    });
}

/// A task keeps a finished transfer that woke no task at its end, and waits for another task.
#[test]
fn what_keeps_a_transfer_that_is_over_holds_up_no_other_task() {
    with_limit(PART_SECONDS, |_| {
        let held = start_held_with(ExecutorOptions {
            cold_width: 1,
            ..options(1, Policy::DualQueue, Width::Fixed(1))
        });
        let (sends, receives) = oneshot::channel::<()>();
        let (keeps, kept) = mpsc::channel();
        let waits = held.run(move |file| async move {
            let mut of_nobody = Box::pin(sync(file));
            assert!(of_nobody.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
            keeps.send(()).unwrap();
            receives.await.unwrap();
            of_nobody.await.unwrap();
        });
        kept.recv().unwrap();
        let other = held.run(move |_| async move { sends.send(()).unwrap() });
        held.release();
        assert_eq!(other.recv_timeout(LIMIT), Ok(()), "{:#?}", held.executor.counters());
        assert_eq!(waits.recv_timeout(LIMIT), Ok(()));
        held.stop();
    });
}

/// Dropped are: a future that starts and drops a transfer at each poll, also if it then wakes
/// itself; a future that keeps a finished transfer without polling it; and one that kept a transfer
/// and dropped it.
#[test]
fn tasks_without_transfers_are_dropped() {
    with_limit(PART_SECONDS, |_| {
        let held = start_held();
        let [given_up, given_up_awake] = [false, true].map(|wakes_itself| {
            held.run(move |file| async move {
                poll_fn(|context| {
                    assert!(Box::pin(sync(file.clone())).poll_unpin(context).is_pending());
                    if wakes_itself {
                        context.waker().wake_by_ref();
                    }
                    Poll::<()>::Pending
                })
                .await;
            })
        });
        let [kept, kept_and_dropped] = [true, false].map(|keeps| {
            held.run(move |file| async move {
                let mut kept = Box::pin(sync(file));
                assert!(kept.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
                if !keeps {
                    drop(kept);
                }
                pending::<()>().await;
            })
        });
        // The kept transfer completes at some time.
        held.release();
        held.stop();
        for dropped in [given_up, given_up_awake, kept, kept_and_dropped] {
            assert_eq!(dropped.recv(), Err(mpsc::RecvError));
        }
    });
}

/// Only transfers that the task started outside of upkeep are ordinary: transactions do not queue
/// behind the engine's upkeep.
#[test]
fn transfers_of_upkeep_are_not_ordinary() {
    with_limit(PART_SECONDS, |_| {
        let held = start_held();
        let counted = held.run(|file| async move {
            let mut counts = Vec::new();
            let mut nobody = Context::from_waker(Waker::noop());
            let mut of_upkeep = Box::pin(upkeep(sync(file.clone())));
            assert!(of_upkeep.poll_unpin(&mut nobody).is_pending());
            counts.push((transfers(), ordinary_transfers()));
            let mut kept = Box::pin(sync(file.clone()));
            let mut dropped = Box::pin(sync(file));
            assert!(kept.poll_unpin(&mut nobody).is_pending());
            assert!(dropped.poll_unpin(&mut nobody).is_pending());
            counts.push((transfers(), ordinary_transfers()));
            drop(dropped);
            counts.push((transfers(), ordinary_transfers()));
            (counts, of_upkeep, kept).0
        });
        // Transfers of dropped futures stay open until they would have been issued.
        assert_eq!(counted.recv(), Ok(vec![(1, 0), (3, 2), (3, 1)]));
        let over = held.run(|file| async move {
            let mut nobody = Context::from_waker(Waker::noop());
            let mut kept = Box::pin(sync(file));
            assert!(kept.poll_unpin(&mut nobody).is_pending());
            while transfers() > 0 {
                yield_now(WaitCause::Undecided).await;
            }
            // A completed transfer no longer counts, although its future was not polled again.
            (ordinary_transfers(), kept).0
        });
        held.release();
        assert_eq!(over.recv_timeout(LIMIT), Ok(0));
        held.stop();
    });
}
