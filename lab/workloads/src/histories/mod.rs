//! `braid-lab histories`: records transaction histories and checks them with `adya`, an isolation
//! checker that is independent of Braid. Many clients use a database while eviction and compaction
//! run. Clients drop transactions, limit their time and let some panic. `adya` searches the
//! recorded answers for anomalies that strict serializability forbids.
//!
//! Every second round is on disk. In the middle of such a round the database is either closed while
//! clients use it, or a copy of its files in their current state is opened. The clients continue
//! with the recovered database and the same history. Everything acknowledged before must therefore
//! be visible afterwards.

mod client;
mod map;
mod record;
mod tables;
mod texts;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adya::{Valid, Workload};
use anyhow::{Context, Result, bail, ensure};
use braiddb::{
    BusyWith, Database, Error, MemoryBudget, Misuse, Options, Stats, TransactionEnd, Tuning,
};
use serde::Serialize;

use crate::harness::progress::Progress;
use crate::scale::whole::within;
use client::{Counts, Shared};
use map::{Left, Map};
use record::Record;
use tables::Tables;
use texts::Texts;

/// The interval of eviction and compaction.
const UPKEEP: Duration = Duration::from_millis(100);
/// The size of the log's ring, and a memory budget only slightly larger.
const RING: usize = 64 << 20;
const BUDGET: u64 = (64 << 20) + (1 << 20);

/// Check the isolation of many concurrent transactions with an independent checker.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Total operations of transactions; rounds are run until this number is reached.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Total records that reads return; rounds are run until this number is reached.
    #[arg(long, default_value_t = 2_000_000)]
    reads: u64,
    /// Transactions in a round; the checker checks their histories together.
    #[arg(long, default_value_t = 40_000, value_parser = within::<u64>(1..=10_000_000))]
    transactions: u64,
    /// Clients, one thread each, up to 1000.
    #[arg(long, default_value_t = 16, value_parser = within::<u64>(1..=1000))]
    clients: u64,
    /// Worker threads of the database, up to 256.
    #[arg(long, default_value_t = 2, value_parser = within::<usize>(1..=256))]
    workers: usize,
    /// Seed of the clients' choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
struct Report {
    rounds: u64,
    seconds: f64,
    checking_seconds: f64,
    operations: u64,
    records_read: u64,
    committed: u64,
    conflicts: u64,
    failed_certifications: u64,
    /// Futures that were dropped, immediately or later.
    given_up: u64,
    panicked: u64,
    audits: u64,
    deletions: u64,
    reverse_scans: u64,
    references_held: u64,
    versions_evicted: u64,
    versions_pruned: u64,
    segments_freed: u64,
    closed_under_clients: u64,
    recovered_from_copies: u64,
}

