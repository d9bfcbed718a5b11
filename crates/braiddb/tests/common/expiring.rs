//! Tables with expiring records, and the clock for their expiry, which the test controls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use braiddb::{Database, Options, Table, TableOptions, Tuning, WallClock};

/// The time to live of records in milliseconds. Only the test advances the clock. Automatic sweeps
/// are an eighth of this apart in real time, so that none happens during a test.
pub const TTL: u64 = 8 * 3_600_000;

/// A clock that the test sets, in milliseconds.
#[derive(Clone)]
pub struct Clock(pub Arc<AtomicU64>);

impl Clock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)))
    }

    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn pass(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }

    pub fn options(&self) -> Options {
        let now = self.clone();
        let clock = WallClock::new(move || UNIX_EPOCH + Duration::from_millis(now.now()));
        Options::default().workers(2).tuning(Tuning::default().wall_clock(clock))
    }
}

/// Returns the options of a table with expiring records, paged or not.
pub fn expiring(paged: bool) -> TableOptions {
    let options = TableOptions::default().ttl(Duration::from_millis(TTL));
    if paged { options.paged() } else { options }
}

/// Creates or opens the test table.
pub fn create(db: &Database, paged: bool) -> Table<u64, u64> {
    let options = expiring(paged);
    db.run_blocking(async move |tx| tx.open_or_create_table_with("records", options).await).unwrap()
}
