//! Time limits for tests: a test that hangs fails and prints its state. Tests of crates built on
//! the engine use them too.

use std::any::Any;
use std::cell::RefCell;
use std::fs;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braiddb::{BusyWith, Database, Error, WeakDatabase};

type Describe = Box<dyn Fn() -> String + Send>;

/// Far more than the duration of a unit test of the engine, on a loaded machine.
#[allow(dead_code, reason = "for the tests of parts")]
pub const PART_SECONDS: u64 = 120;

/// The state that a test prints when its time limit expires.
#[derive(Clone, Default)]
pub struct Limit(Arc<Mutex<Printed>>);

#[derive(Default)]
struct Printed {
    named: Vec<(String, Describe)>,
    databases: Vec<WeakDatabase>,
    /// The current operation of the code under test, and its database.
    now: String,
    at_work: Option<WeakDatabase>,
}

impl Limit {
    /// When the time limit expires, prints the result of `describe` and the statistics of all
    /// [`Watched`] databases. Values that the closure owns live until the test ends.
    #[allow(dead_code, reason = "for the programs whose tests need nothing more")]
    pub fn on_timeout(&self, what: &str, describe: impl Fn() -> String + Send + 'static) {
        self.printed().named.push((what.to_owned(), Box::new(describe)));
    }

    /// Returns the limit of the test that this thread runs.
    fn of_this_test() -> Self {
        LIMIT
            .with_borrow(Clone::clone)
            .expect("a database that is watched is opened by a test's own thread")
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self) -> String {
        let printed = self.printed();
        let mut told = Vec::new();
        if !printed.now.is_empty() {
            told.push(format!("at work: {}", printed.now));
        }
        told.extend(printed.named.iter().map(|(what, describe)| format!("{what}: {}", describe())));
        let databases = printed.databases.iter().chain(&printed.at_work);
        let databases: Vec<_> = databases.filter_map(WeakDatabase::upgrade).collect();
        told.extend(databases.iter().map(|db| format!("{:#?}", db.stats())));
        if databases.is_empty() {
            told.push("no database is open that is watched".to_owned());
        }
        told.push(format!("threads of the process:\n{}", threads()));
        told.join("\n")
    }
}

/// Returns each thread of the process: its name, its state, and its place in the kernel.
fn threads() -> String {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lines = tasks.map(|task| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, stat, place) = (read("comm"), read("stat"), read("wchan"));
        // After the name, which may contain spaces and brackets: the state, ...; user and system
        // time in ticks.
        let numbers: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |place: usize| numbers.get(place).copied().unwrap_or("?");
        let [state, user, kernel] = [number(0), number(11), number(12)];
        format!("{}: {state} in {place}, {user} and {kernel} ticks\n", name.trim_end())
    });
    lines.collect()
}

/// In a test with a time limit, includes the statistics of the current database of the code under
/// test, like those of a [`Watched`] one, until it uses another one. Has no effect on threads
/// without a test.
#[allow(dead_code, reason = "for tests of what is built on the engine")]
pub fn working_on(db: &Database) {
    LIMIT.with_borrow(|limit| {
        if let Some(limit) = limit {
            limit.printed().at_work = Some(db.downgrade());
        }
    });
}

/// In a test with a time limit, records the current operation of the code under test for the output
/// at the limit.
#[allow(dead_code, reason = "for tests of what is built on the engine")]
pub fn doing(what: &str) {
    LIMIT.with_borrow(|limit| {
        if let Some(limit) = limit {
            what.clone_into(&mut limit.printed().now);
        }
    });
}

thread_local! {
    static LIMIT: RefCell<Option<Limit>> = const { RefCell::new(None) };
}

/// Repeats a request while a checkpoint is in progress: workers start checkpoints automatically.
///
/// # Errors
/// Returns all other errors.
#[allow(dead_code, reason = "for databases whose checkpoints become due in a test")]
pub fn once_free<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask() {
            Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
            answer => return answer,
        }
    }
}

/// A database whose statistics are printed when the time limit of its test expires.
#[allow(dead_code, reason = "for the programs whose tests open none")]
pub trait Watched {
    /// Returns the same database, registered without keeping it open.
    fn watched(self) -> Self;
}

impl Watched for Database {
    fn watched(self) -> Self {
        Limit::of_this_test().printed().databases.push(self.downgrade());
        self
    }
}

/// Runs `test` on a separate thread and returns its result. Propagates its panics.
///
/// # Panics
/// Panics after `seconds` with the output of [`Limit::on_timeout`]. The thread keeps running until
/// the process ends with the last test.
pub fn with_limit<T: Send + 'static>(
    seconds: u64,
    test: impl FnOnce(&Limit) -> T + Send + 'static,
) -> T {
    // Limits are for optimised builds; others take about twice as long. Sanitizers, which use builds
    // with the system allocator, slow tests down many times.
    let seconds = if cfg!(braid_system_allocator) { 10 * seconds } else { 2 * seconds };
    let limit = Limit::default();
    let (over, ended) = channel();
    let inside = limit.clone();
    let thread = std::thread::Builder::new().name("test".to_owned()).spawn(move || {
        LIMIT.set(Some(inside.clone()));
        let value = test(&inside);
        // The receiver is gone if the time limit expired.
        _ = over.send(());
        value
    });
    let thread = thread.expect("a thread for the test");
    match ended.recv_timeout(Duration::from_secs(seconds)) {
        // The sender was dropped: the test panicked.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|panic: Box<dyn Any + Send>| resume_unwind(panic))
        }
        Err(RecvTimeoutError::Timeout) => {
            panic!("the test is not over after {seconds} s; {}", limit.describe())
        }
    }
}
