//! Threads, waiting and the clock for controlled schedules. A thread started by a participant
//! participates too.

use std::num::NonZero;
use std::panic::Location;
use std::sync::{Arc, Mutex};

pub(crate) use std::thread::panicking;

use super::finding::SwitchPoint;
use super::schedule::{Schedule, ThreadPart, part, point};

/// Parallelism that is reported to parallel algorithms.
const PARALLELISM: NonZero<usize> = NonZero::new(2).unwrap();

/// Builder of a thread.
pub(crate) struct Builder(std::thread::Builder, String);

type ThreadResult<T> = Arc<Mutex<Option<T>>>;

/// A thread that was started.
pub(crate) enum JoinHandle<T> {
    Real(std::thread::JoinHandle<T>),
    Scheduled { number: usize, outcome: ThreadResult<T> },
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self(std::thread::Builder::new(), String::new())
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(self.0.name(name.clone()), name)
    }

    #[track_caller]
    pub(crate) fn spawn<F, T>(self, run: F) -> std::io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let Some(part) = part() else { return self.0.spawn(run).map(JoinHandle::Real) };
        let outcome = ThreadResult::default();
        let result = outcome.clone();
        let number = part.schedule.add(self.1);
        part.schedule.seat(number, move || {
            let value = run();
            *result.lock().expect("no holder panics") = Some(value);
        })?;
        point(SwitchPoint::Spawn);
        Ok(JoinHandle::Scheduled { number, outcome })
    }
}

impl<T> JoinHandle<T> {
    #[track_caller]
    pub(crate) fn join(self) -> std::thread::Result<T> {
        match self {
            Self::Real(thread) => thread.join(),
            Self::Scheduled { number, outcome } => {
                wait_for_end(number, Location::caller());
                let outcome = outcome.lock().expect("no holder panics").take();
                Ok(outcome.expect("an ended scheduled thread did not panic"))
            }
        }
    }
}

fn wait_for_end(number: usize, place: &'static Location<'static>) {
    let part = part().expect("joined by a participating thread");
    while !part.is_over(number) {
        part.wait(ThreadPart::end_of(number), None, place);
    }
}

/// Scope of threads that end before the data they borrow.
pub(crate) struct Scope<'scope, 'env> {
    real: &'scope std::thread::Scope<'scope, 'env>,
    scheduled: Mutex<Vec<usize>>,
}

/// A thread of a scope.
pub(crate) enum ScopedJoinHandle<'scope, T> {
    Real(std::thread::ScopedJoinHandle<'scope, T>),
    Scheduled { number: usize, outcome: ThreadResult<T> },
}

/// Runs `f`, and waits for the threads that it starts.
#[track_caller]
pub(crate) fn scope<'env, F, T>(f: F) -> T
where
    F: for<'s, 'scope> FnOnce(&'s Scope<'scope, 'env>) -> T,
{
    let place = Location::caller();
    std::thread::scope(|real| {
        let scope = Scope { real, scheduled: Mutex::default() };
        let value = f(&scope);
        for number in scope.scheduled.into_inner().expect("no holder panics") {
            wait_for_end(number, place);
        }
        value
    })
}

/// Starts a thread in a scope.
///
/// # Errors
/// Those of the operating system, if no more threads are allowed.
#[track_caller]
pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    match part() {
        Some(_) => Ok(scope.spawn(run)),
        None => {
            std::thread::Builder::new().spawn_scoped(scope.real, run).map(ScopedJoinHandle::Real)
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    #[track_caller]
    pub(crate) fn spawn<F, T>(&self, run: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let Some(part) = part() else { return ScopedJoinHandle::Real(self.real.spawn(run)) };
        let outcome = ThreadResult::default();
        let result = outcome.clone();
        let number = part.schedule.add("scoped".to_owned());
        let run: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            let value = run();
            *result.lock().expect("no holder panics") = Some(value);
        });
        // SAFETY: `scope` waits until the thread has ended, when `run` is dropped, before it
        // returns; an abandoned schedule stops both permanently.
        let run: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(run) };
        let seated = part.schedule.seat(number, run);
        seated.expect("threads for a schedule");
        self.scheduled.lock().expect("no holder panics").push(number);
        point(SwitchPoint::Spawn);
        ScopedJoinHandle::Scheduled { number, outcome }
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    #[track_caller]
    pub(crate) fn join(self) -> std::thread::Result<T> {
        match self {
            Self::Real(thread) => thread.join(),
            Self::Scheduled { number, outcome } => {
                wait_for_end(number, Location::caller());
                let outcome = outcome.lock().expect("no holder panics").take();
                Ok(outcome.expect("an ended scheduled thread did not panic"))
            }
        }
    }
}

/// A handle to unpark a thread.
#[derive(Clone)]
pub(crate) enum Thread {
    Real(std::thread::Thread),
    Scheduled { schedule: Arc<Schedule>, number: usize },
}

impl Thread {
    pub(crate) fn unpark(&self) {
        match self {
            Self::Real(thread) => thread.unpark(),
            Self::Scheduled { schedule, number } => {
                let part = part().expect("scheduled threads are unparked by others of them");
                assert!(Arc::ptr_eq(&part.schedule, schedule), "of one schedule");
                part.unpark(*number);
            }
        }
    }
}

pub(crate) fn current() -> Thread {
    part().map_or_else(
        || Thread::Real(std::thread::current()),
        |part| Thread::Scheduled { schedule: part.schedule.clone(), number: part.number },
    )
}

#[track_caller]
pub(crate) fn park() {
    match part() {
        Some(part) => part.park(Location::caller()),
        None => std::thread::park(),
    }
}

pub(crate) fn available_parallelism() -> std::io::Result<NonZero<usize>> {
    if part().is_some() { Ok(PARALLELISM) } else { std::thread::available_parallelism() }
}

/// Lets other threads run.
#[track_caller]
pub(crate) fn yield_thread() {
    match part() {
        Some(part) => part.give_way(Location::caller()),
        None => std::thread::yield_now(),
    }
}

/// The clock: virtual time in a controlled schedule.
pub(crate) mod clock {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use super::{SwitchPoint, part, point};

    /// The current time.
    #[track_caller]
    pub(crate) fn now() -> Instant {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let Some(part) = part() else { return Instant::now() };
        point(SwitchPoint::Clock);
        *BEGIN.get_or_init(Instant::now) + Duration::from_micros(part.now())
    }

    /// Milliseconds since 1970, by the same clock: schedules begin in 2001.
    #[track_caller]
    pub(crate) fn wall_milliseconds() -> u64 {
        const BEGIN: u64 = 1_000_000_000_000;
        let Some(part) = part() else {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        };
        point(SwitchPoint::Clock);
        BEGIN + part.now() / 1000
    }
}
