//! `idle`: the processor time of an open database without work.

use std::time::Duration;

use braiddb::{Database, Durability};
use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::process::ProcessorMeter;
use crate::harness::report::Report;
use crate::harness::rounds::Effort;
use crate::scale::arguments::{Defaults, Scale, Settings};

#[derive(Clone, Debug)]
pub(crate) struct IdleDefaults;

impl Defaults for IdleDefaults {
    const RECORDS: u64 = 10_000;
    const SECONDS: f64 = 10.0;
}

/// Arguments of `braid-lab bench idle`. It waits for --seconds, once.
#[derive(Args, Clone, Debug)]
pub(crate) struct IdleArguments {
    #[command(flatten)]
    scale: Scale<IdleDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl IdleArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, place: &Place) -> Result<Report, Error> {
    measure(stage, &Settings::defaults::<IdleDefaults>(quick), place)
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    stage.beds.clear();
    let opening = Opening::braided(settings).durability(Durability::Group);
    let database = Database::open(place.join("idle"), opening.options())?;
    // Idle workers must have run transactions before, otherwise the figure is meaningless.
    let bed = Bed::fill(database, settings.records)?;
    let wait = match settings.effort {
        Effort::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Effort::Transactions(_) => Duration::from_secs_f64(IdleDefaults::SECONDS),
    };
    let what = format!("an open durable database, {} workers, after some work", opening.workers);
    let mut report = Report::new("idle", what);
    // Work after the last commit, such as preparing the next segment, is no idle cost.
    std::thread::sleep(wait / 20);
    let seconds = wait.as_secs_f64();
    stage.progress.doing(format!("waiting for {seconds} s"));
    if let Some(meter) = ProcessorMeter::start() {
        std::thread::sleep(wait);
        if let Some(percent) = meter.percent_of_a_core() {
            let time = number::three_digits(seconds);
            let text = format!("{} % of a core over {time} s", number::three_digits(percent));
            report.fact("processor time of all threads", percent, text);
            let judged = seconds >= IdleDefaults::SECONDS;
            report.bar("processor time when idle", bars::IDLE_PERCENT, Some(percent), judged);
        }
    }
    bed.database.close()?;
    Ok(report)
}
