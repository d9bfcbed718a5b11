//! `updates`: ten blind updates in each transaction (CoroBase §5.5).

use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, Updates};
use super::stage::{BRAIDED, SEQUENTIAL, Stage, braided_on};
use crate::error::Error;
use crate::harness::report::Report;
use crate::scale::arguments::{Defaults, Scale, Settings};

#[derive(Clone, Debug)]
pub(crate) struct UpdatesDefaults;

impl Defaults for UpdatesDefaults {
    const RECORDS: u64 = bars::READS_MIDDLE;
}

/// Arguments of `braid-lab bench updates`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpdatesArguments {
    #[command(flatten)]
    scale: Scale<UpdatesDefaults>,
}

impl UpdatesArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings())
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    compare(stage, &Settings::defaults::<UpdatesDefaults>(quick))
}

fn compare(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let make = |bed: &_, seed| Updates::<OPERATIONS>(Points::on(bed, seed));
    let subjects = stage.usual_subjects(settings, make)?;
    let what = "transactions of 10 blind updates of uniform records, in memory";
    let mut report = stage.measure("updates", what, settings, subjects)?;
    let over_sequential = report.ratio(BRAIDED, SEQUENTIAL);
    report.ratio(&braided_on(settings.workers), BRAIDED);
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    let limit = bars::UPDATES_OVER_SEQUENTIAL;
    report.bar("braided over sequential", limit, over_sequential, judged);
    Ok(report)
}
