//! The worker loop: polls tasks, admits new ones, takes turns of housekeeping, sleeps.

mod ending;
mod sources;
mod turns;

pub(super) use sources::{Sending, SourceQueue, drop_sources};

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::contention::Contention;
use super::counters::SchedulerCounters;
use super::doorbell;
use super::driver::{Driver, Turn};
use super::group::WorkerGroup;
use super::local::{MAX_STEPS_ALONE, WorkerLocal};
use super::mailbox::Mailbox;
use super::options::ExecutorOptions;
use super::panics::drop_contained;
use super::policy::Width;
#[cfg(feature = "experiment")]
use super::policy::{Policy, QueueLoad};
use super::queues::Queues;
use super::services::WorkerServices;
use super::slot::{BoxedTask, NoTask, Task};
use super::source::{NoSource, TaskSource};
use super::stall::StallTimer;
use super::takeover::WorkerWatch;
use super::trace::{PollEnd, SliceActivity, TraceWriter};
use super::tuner::Tuner;
use super::wait_cause::WaitCause;
use crate::io::Device;
use crate::sync::{clock, yield_thread};

/// Tasks that ended or wait for their commit, and rounds over the hot queue, after which
/// housekeeping takes a turn.
const TASKS_PER_TURN: u64 = 32;
const ROUNDS_PER_TURN: u32 = 64;
/// Rounds after which housekeeping takes a turn while commits wait for the log; a round may take
/// tens of microseconds.
const ROUNDS_PER_FLUSH: u32 = 8;
/// Steps after which housekeeping takes a turn in any case; rounds of a task that never waits are
/// long.
const STEPS_PER_TURN: u32 = 2 * MAX_STEPS_ALONE;
/// Tasks that a round starts one after another in the only hot slot.
const TASKS_PER_ROUND: u32 = 8;
/// Transfers that are issued together; fewer wait for the next turn.
const TRANSFERS_PER_ROUND: usize = 8;

/// The reason why a run of rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunExit {
    /// The source is exhausted and its tasks have ended.
    SourceDone,
    /// The worker must stop, and has no task left, or none of the source.
    Stopped,
    /// The engine has failed, and no task of the worker is left.
    Failed,
    /// A typed source arrived.
    SourceCame,
}

/// One worker: the state that does not depend on the type of its source.
pub(super) struct Worker<'w> {
    pub(super) local: &'w WorkerLocal,
    pub(super) services: &'w WorkerServices,
    pub(super) group: Arc<WorkerGroup>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) counters: Arc<SchedulerCounters>,
    pub(super) options: ExecutorOptions,
    pub(super) device: Box<dyn Device>,
    pub(super) driver: Box<dyn Driver>,
    tuner: Tuner,
    /// The width of the hot queue until the next turn.
    width: usize,
    stretch: StallTimer,
    watch: WorkerWatch,
    /// True if the previous worker was seen to watch this one since it last recorded that it
    /// sleeps.
    is_watched: bool,
    contention: Contention,
    /// Sources that have not begun.
    pub(super) sources: Arc<SourceQueue>,
    queues: Option<Queues<NoTask>>,
    #[cfg(feature = "experiment")]
    batch_open: bool,
    finished_since_turn: u64,
    commits_since_turn: u64,
    rounds_since_turn: u32,
    steps_since_turn: u32,
    turn: Turn,
    /// The next time at which tasks that wait for something foreign are dropped, once the worker
    /// must stop.
    drop_foreign_at: Option<Instant>,
    /// Tasks that a round starts in the only hot slot; one if each round takes random decisions.
    tasks_per_round: u32,
    /// The source of random decisions, if enabled.
    chance: Option<fastrand::Rng>,
    /// Records the worker's activity, if enabled.
    tracer: Option<TraceWriter>,
}

