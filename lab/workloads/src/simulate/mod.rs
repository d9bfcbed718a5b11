//! `braid-lab simulate`: runs the whole engine on a simulated disk with faults, and crashes the
//! disk at many of its operations. A seed reproduces the same run each time.

mod crash;
mod held_snapshot;
mod observer;
mod oracle;
mod planted;
mod schedules;
mod search;
mod seed;
mod work;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use serde::Serialize;

use schedules::Campaign;
use seed::{Plan, Tally};

/// Crash a simulated disk at its operations, and check the recovered state.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; a seed always gives the same run.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Transactions in a run.
    #[arg(long, default_value_t = 120)]
    transactions: u64,
    /// Approximate number of crashes in a run.
    #[arg(long, default_value_t = 60)]
    crashes: u64,
    /// Bytes to damage in the final state of each run.
    #[arg(long, default_value_t = 20)]
    flips: u64,
    /// Seeds that run at the same time; default: one a core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Run this number of schedules with several workers instead.
    #[arg(long, value_name = "N")]
    schedules: Option<u64>,
    /// Workers of a schedule, minimum and maximum.
    #[arg(long, value_name = "LEAST-MOST", default_value = "2-4", value_parser = worker_range)]
    workers: (usize, usize),
    /// Run the schedule of one seed again, and show its end.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// Plant each known bug in the engine, or the named ones, and look for the seed that finds it.
    #[arg(long, value_name = "BUG", num_args = 0..)]
    plant: Option<Vec<String>>,
    /// Seconds that all planted bugs together may take; those not found by then are a failure.
    #[arg(long, value_name = "SECONDS", requires = "plant")]
    budget: Option<u64>,
}

/// `LEAST-MOST`, or one number.
fn worker_range(text: &str) -> Result<(usize, usize), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let parse = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
    let (least, most) = (parse(least)?, parse(most)?);
    if (1..=most).contains(&least) && most <= 16 {
        Ok((least, most))
    } else {
        Err("from 1 to 16, the least first".to_owned())
    }
}

/// In this number of seeds, each kind of fault and each other counted event happens.
const ALL_FIRE: u64 = 50;

/// The results of the seeds.
#[derive(Debug, Serialize)]
pub struct Report {
    seeds: u64,
    seconds: f64,
    #[serde(flatten)]
    tally: Tally,
}

impl Command {
    /// Runs the seeds and reports the results.
    ///
    /// # Errors
    /// Returns the first seed that shows a lost, partial, misordered or stuck transaction.
    pub fn run(&self, json: bool) -> Result<()> {
        if let Some(names) = &self.plant {
            let search = planted::Search {
                seeds: self.from..self.from + self.seeds,
                plan: self.plan(),
                schedules: self.campaign(self.schedules.unwrap_or(planted::MAX_SCHEDULES)),
                end: self.budget.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            };
            return search.run(names, json);
        }
        if let Some(seed) = self.replay {
            return self.campaign(1).replay(seed);
        }
        if let Some(count) = self.schedules {
            return self.campaign(count).run(json);
        }
        let report = self.report()?;
        if json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
            return Ok(());
        }
        let Report { seeds, seconds, tally } = &report;
        writeln!(
            std::io::stdout(),
            "{seeds} seeds, {} with paged tables, {} crash states, {} of them during recovery, {} committed \
             transactions: nothing lost ({seconds:.1} s)",
            tally.with_paged_tables,
            tally.crash_states,
            tally.in_recovery,
            tally.committed
        )?;
        let (faults, crashes) = (&tally.faults, &tally.crashes);
        writeln!(
            std::io::stdout(),
            "operations {}: reordered {}, short reads {}, short writes {}, failed reads {}, failed \
             writes {}, failed syncs {}, no space {}",
            faults.operations,
            faults.reordered,
            faults.short_reads,
            faults.short_writes,
            faults.read_errors,
            faults.write_errors,
            faults.failed_syncs,
            faults.full
        )?;
        writeln!(
            std::io::stdout(),
            "unsynced sectors kept {}, dropped {}, torn {}; names undone {}; segments freed {}, reused {}, \
             versions evicted {}; snapshots held {}; pages evicted {}, loaded {}, of which inner {}; runs ended by errors {}, \
             openings refused {}",
            crashes.kept,
            crashes.dropped,
            crashes.torn,
            crashes.names_undone,
            tally.segments_freed,
            tally.segments_reused,
            tally.evicted,
            tally.snapshots,
            tally.pages_evicted,
            tally.page_faults,
            tally.inner_page_faults,
            tally.poisoned,
            tally.not_opened
        )?;
        writeln!(
            std::io::stdout(),
            "answers: absences {}, refusals {}, errors {}, steps {}",
            tally.answers.absences,
            tally.answers.refusals,
            tally.answers.errors,
            tally.answers.steps
        )?;
        writeln!(
            std::io::stdout(),
            "bytes damaged {}: reported {}, the others meant nothing",
            tally.flips,
            tally.flips_reported
        )?;
        Ok(())
    }

    fn campaign(&self, count: u64) -> Campaign {
        Campaign { from: self.from, count, workers: self.workers, jobs: self.jobs().max(1) }
    }

    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        })
    }

    fn plan(&self) -> Plan {
        Plan { transactions: self.transactions, crashes: self.crashes, flips: self.flips }
    }

    /// Runs the seeds.
    ///
    /// # Errors
    /// The same errors as [`Command::run`].
    pub fn report(&self) -> Result<Report> {
        let start = Instant::now();
        let jobs = self.jobs();
        ensure!(jobs > 0, "--jobs must be at least 1");
        let plan = self.plan();
        let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        let progress = ProgressBar::new(self.seeds);
        let one = || -> Result<()> {
            loop {
                // Relaxed: the counter only makes numbers unique.
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.seeds {
                    return Ok(());
                }
                let seed = self.from + number;
                let result = seed::run(seed, plan);
                if result.is_err() {
                    // The others stop at their next seed. Relaxed: the time when they see it does
                    // not matter.
                    next.store(self.seeds, Ordering::Relaxed);
                }
                let found = result.with_context(|| format!("seed {seed}"))?;
                tally.lock().expect("no thread panics while it is locked").add(&found);
                progress.inc(1);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(one)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect::<Result<()>>()
        })?;
        progress.finish_and_clear();
        let tally = tally.into_inner().expect("no thread panics while it is locked");
        if self.seeds >= ALL_FIRE {
            let silent = tally.silent()?;
            ensure!(silent.is_empty(), "these never happened: {}", silent.join(", "));
        }
        Ok(Report { seeds: self.seeds, seconds: start.elapsed().as_secs_f64(), tally })
    }
}
