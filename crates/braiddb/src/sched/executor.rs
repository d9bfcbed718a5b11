//! The executor: starts workers, hands them jobs, stops them.

use std::pin::Pin;
use std::sync::Arc;

use futures_channel::oneshot;

use super::counters::SchedulerCounters;
use super::local::{self, WorkerLocal};
use super::policy::{Policy, Width};
use super::remote::{Remote, WorkerHandle};
use super::worker::{Driver, ErasedSource, Sending, Source, Worker};
use crate::io::{Device, SimulatedDisk};
use crate::sync::atomic::Ordering;
use crate::sync::statistic::AtomicUsize;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, RwLock, channel};

/// A task on its way: runs on the worker, and returns the future that is the task.
pub(crate) type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// What other threads send to a worker.
pub(super) enum Message {
    Job(Job),
    Source(Box<dyn ErasedSource>),
}

/// How the workers are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutorOptions {
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) policy: Policy,
    pub(crate) hot_width: Width,
    pub(crate) cold_width: usize,
    pub(crate) max_open: usize,
    /// Reads of storage that one worker has under way at most.
    pub(crate) read_depth: usize,
    /// Chooses by chance, from this seed, whether tasks suspend where they need not, and in which
    /// order they run.
    pub(crate) seed: Option<u64>,
}

/// The executor has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// The workers of one database.
pub(crate) struct Executor {
    remotes: Vec<Arc<Remote>>,
    counters: Vec<Arc<SchedulerCounters>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next: AtomicUsize,
    /// Held shared while a job is sent, and exclusively while the end is announced: a job that was
    /// taken is run.
    open: RwLock<bool>,
    /// The simulated disk of a run that is to go the same way each time.
    disk: Option<SimulatedDisk>,
}

/// Ends the process when a worker itself panics: an invariant of the engine is broken, what is in
/// memory is not to be trusted, and everyone who waits for the worker would wait for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a worker of the database failed: the process is aborted");
            std::process::abort();
        }
    }
}

/// Waits for a typed source to be done.
#[derive(Debug)]
pub(crate) struct SourceHandle(oneshot::Receiver<()>);

impl SourceHandle {
    /// Waits until its last task is over.
    ///
    /// # Errors
    /// When the workers were stopped first.
    pub(crate) async fn done(self) -> Result<(), Closed> {
        self.0.await.map_err(|oneshot::Canceled| Closed)
    }
}

impl Executor {
    /// Starts the workers. `make_device` and `make_driver` are called on each worker's thread.
    ///
    /// # Errors
    /// The first failure to start a thread or make a device.
    pub(crate) fn start<D: Driver + 'static>(
        options: ExecutorOptions,
        make_device: impl Fn(usize) -> std::io::Result<Box<dyn Device>> + Send + Sync + 'static,
        make_driver: impl Fn(usize, WorkerHandles) -> D + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        assert!(options.workers > 0 && options.cold_width > 0 && options.max_open > 0);
        let remotes: Vec<_> = (0..options.workers).map(|_| Arc::new(Remote::new())).collect();
        let counters: Vec<_> = (0..options.workers).map(|_| Arc::default()).collect();
        let executor = Self {
            remotes: remotes.clone(),
            counters,
            threads: Mutex::default(),
            next: AtomicUsize::new(0),
            open: RwLock::new(true),
            disk: None,
        };
        let cores = if options.pin { core_affinity::get_core_ids() } else { None };
        let make = Arc::new((make_device, make_driver));
        let (ready, started) = channel::channel();
        for (number, remote) in remotes.iter().enumerate() {
            let (remote, handles) = (remote.clone(), WorkerHandles(remotes.clone()));
            let (counters, make) = (executor.counters[number].clone(), make.clone());
            let core = cores.as_ref().and_then(|cores| cores.get(number % cores.len()).copied());
            let ready = ready.clone();
            let thread = thread::Builder::new().name(format!("braid-{number}"));
            let thread = thread.spawn(move || {
                if let Some(core) = core {
                    core_affinity::set_for_current(core);
                }
                let (make_device, make_driver) = &*make;
                let device = match make_device(number) {
                    Ok(device) => device,
                    Err(error) => {
                        // `start` waits for it, unless another worker failed first.
                        _ = ready.send(Err(error));
                        return;
                    }
                };
                remote.set_notifier(device.notifier());
                let driver = Box::new(make_driver(number, handles));
                _ = ready.send(Ok(()));
                if let Some(seed) = options.seed {
                    fastrand::seed(seed);
                }
                let local = WorkerLocal::new(number, options.read_depth);
                let _entered = local::enter(&local);
                let _abort = AbortOnPanic;
                Worker::new(&local, remote, counters, options, device, driver).main();
            })?;
            executor.threads.lock().push(thread);
        }
        // A worker that could not start says why; those that did start are stopped by the drop.
        for _ in 0..options.workers {
            started.recv().map_err(|_| std::io::Error::other("a worker did not start"))??;
        }
        Ok(executor)
    }

    /// From now on other threads reach the worker only while it sleeps and nothing is under way on
    /// `disk`.
    pub(crate) fn settle_by(&mut self, disk: SimulatedDisk) {
        assert!(self.remotes.len() == 1, "only one worker alone always goes the same way");
        self.disk = Some(disk);
    }

    fn settle(&self) {
        if let Some(disk) = self.disk.as_ref().filter(|_| !local::on_worker()) {
            disk.settle();
        }
    }

    /// Runs a job on some worker.
    pub(crate) fn spawn(&self, job: Job) -> Result<(), Closed> {
        // Relaxed: which worker it is does not matter.
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.remotes.len();
        self.send(number, Message::Job(job))
    }

    /// Runs a typed source, which is made there, on one worker to its end.
    pub(crate) fn run_source<S: Source>(
        &self,
        worker: usize,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<SourceHandle, Closed> {
        let (done, receiver) = oneshot::channel();
        self.send(worker, Message::Source(Box::new(Sending { make, done })))?;
        Ok(SourceHandle(receiver))
    }

    fn send(&self, worker: usize, message: Message) -> Result<(), Closed> {
        self.settle();
        let open = self.open.read();
        if !*open {
            return Err(Closed);
        }
        self.remotes[worker].messages.push(message);
        self.remotes[worker].ring();
        Ok(())
    }

    pub(crate) fn counters(&self) -> &[Arc<SchedulerCounters>] {
        &self.counters
    }

    /// Lets the workers finish what they have, and waits for their end.
    pub(crate) fn stop(&self) {
        self.settle();
        *self.open.write() = false;
        for remote in &self.remotes {
            // Release pairs with the Acquire in the worker: it sees every job sent before.
            remote.stop.store(true, Ordering::Release);
            remote.ring();
        }
        for thread in self.threads.lock().drain(..) {
            // A worker that panicked broke an invariant of the engine's own; its message is out.
            _ = thread.join();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The workers' handles, by number.
#[derive(Clone)]
pub(crate) struct WorkerHandles(Vec<Arc<Remote>>);

impl WorkerHandles {
    /// The handle of one worker.
    pub(crate) fn get(&self, worker: usize) -> WorkerHandle {
        WorkerHandle(self.0[worker].clone())
    }
}
