//! `blocked`: the latency of reads while a transaction blocks the thread of its worker.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Effort, Sample, repeat_in_turn};
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of subjects in tables.
const ALL_FREE: &str = "reads, no worker blocked";
const ONE_BLOCKED: &str = "reads, one worker blocked";

#[derive(Clone, Debug)]
pub(crate) struct BlockedDefaults;

impl Defaults for BlockedDefaults {
    const RECORDS: u64 = 10_000;
    const SECONDS: f64 = 2.0;
}

/// Arguments of `braid-lab bench blocked`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BlockedArguments {
    #[command(flatten)]
    scale: Scale<BlockedDefaults>,
}

impl BlockedArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings())
    }
}

fn measure(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let Settings { records, effort, rounds, .. } = *settings;
    let opening = Opening { workers: settings.workers.max(2), ..Opening::braided(settings) };
    let bed = Bed::loaded(opening, records)?;
    let what = format!("one read after the other, {} workers, 1 client", opening.workers);
    let mut report = Report::new("blocked", what);
    report.setting = Some(Setting { records, effort, rounds });
    let mut all_free = || reads(&bed, effort);
    let mut one_blocked = || beside_blocked(&bed, effort);
    let mut both: [(&str, &mut dyn FnMut() -> _); 2] =
        [(ALL_FREE, &mut all_free), (ONE_BLOCKED, &mut one_blocked)];
    report.measured = repeat_in_turn(&mut both, rounds, &stage.progress)?;
    let taken_over: u64 = bed.database.stats().workers.iter().map(|w| w.taken_over).sum();
    report.fact(
        "reads that another worker took over",
        taken_over as f64,
        number::grouped(taken_over),
    );
    let judged = matches!(effort, Effort::Seconds(seconds) if seconds >= BlockedDefaults::SECONDS);
    let worst = worst_milliseconds(&report, ONE_BLOCKED);
    report.bar(
        "longest read beside a blocked worker",
        bars::BLOCKED_MILLISECONDS,
        worst,
        judged && !settings.quick,
    );
    bed.database.close()?;
    Ok(report)
}

fn worst_milliseconds(report: &Report, subject: &str) -> Option<f64> {
    let latency = report.subject(subject)?.latency.as_ref()?;
    Some(latency.percentiles.last()?.nanoseconds as f64 / 1e6)
}

/// Reads records in transactions of workers, one after the other. `Database::get` would not need the
/// workers.
pub(super) fn reads(bed: &Bed, effort: Effort) -> Result<Sample, Error> {
    let (time, most) = match effort {
        Effort::Seconds(seconds) => (Duration::from_secs_f64(seconds), u64::MAX),
        Effort::Transactions(count) => (Duration::MAX, count),
    };
    let (begun, mut latencies, mut count) = (Instant::now(), Latencies::one_in(1), 0);
    while count < most && begun.elapsed() < time {
        let start = latencies.start();
        let (table, key) = (bed.table.clone(), count % bed.records);
        pollster::block_on(bed.database.run(async move |tx| tx.contains(&table, &key).await))?;
        latencies.finish(start);
        count += 1;
    }
    Ok(Sample::plain(count, begun.elapsed(), latencies))
}

/// Reads records while a transaction blocks its worker.
fn beside_blocked(bed: &Bed, effort: Effort) -> Result<Sample, Error> {
    let (blocks, blocked) = channel();
    let (go_on, waits) = channel::<()>();
    std::thread::scope(|scope| {
        let blocking = scope.spawn(move || {
            let waits = Mutex::new(waits);
            bed.database.run_blocking(async move |_| {
                _ = blocks.send(());
                wait(&waits);
                Ok(())
            })
        });
        _ = blocked.recv();
        let sample = reads(bed, effort);
        drop(go_on);
        blocking.join().expect("nothing in it panics")?;
        sample
    })
}

/// Blocks this thread until all senders are dropped.
fn wait(waits: &Mutex<Receiver<()>>) {
    if let Ok(waits) = waits.lock() {
        _ = waits.recv();
    }
}
