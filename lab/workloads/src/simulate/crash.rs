//! The moments of crashes: some disk operations, and some moments at which a client receives an
//! answer.

use std::sync::{Arc, Mutex};

use braiddb::simulation::{CrashCounts, SimulatedDisk};

use super::oracle::Oracle;
use super::seed::Plan;

const NO_PANIC: &str = "no thread panics while it is locked";
/// An approximate average.
const OPERATIONS_PER_TRANSACTION: u64 = 2;
/// One answer in this number crashes the disk.
const ANSWERS_PER_CRASH: u64 = 6;

/// A disk in the state of a crash, and the number of replies at that time.
pub(super) struct Crash {
    pub(super) disk: SimulatedDisk,
    pub(super) moment: String,
    pub(super) replies: usize,
}

/// The answers to a generation's transactions, and the crashes during it. Clones share the same
/// state.
#[derive(Clone)]
pub(super) struct Witness {
    disk: SimulatedDisk,
    oracle: Arc<Mutex<Oracle>>,
    crashes: Arc<Mutex<Crashes>>,
}

struct Crashes {
    all: Vec<Crash>,
    counts: CrashCounts,
    random: fastrand::Rng,
}

impl Witness {
    /// Watches the disk from now on.
    pub(super) fn new(
        disk: &SimulatedDisk,
        oracle: Oracle,
        mut random: fastrand::Rng,
        plan: Plan,
    ) -> Self {
        let every = (plan.transactions * OPERATIONS_PER_TRANSACTION / plan.crashes.max(1)).max(1);
        let oracle = Arc::new(Mutex::new(oracle));
        let crashes =
            Crashes { all: Vec::new(), counts: CrashCounts::default(), random: random.fork() };
        let crashes = Arc::new(Mutex::new(crashes));
        let (noted, replies) = (crashes.clone(), oracle.clone());
        disk.watch(move |moment| {
            if random.u64(0..every) > 0 {
                return;
            }
            let replies = replies.lock().expect(NO_PANIC).replies();
            let crashes = &mut *noted.lock().expect(NO_PANIC);
            let disk = moment.crash(random.u64(..), &mut crashes.counts);
            let moment = format!("operation {}", moment.operation());
            crashes.all.push(Crash { disk, moment, replies });
        });
        Self { disk: disk.clone(), oracle, crashes }
    }

    /// Reads or changes the oracle.
    pub(super) fn with<T>(&self, use_oracle: impl FnOnce(&mut Oracle) -> T) -> T {
        use_oracle(&mut self.oracle.lock().expect(NO_PANIC))
    }

    /// Records the reply to a client, and sometimes crashes the disk at this moment.
    pub(super) fn answer(&self, note: impl FnOnce(&mut Oracle)) {
        let (before, replies) = self.with(|oracle| {
            let before = oracle.replies();
            note(oracle);
            (before, oracle.replies())
        });
        let mut random = {
            let crashes = &mut *self.crashes.lock().expect(NO_PANIC);
            if replies == before || crashes.random.u64(0..ANSWERS_PER_CRASH) > 0 {
                return;
            }
            crashes.random.fork()
        };
        let mut counts = CrashCounts::default();
        let disk = self.disk.crash(random.u64(..), &mut counts);
        let moment = format!("answer {replies}");
        let crashes = &mut *self.crashes.lock().expect(NO_PANIC);
        crashes.counts.add(&counts);
        crashes.all.push(Crash { disk, moment, replies });
    }

    /// Returns the number of crashes.
    pub(super) fn crashes(&self) -> usize {
        self.crashes.lock().expect(NO_PANIC).all.len()
    }

    /// Ends the watch. Returns the crashes and their counters.
    pub(super) fn take(&self) -> (Vec<Crash>, CrashCounts) {
        self.disk.unwatch();
        let crashes = &mut *self.crashes.lock().expect(NO_PANIC);
        (std::mem::take(&mut crashes.all), crashes.counts)
    }
}
