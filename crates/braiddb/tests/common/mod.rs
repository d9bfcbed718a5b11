//! A time limit for tests: a test that hangs fails, and says in which state it hung.

use std::any::Any;
use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braiddb::{Database, WeakDatabase};

type Describe = Box<dyn Fn() -> String + Send>;

/// Far more than the test of one part of the engine takes, on a loaded machine.
#[allow(dead_code, reason = "for the tests of parts")]
pub const PART_SECONDS: u64 = 120;

/// What a test that runs out of time prints.
#[derive(Clone, Default)]
pub struct Limit(Arc<Mutex<Printed>>);

#[derive(Default)]
struct Printed {
    named: Vec<(String, Describe)>,
    databases: Vec<WeakDatabase>,
}

impl Limit {
    /// When time runs out, prints what `describe` returns then, beside the statistics of the databases that are
    /// [`Watched`]. What the closure holds lives until the test is over.
    #[allow(dead_code, reason = "for the programs whose tests need nothing more")]
    pub fn on_timeout(&self, what: &str, describe: impl Fn() -> String + Send + 'static) {
        self.printed().named.push((what.to_owned(), Box::new(describe)));
    }

    /// The limit of the test that this thread runs.
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
        let named =
            printed.named.iter().map(|(what, describe)| format!("{what}: {}\n", describe()));
        let databases = printed.databases.iter().filter_map(WeakDatabase::upgrade);
        let all: String = named.chain(databases.map(|db| format!("{:#?}\n", db.stats()))).collect();
        match all.is_empty() {
            true => "no database is open".to_owned(),
            false => all,
        }
    }
}

thread_local! {
    static LIMIT: RefCell<Option<Limit>> = const { RefCell::new(None) };
}

/// A database whose statistics are printed when the time of the test runs out that opened it.
#[allow(dead_code, reason = "for the programs whose tests open none")]
pub trait Watched {
    /// The same database, which this does not keep open.
    fn watched(self) -> Self;
}

impl Watched for Database {
    fn watched(self) -> Self {
        Limit::of_this_test().printed().databases.push(self.downgrade());
        self
    }
}

/// Runs `test` on a thread of its own, and returns what it returns. A panic in it is passed on.
///
/// # Panics
/// When `seconds` have passed, with what was given to [`Limit::on_timeout`]. The thread is left behind:
/// the process ends with the last test.
pub fn with_limit<T: Send + 'static>(
    seconds: u64,
    test: impl FnOnce(&Limit) -> T + Send + 'static,
) -> T {
    // Sanitizers, for which builds with the system's allocator are, make everything many times slower.
    let seconds = if cfg!(braid_system_allocator) { 10 * seconds } else { seconds };
    let limit = Limit::default();
    let (over, ended) = channel();
    let inside = limit.clone();
    let thread = std::thread::Builder::new().name("test".to_owned()).spawn(move || {
        LIMIT.set(Some(inside.clone()));
        let value = test(&inside);
        // Nobody waits any more if the time ran out.
        _ = over.send(());
        value
    });
    let thread = thread.expect("a thread for the test");
    match ended.recv_timeout(Duration::from_secs(seconds)) {
        // The sender went without a word: the test panicked.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|panic: Box<dyn Any + Send>| resume_unwind(panic))
        }
        Err(RecvTimeoutError::Timeout) => {
            panic!("the test is not over after {seconds} s; {}", limit.describe())
        }
    }
}