impl<'w> Worker<'w> {
    pub(super) fn new(
        local: &'w WorkerLocal,
        services: &'w WorkerServices,
        sources: Arc<SourceQueue>,
        group: Arc<WorkerGroup>,
        options: ExecutorOptions,
        device: Box<dyn Device>,
        driver: Box<dyn Driver>,
    ) -> Self {
        let mailbox = group.mailboxes[local.worker as usize].clone();
        let watch = WorkerWatch::new(local.worker as usize, group.mailboxes.len(), clock::now());
        let queues = Some(Queues::new(mailbox.clone()));
        let mut worker = Self {
            local,
            services,
            group,
            mailbox,
            counters: local.counters.clone(),
            options,
            device,
            driver,
            tuner: Tuner::new(clock::now()),
            width: 1,
            stretch: StallTimer::new(clock::now(), options.trace > 0),
            watch,
            is_watched: false,
            contention: Contention::new(),
            sources,
            queues,
            #[cfg(feature = "experiment")]
            batch_open: true,
            finished_since_turn: 0,
            commits_since_turn: 0,
            rounds_since_turn: 0,
            steps_since_turn: 0,
            turn: Turn::default(),
            drop_foreign_at: None,
            tasks_per_round: if options.seed.is_some() { 1 } else { TASKS_PER_ROUND },
            chance: options.seed.map(fastrand::Rng::with_seed),
            tracer: None,
        };
        worker.width = worker.chosen_width();
        worker
    }

    /// Records the worker's activity from now on.
    pub(super) fn trace(&mut self, tracer: TraceWriter) {
        self.local.observers.set_traced();
        self.tracer = Some(tracer);
    }

    /// Runs until the worker must stop, or the engine has failed.
    pub(super) fn main(&mut self) {
        while self.run(NoSource) == RunExit::SourceCame {
            if let Some(source) = self.sources.pop() {
                source.run(self);
            }
        }
        while self.group.failure.message().is_none() {
            self.poll_device();
            if self.driver.drain(&mut *self.device) {
                break;
            }
            self.wait_for_device(Some(Duration::from_millis(10)));
        }
    }

    /// Runs a source to its end, together with the boxed tasks. Without a source, runs until one
    /// arrives or the worker must stop.
    pub(super) fn run<S: TaskSource>(&mut self, source: S) -> RunExit {
        let Some(queues) = self.queues.take() else { return RunExit::Failed };
        let queues = queues.convert();
        let typed = std::any::TypeId::of::<S>() != std::any::TypeId::of::<NoSource>();
        let (exhausted, cut_short) = (!typed, false);
        let mut run =
            WorkerRun { worker: self, queues, source, exhausted, cut_short, typed_open: 0, typed };
        // User code contains its own panics, within its tasks: this one is the engine's.
        let exit = std::panic::catch_unwind(AssertUnwindSafe(|| run.rounds()));
        let exit = exit.unwrap_or_else(|panic| {
            run.worker.group.fail(run.worker.local, panic);
            RunExit::Failed
        });
        let WorkerRun { mut queues, source, .. } = run;
        drop_contained(source);
        if exit == RunExit::Failed {
            queues.drop_all(dropping(&mut self.tracer));
            self.tracer.iter_mut().for_each(TraceWriter::hand_on);
        } else {
            self.queues = Some(queues.convert());
        }
        exit
    }

    /// Returns whether housekeeping must take a turn although tasks are ready.
    fn turn_due(&self) -> bool {
        self.finished_since_turn + self.commits_since_turn >= TASKS_PER_TURN
            || self.rounds_since_turn >= ROUNDS_PER_FLUSH
                && (self.flushes() || self.rounds_since_turn >= ROUNDS_PER_TURN)
            || self.steps_since_turn >= STEPS_PER_TURN
    }

    /// Returns whether commits wait for the log.
    #[inline(always)]
    fn flushes(&self) -> bool {
        self.turn.waits || self.commits_since_turn > 0
    }

    /// Called before an observed or traced poll. Returns its start if it is traced.
    #[cold]
    fn begin_poll(&self, slot: u32) -> Option<Instant> {
        if let Some(observer) = self.local.observers.of(slot) {
            observer.before_poll();
        }
        self.begin_slice()
    }

    /// Returns the start of a slice, if slices are recorded.
    #[inline(always)]
    fn begin_slice(&self) -> Option<Instant> {
        self.tracer.as_ref().map(|_| clock::now())
    }

    /// Records the worker's activity since `begin`, if slices are recorded.
    fn end_slice(&mut self, begin: Option<Instant>, doing: SliceActivity) {
        if let (Some(tracer), Some(begin)) = (&mut self.tracer, begin) {
            tracer.note(begin, doing);
        }
    }

