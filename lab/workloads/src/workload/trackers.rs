//! `trackers`: the hole trackers alone, without a disk, with up to more threads than cores: the
//! cost of a block as threads increase (as in ELEDA §6.5).

use std::time::Duration;

use braiddb::HoleTracker;
use braiddb::experiment::TrackerDrive;
use clap::Args;

use super::bars;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings, cores};
use crate::workload::stage::Stage;

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const BLOCK_BYTES: [u64; 2] = [128, 4096];

#[derive(Clone, Debug)]
pub(crate) struct TrackersDefaults;

impl Defaults for TrackersDefaults {
    const RECORDS: u64 = 1;
    const SECONDS: f64 = 0.2;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench trackers`. --records and --transactions have no effect.
#[derive(Args, Clone, Debug)]
pub(crate) struct TrackersArguments {
    #[command(flatten)]
    scale: Scale<TrackersDefaults>,
}

impl TrackersArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        measure(stage, &self.scale.settings())
    }
}

/// One tracker, with this number of threads and block size.
pub(crate) struct Driven {
    name: String,
    drive: TrackerDrive,
}

impl Driven {
    pub(crate) fn new(tracker: HoleTracker, threads: usize, bytes: u64) -> Self {
        let drive = TrackerDrive::new(tracker).threads(threads).block_bytes(bytes);
        Self { name: name(tracker, bytes, threads), drive }
    }
}

impl Subject for Driven {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let seconds = match effort {
            Effort::Seconds(seconds) => seconds,
            Effort::Transactions(_) => TrackersDefaults::SECONDS,
        };
        let driven = self.drive.period(Duration::from_secs_f64(seconds)).run()?;
        let (elapsed, latencies) = (driven.elapsed, Latencies::one_in(1));
        Ok(Sample::plain(driven.blocks, elapsed, latencies))
    }
}

fn name(tracker: HoleTracker, bytes: u64, threads: usize) -> String {
    format!("{tracker}, {bytes} B, {threads} threads")
}

fn measure(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let seconds = match settings.effort {
        Effort::Seconds(seconds) => seconds,
        Effort::Transactions(_) => TrackersDefaults::SECONDS,
    };
    let settings = Settings { effort: Effort::Seconds(seconds), ..settings.clone() };
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for bytes in BLOCK_BYTES {
        for threads in THREADS {
            for tracker in HoleTracker::ALL {
                subjects.push(Box::new(Driven::new(tracker, threads, bytes)));
            }
        }
    }
    let what = "blocks reserved, filled and found to be without a hole before them, without a disk";
    let mut report = stage.measure("trackers", what, &settings, subjects)?;
    report.unit = "blocks";
    let judged = seconds >= TrackersDefaults::SECONDS && !settings.quick;
    for bytes in BLOCK_BYTES {
        for tracker in [HoleTracker::default(), HoleTracker::Grasshopper] {
            let worst = |report: &mut Report, other| {
                let over = |threads| {
                    report.ratio(&name(tracker, bytes, threads), &name(other, bytes, threads))
                };
                THREADS.into_iter().filter_map(over).min_by(f64::total_cmp)
            };
            for (other, limit) in [
                (HoleTracker::BitmapScan, bars::TRACKER_OVER_BITMAP),
                (HoleTracker::GlobalLock, bars::TRACKER_OVER_LOCK),
            ] {
                let what = format!("{tracker} over {other}, {bytes} B, at worst");
                let worst = worst(&mut report, other);
                report.bar(what, limit, worst, judged);
            }
        }
        let chart = costs(&report, bytes);
        report.lines.push(chart);
    }
    Ok(report)
}

/// Charts the processor time of a block, by threads.
fn costs(report: &Report, bytes: u64) -> LineChart {
    let lines = HoleTracker::ALL.map(|tracker| Line {
        name: tracker.to_string(),
        points: THREADS
            .iter()
            .filter_map(|&threads| {
                let rate = report.subject(&name(tracker, bytes, threads))?.rate.median;
                Some((threads as f64, 1e9 * threads.min(cores()) as f64 / rate))
            })
            .collect(),
    });
    LineChart {
        name: format!("trackers-{bytes}"),
        title: format!("Processor time for a block of {bytes} bytes"),
        x: "threads".to_owned(),
        y: "ns".to_owned(),
        lines: lines.into(),
    }
}