impl Command {
    /// Runs rounds until the required operations and reads are reached.
    ///
    /// # Errors
    /// Returns the first anomaly with the checker's explanation. Also fails if a planned
    /// disturbance did not happen.
    pub fn run(&self, json: bool) -> Result<()> {
        // Panics that clients cause on purpose are not reported.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some(client::ON_PURPOSE) {
                hook(panic);
            }
        }));
        let (mut report, start) = (Report::default(), Instant::now());
        let progress = Progress::of(self.operations);
        while report.operations < self.operations || report.records_read < self.reads {
            let before = report.operations;
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(report.rounds);
            self.round(seed, &mut report).with_context(|| format!("round {}", report.rounds))?;
            report.rounds += 1;
            progress.steps(report.operations - before);
        }
        drop(progress);
        report.seconds = start.elapsed().as_secs_f64();
        let told = if json { serde_json::to_string(&report)? } else { format!("{report:#?}") };
        writeln!(std::io::stdout(), "{told}")?;
        for (name, count) in [
            ("given_up", report.given_up),
            ("panicked", report.panicked),
            ("audits", report.audits),
            ("deletions", report.deletions),
            ("reverse_scans", report.reverse_scans),
            ("references_held", report.references_held),
            ("versions_evicted", report.versions_evicted),
            ("versions_pruned", report.versions_pruned),
            ("conflicts", report.conflicts),
            ("failed_certifications", report.failed_certifications),
        ] {
            ensure!(count > 0, "{name}: this never happened");
        }
        Ok(())
    }

    fn options(&self, budget: MemoryBudget) -> Options {
        let tuning = Tuning::default()
            .log_ring_bytes(RING)
            .log_segment_bytes(4 << 20)
            // Only this command starts checkpoints, so that it can copy files while none are
            // written.
            .checkpoint_bytes(u64::MAX);
        Options::default().workers(self.workers).memory_budget(budget).tuning(tuning)
    }

    /// Runs one round: one database with one history of lists and one of registers.
    fn round(&self, seed: u64, report: &mut Report) -> Result<()> {
        let (lists, registers) =
            (Record::new(Workload::ListAppend), Record::new(Workload::RwRegister));
        let map = Left::default();
        let mut state = State { lists, registers, map, numbers: 1, left: self.transactions };
        let in_memory = report.rounds.is_multiple_of(2);
        if in_memory {
            let db = Database::in_memory(self.options(MemoryBudget::Unlimited))?;
            state = self.part(&db, state, (seed, 0), report)?;
            pollster::block_on(Map::open(&db, seed, &state.map))?;
            db.close()?;
        } else {
            let directory = tempfile::tempdir()?;
            let first = directory.path().join("first");
            let db = Database::open(&first, self.options(BUDGET.into()))?;
            let half = self.transactions / 2;
            state = self.part(&db, state, (seed, half), report)?;
            let again = if report.rounds % 4 == 1 {
                db.close()?;
                report.closed_under_clients += 1;
                first
            } else {
                // The state after a process that ended without warning: only the files on disk.
                let copy = directory.path().join("copy");
                // Dropped transactions of clients end in this time.
                std::thread::sleep(UPKEEP);
                copy_files(&first, &copy)?;
                db.close()?;
                report.recovered_from_copies += 1;
                copy
            };
            drop(db);
            let db =
                Database::open(&again, self.options(BUDGET.into())).context("opening again")?;
            state = self.part(&db, state, (seed + 1, 0), report)?;
            pollster::block_on(Map::open(&db, seed, &state.map))?;
            let checked = db.check()?;
            ensure!(checked.problems.is_empty(), "{}", checked.problems.join("; "));
            db.close()?;
        }
        let start = Instant::now();
        for (what, record) in [("lists", state.lists), ("registers", state.registers)] {
            let found = record.check();
            if found.valid != Valid::True {
                let explained = found.anomalies.values().flatten().map(|one| &one.explanation);
                let explained: Vec<_> = explained.take(4).cloned().collect();
                bail!("{what}: {:?}: {}", found.anomaly_types, explained.join("\n"));
            }
        }
        report.checking_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Lets clients use a database until only `leave` transactions remain. If `leave` is above
    /// zero, the database is then closed under the clients, or the clients stop and all operations
    /// end.
    fn part(
        &self,
        db: &Database,
        state: State,
        (seed, leave): (u64, u64),
        report: &mut Report,
    ) -> Result<State> {
        #[cfg(test)]
        crate::limit::working_on(db);
        let opened = pollster::block_on(async {
            let tables = Tables::open(db, seed).await?;
            let texts = Texts::open(db, &mut fastrand::Rng::with_seed(!seed)).await?;
            anyhow::Ok((tables, texts, Map::open(db, seed, &state.map).await?))
        });
        let (tables, texts, map) = opened.context("opening tables")?;
        let closes = leave > 0 && report.rounds % 4 == 1;
        let shared = Shared {
            db: db.clone(),
            tables,
            texts,
            map,
            lists: state.lists,
            registers: state.registers,
            counts: Counts::default(),
            left: AtomicU64::new(state.left),
            numbers: AtomicU64::new(state.numbers),
            stop: AtomicBool::new(false),
            problem: Mutex::default(),
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (shared, over) = (&shared, &over);
            scope.spawn(move || upkeep(shared, over));
            scope.spawn(move || stay(shared, over));
            let clients: Vec<_> = (0..self.clients)
                .map(|client| scope.spawn(move || shared.client(seed << 8 ^ client)))
                .collect();
            // Relaxed: a counter.
            while leave > 0
                && shared.left.load(Ordering::Relaxed) > leave
                && !clients.iter().all(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            let closed = if closes { db.close() } else { Ok(()) };
            // Relaxed, here and below: hints to stop. Joining the other threads makes their writes
            // visible.
            if leave > 0 {
                shared.stop.store(true, Ordering::Relaxed);
            }
            for client in clients {
                client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            over.store(true, Ordering::Relaxed);
            closed
        })
        .context("closing under clients")?;
        report.add(&shared.counts, &db.stats());
        let problem = shared.problem.into_inner().expect("no thread panics while it is locked");
        if let Some(problem) = problem {
            bail!(problem);
        }
        Ok(State {
            lists: shared.lists,
            registers: shared.registers,
            map: shared.map.check()?,
            numbers: shared.numbers.into_inner(),
            left: shared.left.into_inner(),
        })
    }
}

/// The state that carries over from one part of a round to the next.
struct State {
    lists: Record,
    registers: Record,
    map: Left,
    numbers: u64,
    left: u64,
}

impl Report {
    fn add(&mut self, counts: &Counts, stats: &Stats) {
        // Relaxed: the clients have ended.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.operations += count(&counts.operations);
        self.records_read += count(&counts.records_read);
        self.committed += count(&counts.committed);
        self.given_up += count(&counts.given_up);
        self.panicked += count(&counts.panicked);
        self.audits += count(&counts.audits);
        self.deletions += count(&counts.deletions);
        self.reverse_scans += count(&counts.reverse_scans);
        self.references_held += count(&counts.references_held);
        self.conflicts += stats.aborted.conflict;
        self.failed_certifications += stats.aborted.certification;
        self.versions_evicted += stats.versions_evicted;
        self.versions_pruned += stats.versions_pruned;
        self.segments_freed += stats.log.segments_freed;
    }
}

/// Compacts the log repeatedly.
fn upkeep(shared: &Shared, over: &AtomicBool) {
    // Relaxed: a hint to stop.
    while !over.load(Ordering::Relaxed) {
        match pollster::block_on(shared.db.compact()) {
            // An in-memory database has no log.
            Ok(_)
            | Err(
                Error::Closed | Error::Misuse(Misuse::NoLog) | Error::Busy(BusyWith::Checkpoint),
            ) => {}
            Err(error) => shared.report_problem(format!("compaction failed: {error}")),
        }
        std::thread::sleep(UPKEEP);
    }
}

/// Runs long readers, so that versions are pruned from the middle of chains.
fn stay(shared: &Shared, over: &AtomicBool) {
    // Relaxed: a hint to stop.
    while !over.load(Ordering::Relaxed) {
        let Ok(reader) = pollster::block_on(shared.db.transaction().read_only(true).begin()) else {
            return;
        };
        let tables = Arc::new(shared.tables.clone());
        for _ in 0..4 {
            let tables = tables.clone();
            let audited = pollster::block_on(reader.step(async move |tx| tables.audit(tx).await));
            match audited {
                Ok(Ok(_)) => {}
                Ok(Err(problem)) => {
                    shared.report_problem(format!("a reader that stays: {problem}"))
                }
                Err(Error::Closed | Error::TransactionEnded(TransactionEnd::Finished)) => return,
                Err(error) => shared.report_problem(format!("a reader that stays: {error}")),
            }
            std::thread::sleep(UPKEEP / 4);
        }
    }
}

/// Copies the files of a database that no thread writes at this moment.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        // The local socket of an open database is no file.
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::with_limit;

    /// Several times the duration of the rounds.
    const LIMIT_SECONDS: u64 = 600;

    #[test]
    fn histories_in_memory_and_on_disk_are_strictly_serializable() {
        with_limit(LIMIT_SECONDS, |_| {
            let command = Command {
                operations: 1,
                reads: 1,
                transactions: 3_000,
                clients: 6,
                workers: 2,
                seed: 1,
            };
            let mut report = Report::default();
            for round in 0..4 {
                crate::limit::doing(&format!("round {round}"));
                command.round(round, &mut report).unwrap();
                report.rounds += 1;
            }
            assert_eq!((report.closed_under_clients, report.recovered_from_copies), (1, 1));
            let happened = [
                report.given_up,
                report.panicked,
                report.audits,
                report.conflicts,
                report.deletions,
                report.reverse_scans,
                report.references_held,
            ];
            assert!(happened.iter().all(|count| *count > 0), "{report:?}");
            assert!(report.committed > 6_000, "{report:?}");
        });
    }
}
