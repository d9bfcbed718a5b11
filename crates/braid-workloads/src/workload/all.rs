//! `all`: every workload that has bars, at the scale the bars speak of, and the table of bars.

use clap::Args;

use super::stage::Stage;
use super::{bars, churn, commit, idle, load, paths, reads, rmw, scan, updates};
use crate::error::Error;
use crate::harness::place::PlaceArguments;
use crate::harness::report::Report;

/// Arguments of `braid bench all`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AllArguments {
    /// Scale everything down to finish in seconds. The figures mean nothing then.
    #[arg(long, short = 'q')]
    quick: bool,

    #[command(flatten)]
    place: PlaceArguments,
}

impl AllArguments {
    /// Runs all. Loading comes first: only a fresh process tells what a record takes.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let quick = self.quick;
        let place = || self.place.make();
        Ok(vec![
            load::at(stage, quick)?,
            reads::at(stage, quick, bars::READS_LARGE)?,
            reads::at(stage, quick, bars::READS_MIDDLE)?,
            updates::at(stage, quick)?,
            rmw::at(stage, quick)?,
            scan::at(stage, quick)?,
            paths::at(stage, quick)?,
            reads::at(stage, quick, bars::READS_CACHED)?,
            commit::at(stage, quick, place()?)?,
            churn::at(stage, quick)?,
            idle::at(stage, quick, &place()?)?,
        ])
    }
}
