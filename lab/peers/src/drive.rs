//! Clients as subjects of a comparison. For every store: threads, each of which makes one call
//! after the other. For Braid also: requests that one thread awaits together, and stored procedures
//! that its workers draw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use braid_workloads::engine::drive::Driven;
use braid_workloads::error::Error;
use braid_workloads::harness::latency::Latencies;
use braid_workloads::harness::process::stay_on_core;
use braid_workloads::harness::rounds::{Effort, KindSample, Sample, Subject};
use futures_util::stream::{FuturesUnordered, TryStreamExt};

use crate::answer::Failure;
use crate::call::{Call, Calls, KINDS, Work};
use crate::store::{Reply, Store};
use crate::stores::braid::{Braid, run_options};

/// A store under test, and the number of modifications since it was loaded.
#[derive(Clone)]
pub struct Loaded {
    pub name: &'static str,
    pub store: Arc<dyn Store>,
    pub records: u64,
    pub modifications: Arc<AtomicU64>,
}

impl Loaded {
    /// Returns a store that was just loaded, or reopened since.
    pub fn new(name: &'static str, store: Box<dyn Store>, records: u64) -> Self {
        Self { name, store: store.into(), records, modifications: Arc::default() }
    }

    /// Returns an error of this store.
    pub fn failed(&self, source: Failure) -> Error {
        Error::Subject { name: self.name.to_owned(), source }
    }
}

/// The work and the number of clients.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub work: Work,
    pub clients: usize,
    pub seed: u64,
    /// True if threads are bound to cores, if the machine has enough.
    pub pin: bool,
    /// One call of a client in this number is timed.
    pub timed_one_in: u32,
}

/// A subject that also counts modifications.
struct Counted<S> {
    inner: S,
    work: Work,
    modifications: Arc<AtomicU64>,
}

impl<S: Subject> Subject for Counted<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let mut sample = self.inner.round(effort)?;
        let modifying = sample.kinds[1].transactions;
        // Relaxed: it is read after the round, on this thread.
        self.modifications.fetch_add(modifying * self.work.modified_by_one(), Ordering::Relaxed);
        match self.work.is_mixed() {
            true => sample.kinds.retain(|kind| kind.name != KINDS[2]),
            false => sample.kinds.clear(),
        }
        Ok(sample)
    }
}

fn counted(inner: impl Subject + 'static, loaded: &Loaded, work: Work) -> Box<dyn Subject> {
    Box::new(Counted { inner, work, modifications: loaded.modifications.clone() })
}

/// Returns a subject with one thread for each client.
pub fn threads(loaded: &Loaded, load: Load) -> Box<dyn Subject> {
    let name = format!("{}, {}", loaded.name, clients(load.clients));
    counted(Threads { name, loaded: loaded.clone(), load, round: 0 }, loaded, load.work)
}

/// Returns `1 client`, `64 clients`.
pub fn clients(count: usize) -> String {
    format!("{count} client{}", if count == 1 { "" } else { "s" })
}

struct Threads {
    name: String,
    loaded: Loaded,
    load: Load,
    round: u64,
}

impl Subject for Threads {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.round += 1;
        let Self { loaded, load, round, .. } = self;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pin = load.pin && load.clients <= cores;
        let start = Barrier::new(load.clients);
        let tallies: Result<Vec<Tally>, Failure> = std::thread::scope(|scope| {
            let run = |client: usize| -> Result<Tally, Failure> {
                if pin {
                    stay_on_core(client);
                }
                let seed = seed(load.seed, *round, client);
                let caller = loaded.store.client();
                start.wait();
                let mut caller = caller?;
                let share = share_of(effort, client, load.clients);
                let mut tally = Tally::new(*load, loaded.records, seed, share);
                while let Some((call, begun)) = tally.next() {
                    let reply = caller.run(&call)?;
                    tally.done(&call, begun, reply);
                }
                Ok(tally)
            };
            let running: Vec<_> =
                (0..load.clients).map(|client| scope.spawn(move || run(client))).collect();
            let joined = running.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => Err("a client's thread panicked".into()),
            });
            // Waits for all before it reports a failure.
            joined.collect::<Vec<_>>().into_iter().collect()
        });
        Ok(sum(tallies.map_err(|failure| loaded.failed(failure))?, load.timed_one_in))
    }
}

/// Returns a subject of requests that one thread awaits together: one for each client, which makes
/// its next call after the answer to the last. `None` if the store is not Braid.
pub fn requests(loaded: &Loaded, load: Load) -> Option<Box<dyn Subject>> {
    loaded.store.braid()?;
    let name = format!("{}, {}", loaded.name, clients(load.clients));
    let requests = Requests { name, loaded: loaded.clone(), load, round: 0 };
    Some(counted(requests, loaded, load.work))
}

struct Requests {
    name: String,
    loaded: Loaded,
    load: Load,
    round: u64,
}

