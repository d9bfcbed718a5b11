//! One controlled schedule: real threads, of which only the holder of the baton runs.
//!
//! Invariants: one thread at a time holds the baton, so only the holder accesses [`ScheduleCore`]. The
//! baton is passed on only at switch points. The next holder depends only on the seed and on what
//! happened before: the same seed replays the same schedule. A waiting thread is skipped until its
//! resource is announced, or its deadline passes in virtual time. Time advances with steps. If
//! every thread waits, it jumps to the next deadline; without a deadline, that is a deadlock.

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use super::finding::{Finding, FindingKind, ScheduleReport, SwitchPoint, ThreadReport, TraceEntry};
use super::pool::ThreadPool;
use super::strategy::{Candidate, PLACES, Strategy};

/// Maximum number of threads in a schedule, including ended ones.
const MAX_THREADS: usize = 256;
/// Maximum number of switch points in a trace.
const TRACE_ENTRIES: usize = 20_000;

/// Options of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleOptions {
    /// Determines the whole schedule.
    pub seed: u64,
    /// Maximum number of steps before a schedule counts as stuck.
    pub max_steps: u64,
    /// If set, the last switch points are recorded for a finding.
    pub trace: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Runnable,
    Waiting { resource: usize, deadline: Option<u64> },
    Over,
}

struct ScheduledThread {
    name: String,
    state: ThreadState,
    /// Set if its last deadline passed before its resource was announced.
    timed_out: bool,
    /// Set if it was unparked, or its next park must return immediately.
    unparked: bool,
    place: &'static Location<'static>,
    point: SwitchPoint,
}

/// State of a schedule that only the holder of the baton accesses.
struct ScheduleCore {
    steps: u64,
    switches: u64,
    hash: u64,
    /// The step at which the strategy, or a limit, decides next.
    decide_at: u64,
    /// The class of source lines at which the strategy decides every time.
    residue: Option<u32>,
    /// Virtual time that passed without steps.
    skipped: u64,
    switching: bool,
    threads: Vec<ScheduledThread>,
    strategy: Strategy,
    max_steps: u64,
    trace: Option<VecDeque<TraceEntry>>,
    resources: usize,
}

/// The place where a thread waits for the baton.
#[derive(Default)]
struct Seat {
    holds: AtomicBool,
    thread: OnceLock<std::thread::Thread>,
}

/// Result of a schedule.
pub(super) enum ScheduleEnd {
    Over(ScheduleReport),
    Found(Box<Finding>),
}

type Describe = Box<dyn Fn() -> String + Send>;

/// A schedule, shared by its threads.
pub(crate) struct Schedule {
    core: UnsafeCell<ScheduleCore>,
    seats: Box<[Seat]>,
    ending: Mutex<Option<ScheduleEnd>>,
    ended: Condvar,
    describe: Mutex<Option<Describe>>,
    pool: Arc<ThreadPool>,
}

// SAFETY: only the holder of the baton accesses `core`, and passing it on is a Release store that
// the next holder's Acquire exchange reads.
unsafe impl Sync for Schedule {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Schedule {}

/// A thread's participation in a schedule.
pub(super) struct ThreadPart {
    pub(super) schedule: Arc<Schedule>,
    pub(super) number: usize,
}

thread_local! {
    static PART: Cell<*const ThreadPart> = const { Cell::new(std::ptr::null()) };
    static PANIC_PLANNED: Cell<bool> = const { Cell::new(false) };
}

/// This thread's participation, if any.
#[inline(always)]
pub(super) fn part() -> Option<&'static ThreadPart> {
    // SAFETY: null, or set by `ThreadPart::play` to a part that outlives the thread's run, which clears
    // it.
    unsafe { PART.get().as_ref() }
}

/// Returns whether this thread participates in a schedule.
#[inline(always)]
pub(crate) fn takes_part() -> bool {
    !PART.get().is_null()
}

/// The number of this thread in its schedule, if it participates in one.
#[inline(always)]
pub(crate) fn number_in_schedule() -> Option<usize> {
    part().map(|part| part.number)
}

/// Passes a switch point, on a participating thread.
#[inline(always)]
#[track_caller]
pub(crate) fn point(kind: SwitchPoint) {
    if let Some(part) = part() {
        part.step(kind, Location::caller());
    }
}

/// Sets whether panics on this thread are planned, and no finding; returns the previous setting.
pub(super) fn plan_panics(planned: bool) -> bool {
    PANIC_PLANNED.replace(planned)
}

pub(super) fn panic_is_planned() -> bool {
    PANIC_PLANNED.get()
}

