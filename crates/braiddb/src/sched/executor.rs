//! The executor: starts workers, sends them jobs, stops them.

use std::sync::Arc;

use super::counters::SchedulerCounters;
use super::driver::Driver;
use super::failure::Failure;
use super::group::{ExecutorClosed, WorkerGroup, WorkersEnd};
use super::local;
use super::mailbox::{Job, WorkerHandles};
use super::options::ExecutorOptions;
use super::panics::{Panic, UntilRecorded};
use super::source::TaskSource;
use super::thread::WorkerThread;
use super::trace::WorkerTrace;
use super::worker::{Sending, SourceQueue};
use crate::io::{Device, SimulatedDisk};
use crate::sync::statistic::{AtomicUsize, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{self, Mutex, affinity, channel, clock, oneshot};

/// The workers of one database.
pub(crate) struct Executor {
    jobs: JobSender,
    counters: Vec<Arc<SchedulerCounters>>,
    traces: Vec<Arc<WorkerTrace>>,
    /// Sources for each worker.
    sources: Vec<Arc<SourceQueue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A sender to the workers that does not keep them alive.
#[derive(Clone)]
pub(crate) struct JobSender {
    pub(super) group: Arc<WorkerGroup>,
    next: Arc<AtomicUsize>,
    /// The simulated disk of a deterministic run.
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

    /// Runs a job on some worker that is not blocked.
    pub(crate) fn spawn(&self, job: Job) -> Result<(), ExecutorClosed> {
        // Relaxed: the choice of the worker does not matter.
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.group.mailboxes.len();
        self.settle();
        self.group.send_job(number, job)
    }

    /// Returns whether this thread may perform an operation itself instead of sending it. On a
    /// simulated disk, waits first as a message does, so that runs are repeatable.
    pub(crate) fn admits_guests(&self) -> bool {
        self.settle();
        !self.group.is_ending()
    }

    /// Returns whether this thread may write itself instead of sending a job. On a simulated disk it
    /// may not, unless a schedule controls it: time stands still, and only messages cause turns.
    pub(crate) fn admits_guest_writes(&self) -> bool {
        self.disk.is_none() && !self.group.is_ending()
    }

    /// Makes a worker take a turn soon.
    pub(crate) fn ring(&self) {
        self.group.ring();
    }

    /// Stops the workers because engine code panicked on this thread, which is no worker.
    pub(crate) fn fail_on_caller(&self, panic: &Panic) {
        self.group.fail_on_caller(&panic.message);
    }

    /// Returns the failure state of the workers.
    pub(crate) fn failure(&self) -> &Arc<Failure> {
        &self.group.failure
    }
}

/// Waits for a typed source to finish.
#[derive(Debug)]
pub(crate) struct SourceHandle(oneshot::Receiver<()>);

impl SourceHandle {
    /// Waits until its last task has ended.
    ///
    /// # Errors
    /// An error if the workers were stopped or failed first.
    pub(crate) async fn done(self) -> Result<(), ExecutorClosed> {
        self.0.await.map_err(|oneshot::Canceled| ExecutorClosed)
    }
}

impl Executor {
    /// Starts the workers. `make_device` and `make_driver` are called on each worker's thread.
    /// `on_end` is called after a failure, and by the last worker to end, when no state of the
    /// workers is left.
    ///
    /// # Errors
    /// The first failure to start a thread or to create a device.
    pub(crate) fn start<D: Driver + 'static>(
        options: ExecutorOptions,
        failure: Arc<Failure>,
        make_device: impl Fn(usize) -> std::io::Result<Box<dyn Device>> + Send + Sync + 'static,
        make_driver: impl Fn(usize, WorkerHandles) -> D + Send + Sync + 'static,
        on_end: impl FnMut(WorkersEnd) + Send + 'static,
    ) -> std::io::Result<Self> {
        assert!(options.workers > 0 && options.cold_width > 0 && options.max_open > 0);
        let group = Arc::new(WorkerGroup::new(options.workers, failure, Box::new(on_end)));
        let counters: Vec<_> = (0..options.workers).map(|_| Arc::default()).collect();
        let jobs = JobSender { group: group.clone(), next: Arc::default(), disk: None };
        let origin = clock::now();
        let trace = |_| Arc::new(WorkerTrace::new(origin, options.trace));
        let traces = (0..options.workers).map(trace).collect();
        let sources = (0..options.workers).map(|_| Arc::new(SourceQueue::new())).collect();
        let executor = Self { jobs, counters, traces, sources, threads: Mutex::default() };
        let cores = if options.pin { affinity::cores() } else { Vec::new() };
        let make = Arc::new((make_device, make_driver));
        let (ready, started) = channel::channel();
        for number in 0..options.workers {
            let (group, handles) = (group.clone(), WorkerHandles(group.mailboxes.clone()));
            let (counters, make) = (executor.counters[number].clone(), make.clone());
            let (trace, sources) =
                (executor.traces[number].clone(), executor.sources[number].clone());
            let core = cores.get(number % cores.len().max(1)).copied();
            let ready = ready.clone();
            let thread = thread::Builder::new().name(format!("braid-{number}"));
            let thread = thread.spawn(move || {
                if let Some(core) = core {
                    affinity::stay_on(core);
                }
                let thread =
                    WorkerThread { number, group: &group, counters, trace, sources, options };
                thread.main(&ready, || (make.0)(number), || (make.1)(number, handles));
                drop(make);
                group.leave();
            })?;
            executor.threads.lock().push(thread);
        }
        drop(ready);
        // A worker that could not start reports the reason; dropping the executor stops those that
        // did.
        for _ in 0..options.workers {
            started.recv().map_err(|_| std::io::Error::other("a worker did not start"))??;
        }
        Ok(executor)
    }

    /// From now on, other threads reach the worker only while it sleeps and no operation is in
    /// flight on `disk`.
    pub(crate) fn settle_by(&mut self, disk: SimulatedDisk) {
        if sync::takes_part() {
            // The controlled schedule then decides the order of all actions.
            return;
        }
        assert!(
            self.jobs.group.mailboxes.len() == 1,
            "only one worker alone always goes the same way"
        );
        self.jobs.disk = Some(disk);
    }

    /// Returns the sender to the workers.
    pub(crate) fn jobs(&self) -> &JobSender {
        &self.jobs
    }

    /// Runs a typed source on one worker to its end. The source is created there.
    pub(crate) fn run_source<S: TaskSource>(
        &self,
        worker: usize,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<SourceHandle, ExecutorClosed> {
        let (done, receiver) = oneshot::channel();
        let done = UntilRecorded::new(done);
        self.jobs.settle();
        let source = Box::new(Sending { make, done });
        self.jobs.group.send(worker, || self.sources[worker].push(source))?;
        Ok(SourceHandle(receiver))
    }

    pub(crate) fn counters(&self) -> &[Arc<SchedulerCounters>] {
        &self.counters
    }

    /// Returns the recent activity of each worker; empty without tracing.
    pub(crate) fn traces(&self) -> &[Arc<WorkerTrace>] {
        &self.traces
    }

    /// Lets the workers finish their tasks, and waits for their end.
    pub(crate) fn stop(&self) {
        self.jobs.settle();
        self.jobs.group.stop();
        // Held until all are joined, so that concurrent callers wait too.
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            // A worker's panic is recorded as the engine's failure.
            _ = thread.join();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if local::on_worker() {
            // A worker cannot wait for itself, nor for a worker that may be waiting for it. The
            // workers own everything they need; the last one to end does the remaining work.
            self.jobs.group.stop();
        } else {
            self.stop();
        }
    }
}