    /// Called after an observed or traced poll, also if observing or tracing began during the poll.
    #[cold]
    fn end_poll(&mut self, begin: Option<Instant>, slot: u32, polled: Poll<()>) {
        if let Some(observer) = self.local.observers.of(slot) {
            observer.after_poll();
        }
        let end = match polled {
            Poll::Ready(()) => PollEnd::Over,
            Poll::Pending => PollEnd::Suspended(self.local.cause.get()),
        };
        self.end_slice(begin, SliceActivity::Poll { slot, end });
    }

    /// Returns whether no message of this worker can start a task.
    #[inline(always)]
    fn has_no_messages(&self) -> bool {
        self.mailbox.own_jobs.is_empty() && self.mailbox.jobs.is_empty()
    }

    /// Returns the next job to start, sent to this worker or to any worker.
    #[inline(always)]
    fn next_job(&self) -> Option<BoxedTask> {
        // Checked first, because the check is cheaper than an empty queue access.
        if self.has_no_messages() { None } else { self.take_job() }
    }

    // Not inlined: each type of source has a separate worker loop.
    #[inline(never)]
    fn take_job(&self) -> Option<BoxedTask> {
        let mailbox = &self.mailbox;
        mailbox.own_jobs.pop().or_else(|| mailbox.jobs.pop()).map(|job| job())
    }

    /// Opens the batch if no task runs, closes it if it is full, and returns whether it is open.
    #[cfg(feature = "experiment")]
    fn track_batch(&mut self, load: QueueLoad, width: usize) -> bool {
        let running = load.hot + load.cold + load.staged;
        if running == 0 || running >= width {
            self.batch_open = running == 0;
        }
        self.batch_open
    }

    /// The width that the options or the measurements choose.
    fn chosen_width(&self) -> usize {
        match (self.options.policy, self.options.hot_width) {
            #[cfg(feature = "experiment")]
            (Policy::Sequential, _) => 1,
            (_, Width::Fixed(width)) => width,
            (_, Width::Auto) => self.tuner.width().min(self.contention.bound()),
        }
    }
}

/// Records that tasks of slots are dropped, if enabled.
fn dropping(tracer: &mut Option<TraceWriter>) -> impl FnMut(u32) {
    move |slot| {
        if let Some(tracer) = tracer {
            tracer.note(clock::now(), SliceActivity::Drop { slot });
        }
    }
}

/// A worker while it runs one source.
struct WorkerRun<'r, 'w, S: TaskSource> {
    worker: &'r mut Worker<'w>,
    queues: Queues<S::Task>,
    source: S,
    exhausted: bool,
    /// True if the worker had to stop before the source was exhausted.
    cut_short: bool,
    /// Tasks of the source that have not ended.
    typed_open: usize,
    typed: bool,
}

/// A task to start.
enum NextTask<I> {
    Job(BoxedTask),
    /// A task that the source creates from this input.
    Typed(I),
}

impl<S: TaskSource> WorkerRun<'_, '_, S> {
    fn rounds(&mut self) -> RunExit {
        loop {
            self.admit();
            if self.queues.hot.is_empty() {
                if let Some(exit) = doorbell::idle(self) {
                    return exit;
                }
                continue;
            }
            if !std::mem::replace(&mut self.worker.is_watched, true) {
                self.worker.watch.be_watched(&self.worker.group);
            }
            self.round();
            self.worker.rounds_since_turn += 1;
            self.transfer();
            if self.worker.turn_due() {
                doorbell::turn(self, false);
                if let Some(exit) = self.exit() {
                    return exit;
                }
            }
        }
    }

    /// Issues the tasks' transfers, several at a time: each call into the kernel, and each signal
    /// to the device, costs as much as a transaction.
    fn transfer(&mut self) {
        if self.worker.services.transfers.due() >= TRANSFERS_PER_ROUND {
            self.worker.poll_device();
        }
    }

