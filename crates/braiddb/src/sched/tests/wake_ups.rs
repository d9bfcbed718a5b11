//! Wake-ups at the worst moment: rings directly after the worker's check, and completions of
//! detached transfers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Instant;

use super::super::mailbox::WorkerHandle;
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{AlignedBuffer, Directory};
use crate::sync::atomic::AtomicU32;

/// Time limit of a wait for an immediate event.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits for a result. If the wait hangs, the test fails and prints the state of the workers.
fn await_result<T>(executor: &Executor, result: &mpsc::Receiver<T>) -> T {
    result.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {:#?}", executor.counters()))
}

/// Housekeeping that checks a word, and whose message arrives directly after the check.
struct RingsAfterLooking {
    word: Arc<AtomicU32>,
    worker: WorkerHandle,
    waiting: Arc<Mutex<Option<Waiter>>>,
}

impl Driver for RingsAfterLooking {
    fn turn(&mut self, _device: &mut dyn Device, idle: bool) -> Turn {
        let seen = self.word.load(Ordering::SeqCst);
        if !idle {
            return Turn { busy: true, ..Turn::default() };
        }
        if seen == 1
            && let Some(waiter) = self.waiting.lock().take()
        {
            resume(waiter);
        }
        if seen == 0 && self.waiting.lock().is_some() {
            // As another worker that advances the log.
            self.word.store(1, Ordering::SeqCst);
            self.worker.wake();
        }
        Turn::default()
    }
    fn complete(&mut self, _completion: Completion) {}
    fn before_sleep(&mut self) {}
    fn after_sleep(&mut self) {}
    fn drain(&mut self, _device: &mut dyn Device) -> bool {
        true
    }
}

#[test]
fn a_ring_right_after_the_look_keeps_the_worker_awake() {
    with_limit(PART_SECONDS, |_| {
        let (word, waiting) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(None)));
        let device = |_| Ok(Box::new(SleepingDevice::default()) as Box<dyn Device>);
        let (of_driver, slot) = (word.clone(), waiting.clone());
        let driver = move |number, handles: WorkerHandles| RingsAfterLooking {
            word: of_driver.clone(),
            worker: handles.get(number),
            waiting: slot.clone(),
        };
        let options = options(1, Policy::DualQueue, Width::Auto);
        let executor = Executor::start(options, Arc::default(), device, driver, |_| ());
        let executor = executor.unwrap();
        let (reply, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                while word.load(Ordering::SeqCst) == 0 {
                    let waiter = current_waiter().await;
                    *waiting.lock() = Some(waiter);
                    park(WaitCause::Commit).await;
                }
                reply.send(()).unwrap();
            })
        });
        executor.jobs().spawn(job).unwrap();
        await_result(&executor, &result);
    });
}

/// A device whose operations complete at the first `poll` or `wait` after the gate was opened.
struct Gated {
    pillow: SleepingDevice,
    submitted: Arc<AtomicU32>,
    is_open: Arc<AtomicU32>,
    under_way: Vec<u64>,
}

impl Device for Gated {
    fn submit(&mut self, _operation: Operation, token: u64) {
        self.submitted.fetch_add(1, Ordering::SeqCst);
        self.under_way.push(token);
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        if self.is_open.load(Ordering::SeqCst) == 1 {
            for token in self.under_way.drain(..) {
                deliver(Completion { token, result: Ok(0), buffer: None });
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        if self.is_open.load(Ordering::SeqCst) == 0 || self.under_way.is_empty() {
            self.pillow.wait(timeout, deliver);
        }
        self.poll(deliver);
    }

    fn outstanding(&self) -> usize {
        self.under_way.len()
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.pillow.notifier()
    }
}

/// A transfer is queued behind one whose future is dropped while it is in flight.
#[test]
fn the_completion_of_an_abandoned_transfer_starts_the_next() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let file = Directory::open(directory.path(), true).unwrap().handle().clone();
        let (submitted, is_open) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (of_device, gate) = (submitted.clone(), is_open.clone());
        let device = move |_| {
            let (submitted, is_open) = (of_device.clone(), gate.clone());
            let under_way = Vec::new();
            let device = Gated { pillow: SleepingDevice::default(), submitted, is_open, under_way };
            Ok(Box::new(device) as Box<dyn Device>)
        };
        let one_at_a_time =
            ExecutorOptions { read_depth: 1, ..options(1, Policy::DualQueue, Width::Auto) };
        let executor =
            Executor::start(one_at_a_time, Arc::default(), device, |_, _| NoHousekeeping, |_| ())
                .unwrap();
        let (reply, result) = mpsc::channel();
        let issued = submitted.clone();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                let mut second = Box::pin(sync(file.clone()));
                {
                    let mut first = pin!(sync(file));
                    let mut polled = false;
                    poll_fn(|cx| {
                        if !std::mem::replace(&mut polled, true) {
                            assert!(first.as_mut().poll(cx).is_pending());
                            assert!(second.as_mut().poll(cx).is_pending());
                        }
                        Poll::Ready(())
                    })
                    .await;
                    while issued.load(Ordering::SeqCst) == 0 {
                        yield_now(WaitCause::Undecided).await;
                    }
                }
                is_open.store(1, Ordering::SeqCst);
                reply.send(second.await.map_err(|error| error.to_string())).unwrap();
            })
        });
        executor.jobs().spawn(job).unwrap();
        assert_eq!(await_result(&executor, &result), Ok(()));
        assert_eq!(submitted.load(Ordering::SeqCst), 2);
    });
}

