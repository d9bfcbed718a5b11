//! The executor: starts workers, hands them jobs, stops them.

use std::pin::Pin;
use std::sync::Arc;

use super::counters::SchedulerCounters;
use super::driver::Driver;
use super::group::WorkerGroup;
use super::local;
use super::mailbox::{Mailbox, WorkerHandle};
use super::panics::{Failure, UntilRecorded};
use super::policy::{Policy, Width};
use super::source::{ErasedSource, Sending, TaskSource};
use super::thread::WorkerThread;
use super::trace::WorkerTrace;
use crate::io::{Device, SimulatedDisk};
use crate::sync::statistic::{AtomicUsize, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{self, Mutex, affinity, channel, clock, oneshot};

/// A task on its way: runs on the worker, and returns the future that is the task.
pub(crate) type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// What is sent to one worker alone.
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
    /// Slices of each worker's time that are kept; none if zero.
    pub(crate) trace: usize,
    /// Chooses by chance, from this seed, whether tasks suspend where they need not, and in which
    /// order they run.
    pub(crate) seed: Option<u64>,
}

/// The executor has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecutorClosed;

/// The workers of one database.
pub(crate) struct Executor {
    jobs: JobSender,
    counters: Vec<Arc<SchedulerCounters>>,
    traces: Vec<Arc<WorkerTrace>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The way to the workers, which it does not keep from ending.
#[derive(Clone)]
pub(crate) struct JobSender {
    pub(super) group: Arc<WorkerGroup>,
    next: Arc<AtomicUsize>,
    /// The simulated disk of a run that is to go the same way each time.
    disk: Option<SimulatedDisk>,
}

impl std::fmt::Debug for JobSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobSender(to {} workers)", self.group.mailboxes.len())
    }
}

impl JobSender {
    fn settle(&self) {
        if let Some(disk) = self.disk.as_ref().filter(|_| !local::on_worker()) {
            disk.settle();
        }
    }

    /// Runs a job on some worker that comes back from its tasks.
    pub(crate) fn spawn(&self, job: Job) -> Result<(), ExecutorClosed> {
        // Relaxed: which worker it is does not matter.
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.group.mailboxes.len();
        self.settle();
        self.group.send_job(number, job)
    }

    /// Whether the workers have failed, and of what.
    pub(crate) fn failure(&self) -> &Arc<Failure> {
        &self.group.failure
    }
}

/// Waits for a typed source to be done.
#[derive(Debug)]
pub(crate) struct SourceHandle(oneshot::Receiver<()>);

impl SourceHandle {
    /// Waits until its last task is over.
    ///
    /// # Errors
    /// When the workers were stopped, or failed, first.
    pub(crate) async fn done(self) -> Result<(), ExecutorClosed> {
        self.0.await.map_err(|oneshot::Canceled| ExecutorClosed)
    }
}

impl Executor {
    /// Starts the workers. `make_device` and `make_driver` are called on each worker's thread; the last
    /// worker to end calls `on_end`, when nothing of the workers' is left.
    ///
    /// # Errors
    /// The first failure to start a thread or make a device.
    pub(crate) fn start<D: Driver + 'static>(
        options: ExecutorOptions,
        failure: Arc<Failure>,
        make_device: impl Fn(usize) -> std::io::Result<Box<dyn Device>> + Send + Sync + 'static,
        make_driver: impl Fn(usize, WorkerHandles) -> D + Send + Sync + 'static,
        on_end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        assert!(options.workers > 0 && options.cold_width > 0 && options.max_open > 0);
        let group = Arc::new(WorkerGroup::new(options.workers, failure, Box::new(on_end)));
        let counters: Vec<_> = (0..options.workers).map(|_| Arc::default()).collect();
        let jobs = JobSender { group: group.clone(), next: Arc::default(), disk: None };
        let origin = clock::now();
        let trace = |_| Arc::new(WorkerTrace::new(origin, options.trace));
        let traces = (0..options.workers).map(trace).collect();
        let executor = Self { jobs, counters, traces, threads: Mutex::default() };
        let cores = if options.pin { affinity::cores() } else { Vec::new() };
        let make = Arc::new((make_device, make_driver));
        let (ready, started) = channel::channel();
        for number in 0..options.workers {
            let (group, handles) = (group.clone(), WorkerHandles(group.mailboxes.clone()));
            let (counters, make) = (executor.counters[number].clone(), make.clone());
            let trace = executor.traces[number].clone();
            let core = cores.get(number % cores.len().max(1)).copied();
            let ready = ready.clone();
            let thread = thread::Builder::new().name(format!("braid-{number}"));
            let thread = thread.spawn(move || {
                if let Some(core) = core {
                    affinity::stay_on(core);
                }
                let thread = WorkerThread { number, group: &group, counters, trace, options };
                thread.main(&ready, || (make.0)(number), || (make.1)(number, handles));
                drop(make);
                group.leave();
            })?;
            executor.threads.lock().push(thread);
        }
        drop(ready);
        // A worker that could not start says why; those that did start are stopped by the drop.
        for _ in 0..options.workers {
            started.recv().map_err(|_| std::io::Error::other("a worker did not start"))??;
        }
        Ok(executor)
    }

    /// From now on other threads reach the worker only while it sleeps and nothing is under way on
    /// `disk`.
    pub(crate) fn settle_by(&mut self, disk: SimulatedDisk) {
        if sync::takes_part() {
            // The schedule decides then who does what when.
            return;
        }
        assert!(
            self.jobs.group.mailboxes.len() == 1,
            "only one worker alone always goes the same way"
        );
        self.jobs.disk = Some(disk);
    }

    /// The way to them.
    pub(crate) fn jobs(&self) -> &JobSender {
        &self.jobs
    }

    /// Runs a typed source, which is made there, on one worker to its end.
    pub(crate) fn run_source<S: TaskSource>(
        &self,
        worker: usize,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<SourceHandle, ExecutorClosed> {
        let (done, receiver) = oneshot::channel();
        let done = UntilRecorded::new(done);
        self.jobs.settle();
        self.jobs.group.send(worker, Message::Source(Box::new(Sending { make, done })))?;
        Ok(SourceHandle(receiver))
    }

    pub(crate) fn counters(&self) -> &[Arc<SchedulerCounters>] {
        &self.counters
    }

    /// What each worker did lately; nothing unless that is kept.
    pub(crate) fn traces(&self) -> &[Arc<WorkerTrace>] {
        &self.traces
    }

    /// Lets the workers finish what they have, and waits for their end.
    pub(crate) fn stop(&self) {
        self.jobs.settle();
        self.jobs.group.stop();
        // Held until all are joined: whoever else stops them waits as long.
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            // What a worker panicked of is recorded as the engine's failure.
            _ = thread.join();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if local::on_worker() {
            // A worker cannot wait for itself, nor for one that may be waiting for it. All that
            // the workers need they hold; the last one to end does what is left to do.
            self.jobs.group.stop();
        } else {
            self.stop();
        }
    }
}

/// The workers' handles, by number.
#[derive(Clone)]
pub(crate) struct WorkerHandles(Vec<Arc<Mailbox>>);

impl WorkerHandles {
    /// The handle of one worker.
    pub(crate) fn get(&self, worker: usize) -> WorkerHandle {
        WorkerHandle(self.0[worker].clone())
    }
}
