//! `trace`: the cost of a trace, and charts of one: what slots run and wait for, in memory and with
//! group commit.

use std::time::Duration;

use braiddb::trace::{Activity, Trace, TraceSlice};
use braiddb::{Database, Durability, Width};
use clap::Args;

use super::points::{OPERATIONS, Points, ReadModifyWrites, Reads};
use super::stage::Stage;
use crate::engine::drive::{Driven, drive};
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::{Lane, LaneChart, Report, Stretch};
use crate::harness::rounds::{Effort, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of subjects in tables.
const UNTRACED: &str = "without a trace";
const TRACED: &str = "traced";
/// The number of slices that the trace keeps.
const SLICES: usize = 1 << 17;
/// The activities of slots and workers, in the order of colours.
const KINDS: [&str; 6] =
    ["runs", "cache line", "commit", "another's decision", "housekeeping", "sleeps"];
/// The number of slots in a chart.
const LANES: usize = 12;
/// The number of moments to choose a chart from.
const MOMENTS: usize = 101;
const IN_MEMORY_WINDOW: Duration = Duration::from_micros(6);
const DURABLE_WINDOW: Duration = Duration::from_millis(3);
/// The number of records changed by transactions that wait for the disk.
const DURABLE_RECORDS: u64 = 100_000;
/// Transactions that are enough for a chart.
const DRAWN: Effort = Effort::Transactions(20_000);

#[derive(Clone, Debug)]
pub(crate) struct TraceDefaults;

impl Defaults for TraceDefaults {
    const RECORDS: u64 = 2_000_000;
    const QUICK_RECORDS: u64 = 5_000;
}

/// Arguments of `braid-lab bench trace`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    scale: Scale<TraceDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl TraceArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    let one = Opening { workers: 1, ..Opening::braided(settings) };
    let mut subjects = Vec::new();
    for (name, slices) in [(UNTRACED, 0), (TRACED, SLICES)] {
        stage.progress.doing(format!("loading: {name}"));
        let database = Database::in_memory(one.options().tune(|tuning| tuning.trace(slices)))?;
        let bed = Bed::fill(database, settings.records)?;
        let database = bed.database.clone();
        let make = move |seed| Reads::<OPERATIONS>(Points::on(&bed, seed));
        let driven = Driven::new(name, &database, 1, settings.seed, make);
        subjects.push(Box::new(driven) as Box<dyn Subject>);
    }
    let what = "transactions of 10 reads of uniform records, in memory, one worker";
    let mut report = stage.measure("trace", what, settings, subjects)?;
    report.ratio(TRACED, UNTRACED);
    let trace = in_memory(one, settings)?;
    let polls = polls_of_one(&trace);
    report.fact("polls a transaction of 10 reads", polls, format!("{polls:.1}"));
    let title = format!("10 reads a transaction, in memory, {LANES} slots");
    report.lanes.push(picture("trace-in-memory", &title, &trace, IN_MEMORY_WINDOW));
    let trace = durable(one, settings, place)?;
    let title = format!("1 read-modify-write a transaction, group commit, {LANES} of the slots");
    report.lanes.push(picture("trace-group-commit", &title, &trace, DURABLE_WINDOW));
    report.notes.push(place.describe());
    Ok(report)
}

/// Returns the polls for each completed transaction.
fn polls_of_one(trace: &Trace) -> f64 {
    let count = |is: fn(Activity) -> bool| {
        trace.slices().iter().filter(|slice| is(slice.activity)).count() as f64
    };
    let polls = count(|activity| matches!(activity, Activity::Runs | Activity::Ends));
    polls / count(|activity| activity == Activity::Ends).max(1.0)
}

/// Traces transactions that wait for memory.
fn in_memory(one: Opening, settings: &Settings) -> Result<Trace, Error> {
    let options = one.options();
    let options = options.tune(|tuning| tuning.hot_width(Width::Fixed(LANES)).trace(SLICES));
    let bed = Bed::fill(Database::in_memory(options)?, settings.records)?;
    let make = |_| Reads::<OPERATIONS>(Points::on(&bed, settings.seed));
    drive(&bed.database, 1, make, DRAWN, u32::MAX)?;
    Ok(bed.database.trace())
}

/// Traces transactions that wait for the disk.
fn durable(one: Opening, settings: &Settings, place: &Place) -> Result<Trace, Error> {
    let options = one.durability(Durability::Group).options();
    let options = options.tune(|tuning| tuning.cold_width(LANES).trace(SLICES));
    let database = Database::open(place.join("trace"), options)?;
    let bed = Bed::fill(database, settings.records.min(DURABLE_RECORDS))?;
    let make = |_| ReadModifyWrites::<1>(Points::on(&bed, settings.seed));
    drive(&bed.database, 1, make, DRAWN, u32::MAX)?;
    bed.database.close()?;
    Ok(bed.database.trace())
}

/// Charts the worker's slots for a period. Chooses, among many recorded moments, one with median
/// activity.
fn picture(name: &str, title: &str, trace: &Trace, window: Duration) -> LaneChart {
    let polls: Vec<Duration> = trace
        .slices()
        .iter()
        .filter(|slice| matches!(slice.activity, Activity::Runs | Activity::Ends))
        .map(|slice| slice.begin)
        .collect();
    let within = |from: Duration| {
        polls.partition_point(|at| *at < from + window) - polls.partition_point(|at| *at < from)
    };
    let mut moments: Vec<Duration> =
        polls.iter().step_by((polls.len() / MOMENTS).max(1)).copied().collect();
    moments.sort_by_key(|from| within(*from));
    let from = moments.get(moments.len() / 2).copied().unwrap_or_default();
    let until = from + window;
    let within = |slice: &&TraceSlice| slice.begin < until && slice.begin + slice.length > from;
    let seen: Vec<&TraceSlice> = trace.slices().iter().filter(within).collect();
    let mut slots: Vec<Option<usize>> = seen.iter().map(|slice| slice.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    // The worker and `LANES` slots.
    slots.truncate(1 + LANES);
    let micros = |time: Duration| time.saturating_sub(from).min(window).as_nanos() as f64 / 1e3;
    let lane = |slot: &Option<usize>| Lane {
        name: slot.map_or("worker".to_owned(), |slot| format!("slot {slot}")),
        stretches: seen
            .iter()
            .filter(|slice| slice.slot == *slot)
            .map(|slice| Stretch {
                begin: micros(slice.begin),
                end: micros(slice.begin + slice.length),
                what: match slice.activity {
                    Activity::Ends => Activity::Runs.name(),
                    activity => activity.name(),
                },
            })
            .collect(),
    };
    LaneChart {
        name: name.to_owned(),
        title: format!("{title}: {} of it", number::nanoseconds(window.as_nanos() as u64)),
        x: "time, in microseconds".to_owned(),
        right: micros(until),
        kinds: KINDS.to_vec(),
        lanes: slots.iter().map(lane).collect(),
    }
}
