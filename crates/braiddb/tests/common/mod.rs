//! A time limit for tests: a test that hangs fails, and says in which state it hung.

use std::any::Any;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Describe = Box<dyn Fn() -> String + Send>;

/// What a test that runs out of time prints.
#[derive(Clone, Default)]
pub struct Limit(Arc<Mutex<Vec<(String, Describe)>>>);

impl Limit {
    /// When time runs out, prints what `describe` returns then, such as the statistics of a database:
    ///
    /// ```ignore
    /// let watched = db.clone();
    /// limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
    /// ```
    ///
    /// What the closure holds, a database's handle among it, lives until the test is over.
    pub fn on_timeout(&self, what: &str, describe: impl Fn() -> String + Send + 'static) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((what.to_owned(), Box::new(describe)));
    }

    /// When time runs out, prints the statistics of `db`, a handle of which lives until the test is over:
    ///
    /// ```ignore
    /// limit.watch(&db, Database::stats);
    /// ```
    #[allow(dead_code, reason = "for the programs whose tests need nothing more")]
    pub fn watch<D: Clone + Send + 'static, S: Debug + 'static>(&self, db: &D, stats: fn(&D) -> S) {
        let db = db.clone();
        self.on_timeout("db", move || format!("{:#?}", stats(&db)));
    }

    fn describe(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return "the test named nothing to be printed".to_owned();
        }
        all.iter().map(|(what, describe)| format!("{what}: {}\n", describe())).collect()
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
        let value = test(&inside);
        drop(inside);
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
