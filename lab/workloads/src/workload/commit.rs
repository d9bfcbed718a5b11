//! `commit`: the cost of durability. One read-modify-write in each transaction, with group commit
//! on a real disk, without a log, and with a sync for every commit (one transaction at a time).

use braiddb::{Database, Durability};
use clap::Args;

use super::bars;
use super::points::{Points, ReadModifyWrites};
use super::stage::{Stage, braided_on};
use crate::engine::drive::Driven;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};

const GROUP: &str = "group commit";
const RELAXED: &str = "relaxed";
const VOLATILE: &str = "volatile";
const ONE_SYNC: &str = "one sync a commit";

#[derive(Clone, Debug)]
pub(crate) struct CommitDefaults;

impl Defaults for CommitDefaults {
    const RECORDS: u64 = 1_000_000;
    const QUICK_RECORDS: u64 = 5_000;
}

/// Arguments of `braid-lab bench commit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommitArguments {
    #[command(flatten)]
    scale: Scale<CommitDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl CommitArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings(), self.place.make()?)
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, place: Place) -> Result<Report, Error> {
    compare(stage, &Settings::defaults::<CommitDefaults>(quick), place)
}

fn compare(stage: &mut Stage, settings: &Settings, place: Place) -> Result<Report, Error> {
    let one = Opening { workers: 1, ..Opening::braided(settings) };
    let several = Opening::braided(settings).durability(Durability::Group);
    let each = Opening::sequential(settings).durability(Durability::Group);
    let mut openings = vec![
        (GROUP.to_owned(), one.durability(Durability::Group)),
        (VOLATILE.to_owned(), one),
        (ONE_SYNC.to_owned(), each),
        (RELAXED.to_owned(), one.durability(Durability::Relaxed)),
    ];
    if settings.workers > 1 {
        openings.push((several_workers(settings), several));
    }
    let mut subjects = Vec::new();
    for (i, (name, opening)) in openings.iter().enumerate() {
        stage.progress.doing(format!("loading: {name}"));
        let database = match opening.durability {
            Durability::Volatile => Database::in_memory(opening.options())?,
            _ => Database::open(place.join(&i.to_string()), opening.options())?,
        };
        let bed = Bed::fill(database, settings.records)?;
        let database = bed.database.clone();
        let make = move |seed| ReadModifyWrites::<1>(Points::on(&bed, seed));
        let seed = settings.seed + i as u64;
        let period = if *name == ONE_SYNC { 1 } else { 16 };
        let driven = Driven::new(name, &database, opening.workers, seed, make).time_one_in(period);
        subjects.push(Box::new(driven) as Box<dyn Subject>);
    }
    let what = "transactions of 1 read-modify-write, by durability";
    let mut report = stage.measure("commit", what, settings, subjects)?;
    report.notes.push(place.describe());
    let over_volatile = report.ratio(GROUP, VOLATILE);
    let over_one_sync = report.ratio(GROUP, ONE_SYNC);
    report.ratio(&several_workers(settings), GROUP);
    let judged = settings.records == CommitDefaults::RECORDS && !settings.quick;
    report.bar("group commit over volatile", bars::GROUP_OVER_VOLATILE, over_volatile, judged);
    let limit = bars::GROUP_OVER_ONE_SYNC;
    report.bar("group commit over one sync a commit", limit, over_one_sync, judged);
    Ok(report)
}

fn several_workers(settings: &Settings) -> String {
    braided_on(settings.workers).replace(super::stage::BRAIDED, GROUP)
}
