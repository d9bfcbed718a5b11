//! `all`: every workload with bars, at the scale of the bars, and the table of bars.

use clap::Args;

use super::stage::Stage;
use super::{
    airports, bars, churn, commit, hot_cold, idle, load, paths, reads, rmw, scan, updates,
};
use crate::error::Error;
use crate::harness::place::PlaceArguments;
use crate::harness::report::Report;

/// Arguments of `braid-lab bench all`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AllArguments {
    /// Scale everything down to finish in seconds. The figures are then meaningless.
    #[arg(long, short = 'q')]
    quick: bool,

    #[command(flatten)]
    place: PlaceArguments,
}

impl AllArguments {
    /// Runs all workloads. Loading comes first: only in a fresh process can the memory of a record
    /// be measured.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        type Measure<'a> = Box<dyn FnOnce(&mut Stage) -> Result<Report, Error> + 'a>;
        let quick = self.quick;
        let place = || self.place.make();
        let all: [(&str, Measure<'_>); 14] = [
            ("load", Box::new(|stage| load::at(stage, quick, &place()?))),
            ("reads-large", Box::new(|stage| reads::at(stage, quick, bars::READS_LARGE))),
            ("reads-middle", Box::new(|stage| reads::at(stage, quick, bars::READS_MIDDLE))),
            ("widths", Box::new(|stage| reads::widths_at(stage, quick))),
            ("updates", Box::new(|stage| updates::at(stage, quick))),
            ("rmw", Box::new(|stage| rmw::at(stage, quick))),
            ("scan", Box::new(|stage| scan::at(stage, quick))),
            ("paths", Box::new(|stage| paths::at(stage, quick))),
            ("reads-cached", Box::new(|stage| reads::at(stage, quick, bars::READS_CACHED))),
            ("commit", Box::new(|stage| commit::at(stage, quick, place()?))),
            ("airports", Box::new(|stage| airports::at(stage, quick, &place()?))),
            ("hot-cold", Box::new(|stage| hot_cold::at(stage, quick, &place()?))),
            ("churn", Box::new(|stage| churn::at(stage, quick))),
            ("idle", Box::new(|stage| idle::at(stage, quick, &place()?))),
        ];
        let arguments = format!("{self:?}");
        let mut reports = Vec::with_capacity(all.len());
        for (name, measure) in all {
            let name = format!("all-{name}");
            reports.extend(stage.figure(&name, &arguments, |stage| Ok(vec![measure(stage)?]))?);
        }
        Ok(reports)
    }
}
