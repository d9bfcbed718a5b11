//! `arrivals`: the latency of reads next to one transaction that never waits, on one worker. The
//! transaction yields after a number of steps, so a read waits about that many steps longer than
//! alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use super::bars;
use super::blocked::reads;
use super::stage::Stage;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Effort, Sample, repeat_in_turn};
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of subjects in tables.
const ALONE: &str = "reads, nothing else";
const BESIDE_READS: &str = "reads beside a transaction of cached reads";
const BESIDE_A_SCAN: &str = "reads beside a transaction of scans";

#[derive(Clone, Debug)]
pub(crate) struct ArrivalsDefaults;

impl Defaults for ArrivalsDefaults {
    const RECORDS: u64 = 10_000;
    const SECONDS: f64 = 2.0;
}

/// Arguments of `braid-lab bench arrivals`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ArrivalsArguments {
    #[command(flatten)]
    scale: Scale<ArrivalsDefaults>,
}

impl ArrivalsArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings())
    }
}

/// The work of the transaction during a round.
#[derive(Clone, Copy)]
enum Beside {
    Reads,
    Scans,
}

fn measure(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let Settings { records, effort, rounds, .. } = *settings;
    let bed = Bed::loaded(Opening { workers: 1, ..Opening::braided(settings) }, records)?;
    let what =
        "one read after the other, 1 worker, 1 client; next to one transaction that never ends";
    let mut report = Report::new("arrivals", what);
    report.setting = Some(Setting { records, effort, rounds });
    let mut alone = || reads(&bed, effort);
    let mut beside_reads = || beside(&bed, effort, Beside::Reads);
    let mut beside_scans = || beside(&bed, effort, Beside::Scans);
    let mut all: [(&str, &mut dyn FnMut() -> _); 3] = [
        (ALONE, &mut alone),
        (BESIDE_READS, &mut beside_reads),
        (BESIDE_A_SCAN, &mut beside_scans),
    ];
    report.measured = repeat_in_turn(&mut all, rounds, &stage.progress)?;
    let median = |subject| {
        let latency = report.subject(subject)?.latency.as_ref()?;
        Some(latency.percentiles.first()?.nanoseconds as f64 / 1e3)
    };
    let later = |subject| Some(median(subject)? - median(ALONE)?);
    let waits = [BESIDE_READS, BESIDE_A_SCAN].map(|subject| (subject, later(subject)));
    for (subject, later) in waits {
        report.bar(
            format!("{subject}: longer than alone, at the median"),
            bars::NOTICED_MICROSECONDS,
            later,
            !settings.quick,
        );
    }
    bed.database.close()?;
    Ok(report)
}

/// Measures reads while a transaction that never waits runs on the only worker.
fn beside(bed: &Bed, effort: Effort, beside: Beside) -> Result<Sample, Error> {
    let (over, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        let (ends, begun) = (Arc::clone(&over), Arc::clone(&runs));
        let (table, records) = (bed.table.clone(), bed.records);
        let endless = scope.spawn(move || {
            bed.database.run_blocking(async move |tx| {
                // Relaxed, here and below: flags that publish no other data.
                while !ends.load(Ordering::Relaxed) {
                    begun.store(true, Ordering::Relaxed);
                    match beside {
                        Beside::Reads => {
                            for key in 0..records {
                                _ = tx.get(&table, &key).await?;
                            }
                        }
                        Beside::Scans => _ = tx.scan(&table, ..)?.count().await?,
                    }
                }
                Ok(())
            })
        });
        // Relaxed, here and below: as in the other thread, which is joined at the end.
        while !runs.load(Ordering::Relaxed) && !endless.is_finished() {
            std::thread::yield_now();
        }
        let sample = reads(bed, effort);
        over.store(true, Ordering::Relaxed);
        endless.join().expect("nothing in it panics")?;
        sample
    })
}
