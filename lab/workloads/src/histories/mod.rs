//! `braid histories`: many clients work on a database, give transactions up, bound them in time and let
//! them panic, beside eviction and compaction; and `adya`, a checker of isolation that knows nothing of
//! Braid, looks for what strict serializability does not allow in what they were told.
//!
//! Every other round is on disk. In the middle it is ended, by closing the database under its clients or
//! by opening a copy of its files as they lie there, and the clients go on with what was recovered: the
//! history goes on too, so whatever was acknowledged before must be seen afterwards.

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
use braiddb::{Database, Error, MemoryBudget, Options, Stats, Tuning};
use serde::Serialize;

use crate::harness::progress::Progress;
use crate::scale::whole::within;
use client::{Counts, Shared};
use map::{Left, Map};
use record::Record;
use tables::Tables;
use texts::Texts;

/// What is evicted and compacted, and how often.
const UPKEEP: Duration = Duration::from_millis(100);
/// The log's ring, and a budget that hardly anything fits in beside it.
const RING: usize = 64 << 20;
const BUDGET: u64 = (64 << 20) + (1 << 20);

/// Let a checker of isolation look for cycles among what many transactions were told.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Operations of transactions, in all; rounds go on until there were so many.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Records that reads are told of, in all.
    #[arg(long, default_value_t = 2_000_000)]
    reads: u64,
    /// Transactions of one round, whose histories are checked together.
    #[arg(long, default_value_t = 40_000, value_parser = within::<u64>(1..=10_000_000))]
    transactions: u64,
    /// Clients, each a thread, up to 1000.
    #[arg(long, default_value_t = 16, value_parser = within::<u64>(1..=1000))]
    clients: u64,
    /// Worker threads of the database, up to 256.
    #[arg(long, default_value_t = 2, value_parser = within::<usize>(1..=256))]
    workers: usize,
    /// Seed of what the clients do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What was done.
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
    /// Futures that were dropped, at once or after a time.
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
    /// Runs rounds until there were enough operations and reads.
    ///
    /// # Errors
    /// The first thing that is not strictly serializable, with the checker's explanation; that what is to
    /// get in the way did not happen.
    pub fn run(&self, json: bool) -> Result<()> {
        // Those that clients bring about are no news.
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
            // Only this command writes checkpoints, so that it can copy files while none is written.
            .checkpoint_bytes(u64::MAX);
        Options::default().workers(self.workers).memory_budget(budget).tuning(tuning)
    }

    /// One database, and one history of lists and one of registers.
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
                // As after the end of a process that was not asked: what is on disk, and nothing else.
                let copy = directory.path().join("copy");
                // What clients gave up comes to its end.
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

    /// Lets clients work on a database until so many transactions are left; if there are to be some, the
    /// database is closed under them, or they are stopped and nothing is under way.
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
            // Relaxed: a count.
            while leave > 0
                && shared.left.load(Ordering::Relaxed) > leave
                && !clients.iter().all(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            let closed = if closes { db.close() } else { Ok(()) };
            // Relaxed, here and below: hints to stop; what the others did is seen once they are joined.
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
        let problem = shared.problem.into_inner().expect("nobody panics with it");
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

/// What goes on from one part of a round to the next.
struct State {
    lists: Record,
    registers: Record,
    map: Left,
    numbers: u64,
    left: u64,
}

impl Report {
    fn add(&mut self, counts: &Counts, stats: &Stats) {
        // Relaxed: the clients are over.
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

/// Compacts the log over and over.
fn upkeep(shared: &Shared, over: &AtomicBool) {
    // Relaxed: a hint to stop.
    while !over.load(Ordering::Relaxed) {
        match pollster::block_on(shared.db.compact()) {
            // Nothing is logged in memory.
            Ok(_) | Err(Error::Closed | Error::Options(_) | Error::CheckpointUnderWay) => {}
            Err(error) => shared.report_problem(format!("compaction failed: {error}")),
        }
        std::thread::sleep(UPKEEP);
    }
}

/// Readers that stay for a while, so that versions are cut out of the middle of chains.
fn stay(shared: &Shared, over: &AtomicBool) {
    // Relaxed: a hint to stop.
    while !over.load(Ordering::Relaxed) {
        let Ok(reader) = pollster::block_on(shared.db.begin_read_only()) else { return };
        let tables = Arc::new(shared.tables.clone());
        for _ in 0..4 {
            let tables = tables.clone();
            let audited = pollster::block_on(reader.step(async move |tx| tables.audit(tx).await));
            match audited {
                Ok(Ok(_)) => {}
                Ok(Err(problem)) => {
                    shared.report_problem(format!("a reader that stays: {problem}"))
                }
                Err(Error::Closed | Error::TransactionOver) => return,
                Err(error) => shared.report_problem(format!("a reader that stays: {error}")),
            }
            std::thread::sleep(UPKEEP / 4);
        }
    }
}

/// Copies the files of a database that nobody writes to at the moment.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::with_limit;

    /// Many times what the rounds take.
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