impl Schedule {
    pub(super) fn new(options: ScheduleOptions, pool: Arc<ThreadPool>) -> Arc<Self> {
        let core = ScheduleCore {
            steps: 0,
            switches: 0,
            hash: options.seed,
            decide_at: 0,
            residue: None,
            skipped: 0,
            switching: false,
            threads: Vec::new(),
            strategy: Strategy::new(options.seed),
            max_steps: options.max_steps,
            trace: options.trace.then(VecDeque::new),
            resources: 0,
        };
        Arc::new(Self {
            core: UnsafeCell::new(core),
            seats: (0..MAX_THREADS).map(|_| Seat::default()).collect(),
            ending: Mutex::new(None),
            ended: Condvar::new(),
            describe: Mutex::new(None),
            pool,
        })
    }

    /// Adds a thread. Must be called by the holder of the baton, or before any thread holds it.
    #[track_caller]
    pub(super) fn add(&self, name: String) -> usize {
        // SAFETY: the caller holds the baton.
        let core = unsafe { &mut *self.core.get() };
        let number = core.threads.len();
        assert!(number < MAX_THREADS, "a schedule of more than {MAX_THREADS} threads");
        core.threads.push(ScheduledThread {
            name,
            state: ThreadState::Runnable,
            timed_out: false,
            unparked: false,
            place: Location::caller(),
            point: SwitchPoint::Spawn,
        });
        core.strategy.add_thread();
        core.decide_at = core.steps;
        number
    }

    /// Assigns a thread of the pool to `number`, where it runs `run` once it holds the baton.
    pub(super) fn seat(
        self: &Arc<Self>,
        number: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let idle = self.pool.take()?;
        let is_free = self.seats[number].thread.set(idle.thread().clone()).is_ok();
        assert!(is_free, "a seat is taken once");
        let part = ThreadPart { schedule: self.clone(), number };
        self.pool.run_on(idle, move || part.play(run));
        Ok(())
    }

    pub(super) fn pass_to(&self, number: usize) {
        let seat = &self.seats[number];
        // Release pairs with the Acquire in `take`: this thread's actions come before.
        seat.holds.store(true, Ordering::Release);
        seat.thread.get().expect("threads are seated before they run").unpark();
    }

    fn take(&self, number: usize) {
        // Acquire pairs with the Release in `pass_to`.
        while !self.seats[number].holds.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Waits for the end, on a thread that does not participate.
    pub(super) fn wait(&self) -> ScheduleEnd {
        let mut ending = self.ending.lock().expect(NO_PANIC);
        loop {
            if let Some(ending) = ending.take() {
                return ending;
            }
            ending = self.ended.wait(ending).expect(NO_PANIC);
        }
    }

    fn end(&self, ending: ScheduleEnd) {
        *self.ending.lock().expect(NO_PANIC) = Some(ending);
        self.ended.notify_all();
    }

    /// Sets the function that describes the database in a finding.
    pub(super) fn describe_by(&self, describe: Describe) {
        *self.describe.lock().expect(NO_PANIC) = Some(describe);
    }
}

const NO_PANIC: &str = "no holder panics";

impl ThreadPart {
    /// Runs `run` as this part: waits for the baton, and leaves the schedule at the end.
    pub(super) fn play(&self, run: impl FnOnce()) {
        self.schedule.take(self.number);
        PART.set(self);
        run();
        PART.set(std::ptr::null());
        self.finish();
    }

    #[expect(clippy::mut_from_ref, reason = "exclusive by the baton, not by the borrow")]
    fn core(&self) -> &mut ScheduleCore {
        // SAFETY: this thread holds the baton whenever it runs; callers keep no reference beyond
        // the next switch.
        unsafe { &mut *self.schedule.core.get() }
    }

    /// Passes a switch point.
    #[inline(always)]
    fn step(&self, kind: SwitchPoint, place: &'static Location<'static>) {
        self.count(kind, place);
        let core = self.core();
        if core.steps >= core.decide_at || core.residue == Some(place.line() % PLACES) {
            self.maybe_switch(kind, place);
        }
    }

    #[inline(always)]
    fn count(&self, kind: SwitchPoint, place: &'static Location<'static>) {
        let core = self.core();
        core.steps += 1;
        core.hash = (core.hash.rotate_left(7) ^ ((self.number as u64) << 8 | kind as u64))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(trace) = &mut core.trace {
            remember(trace, core.steps, self.number, kind, place);
        }
    }