impl Subject for Requests {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.round += 1;
        let Self { loaded, load, round, .. } = self;
        let braid = loaded.store.braid().expect("none is made of another store");
        let client = |client| {
            let seed = seed(load.seed, *round, client);
            let share = share_of(effort, client, load.clients);
            let mut tally = Tally::new(*load, loaded.records, seed, share);
            async move {
                while let Some((call, begun)) = tally.next() {
                    let reply = braid.request(call).await?;
                    tally.done(&call, begun, reply);
                }
                Ok::<_, braiddb::Error>(tally)
            }
        };
        let running: FuturesUnordered<_> = (0..load.clients).map(client).collect();
        let tallies: Vec<Tally> = pollster::block_on(running.try_collect())?;
        Ok(sum(tallies, load.timed_one_in))
    }
}

/// Returns a subject of stored procedures on this number of Braid's workers. `None` if the store is
/// not Braid.
pub fn procedures(loaded: &Loaded, load: Load, workers: usize) -> Option<Box<dyn Subject>> {
    let braid: &Braid = loaded.store.braid()?;
    let plural = if workers == 1 { "" } else { "s" };
    let name = format!("{}, {workers} worker{plural}", loaded.name);
    let (of, records) = (loaded.clone(), loaded.records);
    let make = move |seed| {
        let braid = of.store.braid().expect("it was a moment ago");
        braid.procedure(Calls::new(load.work, records, seed))
    };
    let driven = Driven::new(&name, &braid.database, workers, load.seed, make)
        .under(run_options(load.work.only_reads()))
        .time_one_in(load.timed_one_in);
    Some(counted(driven, loaded, load.work))
}

fn seed(seed: u64, round: u64, client: usize) -> u64 {
    (seed << 32) + (round << 16) + client as u64
}

fn share_of(effort: Effort, client: usize, clients: usize) -> Effort {
    match effort {
        Effort::Seconds(_) => effort,
        Effort::Transactions(count) => {
            let (client, clients) = (client as u64, clients as u64);
            Effort::Transactions(count / clients + u64::from(client < count % clients))
        }
    }
}

/// The calls of one client in one round.
struct Tally {
    calls: Calls,
    started: Instant,
    end: Option<Instant>,
    left: u64,
    conflicts: u64,
    kinds: [(u64, Latencies); KINDS.len()],
    timer: Latencies,
    /// The time from the first call to the last answer.
    elapsed: Duration,
}

impl Tally {
    fn new(load: Load, records: u64, seed: u64, share: Effort) -> Self {
        let started = Instant::now();
        let (left, end) = match share {
            Effort::Transactions(count) => (count, None),
            Effort::Seconds(seconds) => {
                (u64::MAX, Some(started + Duration::from_secs_f64(seconds)))
            }
        };
        Self {
            calls: Calls::new(load.work, records, seed),
            started,
            end,
            left,
            conflicts: 0,
            kinds: std::array::from_fn(|_| (0, Latencies::one_in(1))),
            timer: Latencies::one_in(load.timed_one_in),
            elapsed: Duration::ZERO,
        }
    }

    /// Returns the next call, and its start if it is timed.
    fn next(&mut self) -> Option<(Call, Option<Instant>)> {
        if self.left == 0 || self.end.is_some_and(|end| Instant::now() >= end) {
            self.elapsed = self.started.elapsed();
            return None;
        }
        self.left -= 1;
        Some((self.calls.draw(), self.timer.start()))
    }

    fn done(&mut self, call: &Call, begun: Option<Instant>, reply: Reply) {
        let (count, latencies) = &mut self.kinds[call.kind()];
        *count += 1;
        latencies.finish(begun);
        self.conflicts += reply.conflicts;
        std::hint::black_box(reply.answer);
    }
}

/// Returns the sample of all clients together.
fn sum(tallies: Vec<Tally>, timed_one_in: u32) -> Sample {
    let elapsed = tallies.iter().map(|tally| tally.elapsed).max().unwrap_or_default();
    let mut sample = Sample::plain(0, elapsed, Latencies::one_in(timed_one_in));
    let none = |name| KindSample {
        name,
        transactions: 0,
        unsuccessful: 0,
        conflicts: 0,
        latencies: Latencies::one_in(1),
    };
    sample.kinds = KINDS.map(none).into();
    for tally in tallies {
        sample.conflicts += tally.conflicts;
        for (kind, (count, latencies)) in sample.kinds.iter_mut().zip(&tally.kinds) {
            kind.transactions += count;
            kind.latencies.merge(latencies);
            sample.transactions += count;
            sample.latencies.merge(latencies);
        }
        // Conflicts occur only if reads, scans and modifications run together, and only
        // modifications fail because of them.
        sample.kinds[1].conflicts += tally.conflicts;
    }
    sample
}