/// Callbacks of a worker's transfers belong to the engine. After a failure they are neither run nor
/// dropped, because either could fail.
#[test]
fn what_was_to_be_done_with_transfers_is_leaked_when_the_engine_fails() {
    with_limit(PART_SECONDS, |_| {
        struct PanicsWhenDropped;

        impl Drop for PanicsWhenDropped {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }

        let directory = tempfile::tempdir().unwrap();
        let file = Directory::open(directory.path(), true).unwrap().handle().clone();
        let device = |_| Ok(Box::new(SleepingDevice::default()) as Box<dyn Device>);
        let (left, all_left) = mpsc::channel();
        let on_end = move |end| match end {
            WorkersEnd::Failed => {}
            WorkersEnd::Left => left.send(()).unwrap(),
        };
        let one_at_a_time =
            ExecutorOptions { read_depth: 1, ..options(2, Policy::DualQueue, Width::Auto) };
        let executor =
            Executor::start(one_at_a_time, Arc::default(), device, |_, _| NoHousekeeping, on_end)
                .unwrap();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                // One transfer that is issued, and one that is not.
                for _ in 0..2 {
                    let kept = PanicsWhenDropped;
                    read_then(file.clone(), 0, AlignedBuffer::zeroed(4096), move |_, _| drop(kept));
                }
                yield_now(WaitCause::Undecided).await;
                panic!("on purpose");
            })
        });
        executor.jobs().spawn(job).unwrap();
        await_result(&executor, &all_left);
    });
}

/// A task that wakes a task of another worker, or a part of one, may not suspend for long.
#[test]
fn a_task_of_another_worker_is_woken_at_once() {
    with_limit(PART_SECONDS, |_| {
        // More than `join_all` polls without wakers.
        for parts in [1, 40] {
            let executor = start(2, Policy::DualQueue, Width::Auto);
            let (waiting, is_over) =
                (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
            let (of_task, over) = (waiting.clone(), is_over.clone());
            let task: Job = Box::new(move || {
                Box::pin(async move {
                    let wait = || {
                        let (mut has_left_its_waiter, left) = (false, of_task.clone());
                        wait_remotely(WaitCause::Storage, move |waiter| {
                            let is_woken = std::mem::replace(&mut has_left_its_waiter, true);
                            left.lock().extend(waiter.filter(|_| !is_woken));
                            is_woken.then_some(())
                        })
                    };
                    futures_util::future::join_all((0..parts).map(|_| wait())).await;
                    over.store(1, Ordering::SeqCst);
                })
            });
            let worker =
                |number: usize| WorkerHandle(executor.jobs().group.mailboxes[number].clone());
            worker(0).give(task);
            let (reply, result) = mpsc::channel();
            let waking: Job = Box::new(move || {
                Box::pin(async move {
                    while waiting.lock().len() < parts {
                        yield_now(WaitCause::Undecided).await;
                    }
                    let waiters = std::mem::take(&mut *waiting.lock());
                    waiters.into_iter().for_each(RemoteWaiter::wake);
                    let begun = Instant::now();
                    while is_over.load(Ordering::SeqCst) == 0 && begun.elapsed() < LIMIT {
                        std::thread::yield_now();
                    }
                    reply.send(is_over.load(Ordering::SeqCst)).unwrap();
                })
            });
            worker(1).give(waking);
            assert_eq!(result.recv().unwrap(), 1, "{parts} parts: {:#?}", executor.counters());
        }
    });
}