    /// Polls each task of the hot queue once. A task that takes the place of one that ended has its
    /// turn in the next round. Otherwise short tasks in one place would starve those in the others.
    /// If only one place is occupied, the round starts several tasks there, unless commits wait.
    fn round(&mut self) {
        let (mut position, mut paused, mut ended) = (0, 0, 0);
        let most = if self.worker.flushes() { 1 } else { self.worker.tasks_per_round };
        if let Some(chance) = &mut self.worker.chance {
            chance.shuffle(&mut self.queues.hot);
        }
        while position < self.queues.hot.len() {
            let index = self.queues.hot[position];
            let local = self.worker.local;
            if let Some(chance) = &mut self.worker.chance {
                local.interleave.set(chance.bool());
            }
            // Observers follow each poll.
            let is_observed = local.observers.any();
            if !is_observed && self.queues.continue_step(index) {
                (position, paused) = (position + 1, paused + 1);
                continue;
            }
            let begin = if is_observed { self.worker.begin_poll(index) } else { None };
            let polled = self.queues.poll(index, local);
            if local.observers.any() {
                self.worker.end_poll(begin, index, polled);
            }
            let stays = match polled {
                Poll::Ready(()) => {
                    self.worker.steps_since_turn += local.steps_taken();
                    let stays = self.finish(position);
                    ended += 1;
                    if stays && ended < most && self.has_only_source() {
                        continue;
                    }
                    stays
                }
                Poll::Pending => {
                    let (cause, steps) = (local.cause.get(), local.steps_taken());
                    self.worker.counters.suspensions[cause as usize].add(1);
                    self.worker.steps_since_turn += steps;
                    // The suspension costs as much as a step.
                    self.queues.count_steps(position, 1 + steps);
                    match cause {
                        WaitCause::Memory => true,
                        WaitCause::Undecided => self.move_behind_staged(position),
                        _ => self.leave(position, |run| run.wait(position, cause)),
                    }
                }
            };
            position += usize::from(stays);
        }
        if paused > 0 {
            self.worker.counters.suspensions[WaitCause::Memory as usize].add(u64::from(paused));
            self.worker.steps_since_turn += paused;
        }
    }

    /// Removes the task at `position` from the hot queue, and moves the next one to its place. The
    /// others keep their order, so that each has the same time for its cache lines to arrive.
    /// Returns `false` if no task follows.
    fn leave(&mut self, position: usize, leave: impl FnOnce(&mut Self)) -> bool {
        let last = self.queues.hot.len() - 1;
        leave(self);
        self.admit_next();
        let replaced = self.queues.hot.len() > last;
        if replaced {
            self.queues.hot.swap(position, last);
        }
        replaced
    }

    /// Makes room for another transaction, whose decision the task at `position` waits for.
    fn move_behind_staged(&mut self, position: usize) -> bool {
        if !self.queues.staged.is_empty() {
            // The deciding transaction may be staged because this task occupies its place.
            return self.leave(position, |run| run.queues.move_behind_staged(position));
        }
        if self.queues.hot.len() == 1 {
            // Or it may need this core.
            yield_thread();
        }
        true
    }

    fn wait(&mut self, position: usize, cause: WaitCause) {
        self.queues.wait(position, cause, self.worker.local);
        self.worker.commits_since_turn += u64::from(cause == WaitCause::Commit);
    }

    /// Ends the task at `position` of the hot queue. The next one of the source takes its slot, if
    /// no other task comes first; else as [`Self::leave`].
    #[inline(always)]
    fn finish(&mut self, position: usize) -> bool {
        let index = self.queues.hot[position];
        self.typed_open -= usize::from(self.queues.is_typed(index));
        self.queues.finish(index);
        self.worker.finished_since_turn += 1;
        self.worker.counters.tasks_finished.add(1);
        if self.may_refill()
            && let Some(input) = self.next_input()
        {
            self.queues.refill(index, || Task::Typed(self.source.make(input)));
            return true;
        }
        self.leave(position, |run| run.queues.release(position))
    }

    /// Returns whether the next task of the source may take the place of one that ended. Tasks
    /// resumed in this round are seen in the next.
    #[inline(always)]
    fn may_refill(&self) -> bool {
        let Worker { options, width, .. } = &*self.worker;
        let load = self.queues.load();
        !self.exhausted
            && load.staged == 0
            && load.long == 0
            && self.worker.has_no_messages()
            && self.queues.open() <= options.max_open
            && options.policy.refills(load, *width, options.cold_width)
    }

