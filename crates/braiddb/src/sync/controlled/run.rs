//! Runner of schedules, and the interface for a schedule's body and its simulated disk.

use std::panic::Location;
use std::sync::{Arc, Mutex, Once};

use super::finding::{Finding, FindingKind, ScheduleReport, SwitchPoint};
use super::pool::ThreadPool;
use super::schedule::{
    Schedule, ScheduleEnd, ScheduleOptions, panic_is_planned, part, plan_panics, point,
};
use super::thread::{Builder, JoinHandle};
use crate::sync::affinity;

/// Runs schedules, one after another, on threads that it keeps.
///
/// All its threads stay on the caller's core: they take turns, and passing the baton to another
/// core takes several times as long.
#[derive(Default)]
pub struct Runner(Arc<ThreadPool>);

/// Result of a schedule.
#[derive(Debug)]
pub enum ScheduleResult<T> {
    /// It ended without a finding.
    Over(T, ScheduleReport),
    /// It found a fault. Its threads stop where they were, and their resources are never freed.
    Found(Box<Finding>),
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    /// Creates a runner on one core, for the calling thread and the threads of its schedules.
    #[must_use]
    pub fn on_core(number: usize) -> Self {
        let cores = affinity::cores();
        if let Some(core) = cores.get(number % cores.len().max(1)) {
            affinity::stay_on(*core);
        }
        Self::default()
    }

    /// Runs `body`, and everything that it starts, as one schedule. Before `body` calls
    /// [`switch_threads`], threads are switched only where one waits.
    ///
    /// # Panics
    /// Panics if the operating system has no threads left.
    pub fn run<T: Send + 'static>(
        &self,
        options: ScheduleOptions,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> ScheduleResult<T> {
        tell_panics();
        let schedule = Schedule::new(options, self.0.clone());
        let number = schedule.add("main".to_owned());
        let value = Arc::new(Mutex::new(None));
        let set = value.clone();
        let seated = schedule.seat(number, move || {
            let body = body();
            *set.lock().expect("no holder panics") = Some(body);
        });
        seated.expect("threads to run schedules");
        schedule.pass_to(number);
        match schedule.wait() {
            ScheduleEnd::Over(report) => {
                let value = value.lock().expect("no holder panics").take();
                ScheduleResult::Over(value.expect("the body has ended"), report)
            }
            ScheduleEnd::Found(finding) => ScheduleResult::Found(finding),
        }
    }
}

/// Turns panics on participating threads into findings; installed once per process.
fn tell_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match part() {
            Some(_) if panic_is_planned() => {}
            Some(part) => {
                let mut message = panic.to_string();
                if std::env::var_os("RUST_BACKTRACE").is_some() {
                    message += &format!("\n{}", std::backtrace::Backtrace::force_capture());
                }
                part.fail(FindingKind::Panic, message, Location::caller());
            }
            None => before(panic),
        }));
    });
}

/// A thread of the schedule's body.
pub struct Client<T>(JoinHandle<T>);

impl<T> std::fmt::Debug for Client<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl<T> Client<T> {
    /// Waits until the thread has ended.
    ///
    /// # Panics
    /// Panics if the thread panicked outside of a schedule.
    #[track_caller]
    pub fn join(self) -> T {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Starts a thread that participates in the schedule, if the caller does.
///
/// # Panics
/// Panics if the operating system has no threads left.
#[track_caller]
pub fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> Client<T> {
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    Client(thread.expect("threads for a schedule's clients"))
}

/// Enables thread switches where the seed decides, or restricts them to waits.
pub fn switch_threads(switch: bool) {
    if let Some(part) = part() {
        part.set_switching(switch);
    }
}

/// Lets other threads run.
#[track_caller]
pub fn give_way() {
    super::thread::yield_thread();
}

/// Lets other threads run for this many microseconds of the schedule's virtual time.
#[track_caller]
pub fn pause(microseconds: u64) {
    let part = part().expect("a participating thread");
    part.wait(part.new_resource(), Some(microseconds), Location::caller());
}

/// Sets the function that describes the database in a finding; it is called on a thread that does
/// not participate.
pub fn describe_by(describe: impl Fn() -> String + Send + 'static) {
    if let Some(part) = part() {
        part.schedule.describe_by(Box::new(describe));
    }
}

/// Ends the schedule with a finding. `message` describes the impossible result of the database.
///
/// # Panics
/// Panics on a thread that does not participate.
#[track_caller]
pub fn found_wrong(message: String) -> ! {
    let part = part().expect("a participating thread");
    part.fail(FindingKind::Wrong, message, Location::caller())
}

/// Sets whether panics on this thread are planned, and no finding; returns the previous setting.
pub fn planned_panics(planned: bool) -> bool {
    plan_panics(planned)
}

/// The schedule's virtual time in microseconds, on a participating thread.
pub(crate) fn virtual_now() -> Option<u64> {
    part().map(|part| part.now())
}

/// Creates a resource to wait for, on a participating thread.
pub(crate) fn new_resource() -> usize {
    part().expect("a participating thread").new_resource()
}

/// Waits until `resource` is announced, or for this many microseconds.
#[track_caller]
pub(crate) fn wait_for(resource: usize, timeout: Option<u64>) {
    part().expect("a participating thread").wait(resource, timeout, Location::caller());
}

/// Resumes the threads that wait for `resource`.
pub(crate) fn announce(resource: usize) {
    if let Some(part) = part() {
        part.announce(resource);
    }
}

/// Passes the switch point of a device operation.
#[track_caller]
pub(crate) fn device_point() {
    point(SwitchPoint::Device);
}