    /// Lets the strategy decide whether to pass the baton on here.
    #[cold]
    fn maybe_switch(&self, kind: SwitchPoint, place: &'static Location<'static>) {
        let core = self.core();
        if core.steps > core.max_steps {
            let message = format!("no end after {} steps", core.steps);
            self.fail(FindingKind::NoProgress, message, place);
        }
        (core.threads[self.number].place, core.threads[self.number].point) = (place, kind);
        core.wake_due();
        if !core.switching {
            core.decide_at = core.steps + 10_000;
            return;
        }
        let candidates = core.candidates();
        let chosen_place = core.residue == Some(place.line() % PLACES);
        let next = core.strategy.at_point(self.number, core.steps, chosen_place, &candidates);
        core.residue = core.strategy.residue();
        core.decide_at = core.next_decision();
        self.switch(next);
    }

    fn switch(&self, next: usize) {
        if next == self.number {
            return;
        }
        let core = self.core();
        core.switches += 1;
        self.schedule.pass_to(next);
        self.schedule.take(self.number);
    }

    /// Yields to the other threads.
    pub(super) fn give_way(&self, place: &'static Location<'static>) {
        self.step(SwitchPoint::Yield, place);
        let core = self.core();
        (core.threads[self.number].place, core.threads[self.number].point) =
            (place, SwitchPoint::Yield);
        core.wake_due();
        let candidates = core.candidates();
        let next = core.strategy.at_yield(self.number, core.steps, &candidates);
        core.decide_at = core.next_decision();
        self.switch(next);
    }

    /// Waits until `resource` is announced, or for this long; returns whether it was announced. No
    /// other thread runs between the caller's last check and the listing of this thread as waiting.
    pub(super) fn wait(
        &self,
        resource: usize,
        timeout: Option<u64>,
        place: &'static Location<'static>,
    ) -> bool {
        self.count(SwitchPoint::Block, place);
        let core = self.core();
        let deadline = timeout.map(|timeout| core.now() + timeout);
        let me = &mut core.threads[self.number];
        (me.place, me.point, me.timed_out) = (place, SwitchPoint::Block, false);
        me.state = ThreadState::Waiting { resource, deadline };
        self.leave(place);
        !self.core().threads[self.number].timed_out
    }

    /// Passes the baton on although this thread cannot continue.
    fn leave(&self, place: &'static Location<'static>) {
        let core = self.core();
        core.wake_due();
        loop {
            let candidates = core.candidates();
            if !candidates.is_empty() {
                let next = core.strategy.when_blocked(self.number, core.steps, &candidates);
                core.decide_at = core.next_decision();
                return self.switch(next);
            }
            let Some(deadline) = core.next_deadline() else {
                let message = "every thread waits without a deadline".to_owned();
                self.fail(FindingKind::Deadlock, message, place);
            };
            core.skipped += deadline.saturating_sub(core.now());
            core.wake_due();
        }
    }

    /// Makes the threads that wait for `resource` runnable.
    pub(super) fn announce(&self, resource: usize) {
        let core = self.core();
        for thread in &mut core.threads {
            if matches!(thread.state, ThreadState::Waiting { resource: of, .. } if of == resource) {
                thread.state = ThreadState::Runnable;
                core.decide_at = core.decide_at.min(core.steps + core.strategy.patience());
            }
        }
    }

    /// Creates a unique resource.
    pub(super) fn new_resource(&self) -> usize {
        let core = self.core();
        core.resources += 1;
        // Odd, so that it differs from every address.
        core.resources * 2 + 1
    }

    pub(super) fn is_over(&self, thread: usize) -> bool {
        self.core().threads[thread].state == ThreadState::Over
    }

    /// The resource that the end of a thread announces.
    pub(super) fn end_of(thread: usize) -> usize {
        usize::MAX - 2 * thread
    }

    /// The resource that a parked thread waits for.
    fn unparking_of(thread: usize) -> usize {
        usize::MAX - 2 * (thread + MAX_THREADS)
    }

    pub(super) fn park(&self, place: &'static Location<'static>) {
        self.step(SwitchPoint::Queue, place);
        if !std::mem::take(&mut self.core().threads[self.number].unparked) {
            self.wait(Self::unparking_of(self.number), None, place);
            self.core().threads[self.number].unparked = false;
        }
    }

    pub(super) fn unpark(&self, thread: usize) {
        self.core().threads[thread].unparked = true;
        self.announce(Self::unparking_of(thread));
    }

    /// The virtual time, in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.core().now()
    }

    pub(super) fn set_switching(&self, switching: bool) {
        let core = self.core();
        core.switching = switching;
        core.decide_at = core.steps;
    }