    /// Fills the hot queue: resumed tasks first, then new ones.
    #[inline(always)]
    fn admit(&mut self) {
        self.collect_resumed();
        let width = self.worker.width;
        if !self.is_full(width) {
            self.fill(width);
        }
        self.worker.local.set_interleaved(self.queues.hot.len() > 1);
    }

    /// Returns whether no task can join the hot queue, as far as a short look tells.
    #[inline(always)]
    fn is_full(&self, width: usize) -> bool {
        // The end of a batch is noticed by the long look.
        #[cfg(feature = "experiment")]
        if self.worker.options.policy == Policy::Batch {
            return false;
        }
        self.queues.is_full(width)
    }

    #[inline(never)]
    fn admit_next(&mut self) {
        self.admit();
    }

    #[inline(never)]
    fn fill(&mut self, width: usize) {
        let (policy, cold_width) = (self.worker.options.policy, self.worker.options.cold_width);
        while !self.queues.staged.is_empty() && policy.resumes_waiting(self.queues.load(), width) {
            self.queues.unstage();
        }
        loop {
            let load = self.queues.load();
            let admits = policy.admits(load, width, cold_width);
            #[cfg(feature = "experiment")]
            let admits = policy.admits_to_batch(self.worker.track_batch(load, width)) && admits;
            if !admits && !policy.admits_beside_long(load, width, cold_width) {
                break;
            }
            let Some(task) = self.next_task(admits) else {
                if admits {
                    self.worker.tuner.discard_window();
                    #[cfg(feature = "experiment")]
                    {
                        self.worker.batch_open = load.hot + load.cold + load.staged == 0;
                    }
                }
                break;
            };
            let index = match task {
                NextTask::Job(job) => self.queues.fill(|| Task::Boxed(job)),
                NextTask::Typed(input) => self.queues.fill(|| Task::Typed(self.source.make(input))),
            };
            self.queues.hot.push(index);
            if self.is_full(width) {
                break;
            }
        }
    }

    /// Returns the next task: a job, or one of the source if `may_be_typed`. Jobs wait only for
    /// running tasks, which end or start to wait themselves. They never wait for tasks that wait
    /// for something outside the engine, which may be such a job. A source may have many tasks, so
    /// all its open tasks count.
    fn next_task(&mut self, may_be_typed: bool) -> Option<NextTask<S::Input>> {
        let most = self.worker.options.max_open;
        if self.queues.running() < most
            && let Some(job) = self.worker.next_job()
        {
            return Some(NextTask::Job(job));
        }
        if self.exhausted || !may_be_typed || self.queues.open() >= most {
            return None;
        }
        self.next_input().map(NextTask::Typed)
    }

    /// Returns the next input of the source.
    #[inline(always)]
    fn next_input(&mut self) -> Option<S::Input> {
        let input = self.source.next();
        match &input {
            Some(_) => self.typed_open += 1,
            None => self.exhausted = true,
        }
        input
    }

    /// Runs the callbacks of completed detached transfers, and stages tasks that were resumed by
    /// this thread or others.
    #[inline(always)]
    fn collect_resumed(&mut self) {
        self.worker.services.transfers.run_callbacks();
        if !self.worker.services.resumed.borrow().is_empty() {
            self.stage_resumed();
        }
        if self.worker.mailbox.doorbell.is_rung() {
            self.collect_wakes();
        }
    }

    // Neither is inlined: each type of source has a separate worker loop.
    #[inline(never)]
    fn stage_resumed(&mut self) {
        while !self.worker.services.resumed.borrow().is_empty() {
            // Taken out: the waker of a part is user code, and may do anything.
            let mut resumed = self.worker.services.resumed.take();
            for waiter in resumed.drain(..) {
                self.queues.resume(waiter.resume(), self.worker.local);
            }
            self.worker.services.release(resumed);
        }
    }

    #[inline(never)]
    fn collect_wakes(&mut self) {
        while let Some(index) = self.worker.mailbox.wakes.pop() {
            self.queues.stage(index);
        }
        while let Some(resumption) = self.worker.mailbox.resumed.pop() {
            self.queues.resume(resumption.resume(), self.worker.local);
        }
    }
}
