//! `braid-lab simulate --schedules`: several workers in one run, switched at points that the seed
//! chooses.

mod clients;
mod feeds;
mod histories;
mod indexed;
mod one;
mod records;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use braiddb::simulation::Runner;
use indicatif::ProgressBar;

use super::search;
use one::Counts;

/// The schedules to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Campaign {
    pub(super) from: u64,
    pub(super) count: u64,
    /// The minimum and maximum number of workers.
    pub(super) workers: (usize, usize),
    pub(super) jobs: usize,
}

/// The results of a campaign.
#[derive(Debug, serde::Serialize)]
struct Report {
    seconds: f64,
    #[serde(flatten)]
    counts: Counts,
}

/// In this number of schedules every counted event happens.
const ALL_FIRE: u64 = 10_000;
/// One schedule in this number is run twice and must give the same result.
const RUN_TWICE: u64 = 50;

impl Campaign {
    /// Returns the smallest seed that finds something before `end`, and what it finds.
    pub(super) fn first_finding(&self, end: Option<Instant>) -> Option<(u64, String)> {
        let seeds = self.from..self.from + self.count;
        search::first(self.jobs, seeds, end, Runner::on_core, |runner, seed| {
            let fault = one::run(runner, seed, self.workers, false).err()?;
            Some(format!("{:?}: {}", fault.kind, fault.message))
        })
    }

    /// Runs the schedules and reports the results.
    ///
    /// # Errors
    /// Returns the first seed that found a problem.
    pub(super) fn run(&self, json: bool) -> Result<()> {
        let start = Instant::now();
        let (next, total) = (AtomicU64::new(0), Mutex::new(Counts::default()));
        let progress = ProgressBar::new(self.count);
        let job = |number: usize| -> Result<()> {
            let runner = Runner::on_core(number);
            loop {
                // Relaxed: the counter only makes numbers unique.
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.count {
                    return Ok(());
                }
                let seed = self.from + number;
                match self.one(&runner, seed) {
                    Ok(counts) => total.lock().expect("no thread panics").add(&counts),
                    Err(error) => {
                        // The others stop at their next seed. Relaxed: the time when they see it
                        // does not matter.
                        next.store(self.count, Ordering::Relaxed);
                        return Err(error.context(format!("schedule of seed {seed}")));
                    }
                }
                progress.inc(1);
            }
        };
        std::thread::scope(|scope| {
            let job = &job;
            let jobs: Vec<_> = (0..self.jobs).map(|n| scope.spawn(move || job(n))).collect();
            let join = |job: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            jobs.into_iter().map(join).collect::<Vec<_>>().into_iter().collect::<Result<()>>()
        })?;
        progress.finish_and_clear();
        let counts = total.into_inner().expect("no thread panics while it is locked");
        let report = Report { seconds: start.elapsed().as_secs_f64(), counts };
        if json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
        } else {
            writeln!(std::io::stdout(), "{report:#?}: nothing found")?;
        }
        if self.count >= ALL_FIRE {
            let serde_json::Value::Object(counted) =
                serde_json::to_value(report.counts).context("listing the counters")?
            else {
                bail!("counts are listed by name");
            };
            for (name, count) in counted {
                ensure!(count.as_u64() != Some(0), "{name}: this never happened");
            }
        }
        Ok(())
    }

    /// Runs one schedule, some of them twice.
    fn one(&self, runner: &Runner, seed: u64) -> Result<Counts> {
        let (counts, report) = one::run(runner, seed, self.workers, false)?;
        if seed.is_multiple_of(RUN_TWICE) {
            let (_, again) = one::run(runner, seed, self.workers, false)?;
            ensure!(report == again, "the second run differs: {report:?}, {again:?}");
        }
        Ok(counts)
    }

    /// Runs one schedule twice. Reports whether both runs were the same, the problem found, and the
    /// end of the schedule.
    ///
    /// # Errors
    /// Returns the problem found, or that the schedule does not replay.
    pub(super) fn replay(&self, seed: u64) -> Result<()> {
        let runner = Runner::on_core(0);
        let hash = || match one::run(&runner, seed, self.workers, true) {
            Ok((_, report)) => (report, None),
            Err(fault) => (fault.report, Some(fault)),
        };
        let (first, fault) = hash();
        let (again, _) = hash();
        if let Some(fault) = &fault {
            writeln!(std::io::stdout(), "{fault}")?;
        }
        writeln!(std::io::stdout(), "{first:?}")?;
        if first != again {
            bail!("the second run differs: {again:?}");
        }
        match fault {
            Some(_) => bail!("the schedule of seed {seed} found the problem above"),
            None => Ok(()),
        }
    }
}