    pub(super) fn report(&self) -> ScheduleReport {
        let core = self.core();
        ScheduleReport { steps: core.steps, switches: core.switches, hash: core.hash }
    }

    fn finish(&self) {
        let core = self.core();
        core.hash = core.hash.wrapping_add(self.number as u64);
        core.threads[self.number].state = ThreadState::Over;
        self.announce(Self::end_of(self.number));
        let core = self.core();
        if core.threads.iter().all(|thread| thread.state == ThreadState::Over) {
            self.schedule.end(ScheduleEnd::Over(self.report()));
            return;
        }
        core.wake_due();
        loop {
            let candidates = core.candidates();
            if !candidates.is_empty() {
                let next = core.strategy.when_blocked(self.number, core.steps, &candidates);
                core.decide_at = core.next_decision();
                core.switches += 1;
                return self.schedule.pass_to(next);
            }
            let Some(deadline) = core.next_deadline() else {
                let message = "every remaining thread waits without a deadline".to_owned();
                self.fail(FindingKind::Deadlock, message, Location::caller());
            };
            core.skipped += deadline.saturating_sub(core.now());
            core.wake_due();
        }
    }

    /// Ends the schedule with a finding. All its threads, including this one, stop permanently.
    pub(super) fn fail(
        &self,
        kind: FindingKind,
        message: String,
        place: &'static Location<'static>,
    ) -> ! {
        PART.set(std::ptr::null());
        let core = self.core();
        core.threads[self.number].place = place;
        let threads = core.threads.iter().enumerate().map(|(number, thread)| ThreadReport {
            name: thread.name.clone(),
            state: if number == self.number {
                "holds the baton".to_owned()
            } else {
                thread.describe()
            },
            place: thread.place.to_string(),
        });
        let finding = Finding {
            kind,
            message,
            threads: threads.collect(),
            report: self.report(),
            database: self.describe_database(),
            trace: core.trace.take().unwrap_or_default().into(),
        };
        self.schedule.end(ScheduleEnd::Found(Box::new(finding)));
        loop {
            std::thread::park();
        }
    }

    /// Describes the database, unless that needs a lock of a stopped thread.
    fn describe_database(&self) -> String {
        let Some(describe) = self.schedule.describe.lock().expect(NO_PANIC).take() else {
            return String::new();
        };
        let (sender, message) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            _ = sender.send(describe());
            // References to the database are leaked, like everything else.
            std::mem::forget(describe);
        });
        let patience = std::time::Duration::from_secs(1);
        message.recv_timeout(patience).unwrap_or_else(|_| "the statistics are locked".to_owned())
    }
}

fn remember(
    trace: &mut VecDeque<TraceEntry>,
    step: u64,
    thread: usize,
    point: SwitchPoint,
    place: &'static Location<'static>,
) {
    if trace.len() == TRACE_ENTRIES {
        trace.pop_front();
    }
    trace.push_back(TraceEntry { step, thread, point, place });
}

impl ScheduledThread {
    fn describe(&self) -> String {
        match self.state {
            ThreadState::Runnable => format!("runnable after {:?}", self.point),
            ThreadState::Waiting { deadline: None, .. } => "waits".to_owned(),
            ThreadState::Waiting { deadline: Some(time), .. } => format!("waits until {time} us"),
            ThreadState::Over => "has ended".to_owned(),
        }
    }
}

impl ScheduleCore {
    fn now(&self) -> u64 {
        self.steps + self.skipped
    }

    /// Makes the threads runnable whose deadline has passed.
    fn wake_due(&mut self) {
        let now = self.now();
        for thread in &mut self.threads {
            if let ThreadState::Waiting { deadline: Some(deadline), .. } = thread.state
                && deadline <= now
            {
                (thread.state, thread.timed_out) = (ThreadState::Runnable, true);
            }
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let deadlines = self.threads.iter().filter_map(|thread| match thread.state {
            ThreadState::Waiting { deadline, .. } => deadline,
            ThreadState::Runnable | ThreadState::Over => None,
        });
        deadlines.min()
    }

    fn candidates(&self) -> smallvec::SmallVec<[Candidate; 16]> {
        let threads = self.threads.iter().enumerate();
        threads.filter(|(_, one)| one.state == ThreadState::Runnable).map(|(n, _)| n).collect()
    }

    /// The step at which the strategy decides next.
    fn next_decision(&self) -> u64 {
        let strategy = if self.switching { self.strategy.next() } else { u64::MAX };
        let deadline = self.next_deadline().map_or(u64::MAX, |at| at.saturating_sub(self.skipped));
        strategy.min(deadline).min(self.max_steps + 1).max(self.steps + 1)
    }
}
