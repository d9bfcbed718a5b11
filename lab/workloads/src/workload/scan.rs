//! `scan`: scans of a hundred records (CoroBase §5.5). Interleaving gains little here and must not
//! slow scans down.

use clap::Args;

use super::bars;
use super::points::{Points, Scans};
use super::stage::{BRAIDED, SEQUENTIAL, Stage, braided_on};
use crate::error::Error;
use crate::harness::report::Report;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// The number of records in a scan.
const LENGTH: u64 = 100;

#[derive(Clone, Debug)]
pub(crate) struct ScanDefaults;

impl Defaults for ScanDefaults {
    const RECORDS: u64 = bars::READS_MIDDLE;
}

/// Arguments of `braid-lab bench scan`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    scale: Scale<ScanDefaults>,
}

impl ScanArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings())
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    compare(stage, &Settings::defaults::<ScanDefaults>(quick))
}

fn compare(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let make = |bed: &_, seed| Scans::<LENGTH>(Points::on(bed, seed));
    let subjects = stage.usual_subjects(settings, make)?;
    let what = "transactions of one scan of 100 records from a uniform key, in memory";
    let mut report = stage.measure("scan", what, settings, subjects)?;
    let over_sequential = report.ratio(BRAIDED, SEQUENTIAL);
    report.ratio(&braided_on(settings.workers), BRAIDED);
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    report.bar("braided over sequential", bars::SCAN_OVER_SEQUENTIAL, over_sequential, judged);
    Ok(report)
}
