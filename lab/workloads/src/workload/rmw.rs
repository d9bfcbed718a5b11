//! `rmw`: ten read-modify-writes in each transaction (CoroBase §5.5).

use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, ReadModifyWrites};
use super::stage::{BRAIDED, SEQUENTIAL, Stage, braided_on};
use crate::error::Error;
use crate::harness::report::Report;
use crate::scale::arguments::{Defaults, Scale, Settings};

#[derive(Clone, Debug)]
pub(crate) struct RmwDefaults;

impl Defaults for RmwDefaults {
    const RECORDS: u64 = bars::READS_MIDDLE;
}

/// Arguments of `braid-lab bench rmw`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RmwArguments {
    #[command(flatten)]
    scale: Scale<RmwDefaults>,
}

impl RmwArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings())
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    compare(stage, &Settings::defaults::<RmwDefaults>(quick))
}

fn compare(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let make = |bed: &_, seed| ReadModifyWrites::<OPERATIONS>(Points::on(bed, seed));
    let subjects = stage.usual_subjects(settings, make)?;
    let what = "transactions of 10 read-modify-writes of uniform records, in memory";
    let mut report = stage.measure("rmw", what, settings, subjects)?;
    let over_sequential = report.ratio(BRAIDED, SEQUENTIAL);
    report.ratio(&braided_on(settings.workers), BRAIDED);
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    let rate = report.subject(BRAIDED).map(|subject| subject.rate.median);
    report.bar("braided over sequential", bars::RMW_OVER_SEQUENTIAL, over_sequential, judged);
    if settings.records == bars::READS_MIDDLE {
        report.beside_published("over CoroBase, 1 worker", bars::COROBASE_RMW, rate);
    }
    Ok(report)
}
