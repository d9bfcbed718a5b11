//! `paged`: uniform reads of a paged table: all in memory, beside a table in memory; and four times as large as the
//! memory that its pages may take, where what is read fits, and where it does not.

use braiddb::{Database, Durability, TableOptions, Transaction};
use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, Reads};
use super::stage::Stage;
use crate::engine::bed::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::engine::drive::Driven;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of subjects, as tables show them.
const HOT: &str = "in memory";
const CACHED: &str = "paged, all cached";
const CACHED_SET: &str = "paged, all cached, an eighth is read";
const FITTING_SET: &str = "4 times the memory, an eighth is read";
const UNIFORM: &str = "4 times the memory, all is read";
const SEQUENTIAL: &str = "4 times the memory, all is read, sequential";
/// How many times as large as the memory for its pages the table is; and what part of it the working set is.
const TIMES: u64 = 4;
const PART: u64 = 8;
/// The log's ring in a small budget, and what is kept free beside pages, in sixteenths of the rest.
const RING_BYTES: u64 = 32 << 20;
const KEPT_FREE: u64 = 16;

#[derive(Clone, Debug)]
pub(crate) struct PagedDefaults;

impl Defaults for PagedDefaults {
    const RECORDS: u64 = 5_000_000;
    const SECONDS: f64 = 2.0;
}

/// Arguments of `braid bench paged`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PagedArguments {
    #[command(flatten)]
    scale: Scale<PagedDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl PagedArguments {
    /// Runs it.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        let settings = self.scale.settings();
        measure(stage, &settings, &self.place.make()?)
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    let records = settings.records;
    check_memory(records, 2 * records * RECORD_BYTES)?;
    stage.beds.clear();
    stage.progress.doing(format!("loading {} records, four times", number::grouped(records)));
    let braided = Opening { workers: 1, ..Opening::braided(settings) };
    let hot = Bed::loaded(braided, records)?;
    let cached = load(place, "cached", braided, records, None)?;
    let page_bytes = cached.database.stats().memory.pages;
    let room = page_bytes / TIMES;
    // Where nothing is logged, nothing is the ring's; a budget is more than a ring nevertheless.
    let budget = (room + room / (KEPT_FREE - 1)).max(RING_BYTES + 1);
    let larger = load(place, "larger", braided, records, Some(budget))?;
    let alone = Opening::sequential(settings);
    let sequential = load(place, "sequential", alone, records, Some(budget))?;
    let part = |bed: &Bed| Bed { records: (records / PART).max(1), ..bed.clone() };
    let beds = [
        (HOT, hot.clone()),
        (CACHED, cached.clone()),
        (CACHED_SET, part(&cached)),
        (FITTING_SET, part(&larger)),
        (UNIFORM, larger.clone()),
        (SEQUENTIAL, sequential.clone()),
    ];
    let subjects = beds.into_iter().zip(settings.seed..).map(|((name, bed), seed)| {
        let of = bed.clone();
        let make = move |seed| Reads::<OPERATIONS>(Points::on(&of, seed));
        Box::new(Driven::new(name, &bed.database, 1, seed, make)) as Box<dyn Subject>
    });
    let what = "transactions of 10 uniform reads, 1 worker, nothing logged";
    let mut report = stage.measure("paged", what, settings, subjects.collect())?;
    report.notes.push(place.describe());
    let judged = records == PagedDefaults::RECORDS && !settings.quick;
    let over_hot = report.ratio(CACHED, HOT);
    report.bar("paged over in memory, all cached", bars::PAGED_OVER_HOT, over_hot, judged);
    let over_cached = report.ratio(FITTING_SET, CACHED_SET);
    report.bar(
        "4 times the memory, what is read fits, over all cached",
        bars::FITTING_OVER_CACHED,
        over_cached,
        judged,
    );
    let over_sequential = report.ratio(UNIFORM, SEQUENTIAL);
    report.bar(
        "4 times the memory, uniform, over sequential",
        bars::PAGED_OVER_SEQUENTIAL,
        over_sequential,
        judged,
    );
    let in_memory = larger.database.stats().memory.pages;
    report.fact("pages of the whole table", page_bytes as f64, number::bytes(page_bytes));
    report.fact("pages in memory where it is larger", in_memory as f64, number::bytes(in_memory));
    for bed in [hot, cached, larger, sequential] {
        bed.database.close()?;
    }
    Ok(report)
}

/// A paged table with all records in a directory of its own.
fn load(
    place: &Place,
    name: &str,
    opening: Opening,
    records: u64,
    budget: Option<u64>,
) -> Result<Bed, Error> {
    let options = opening.durability(Durability::Volatile).options();
    let options = options.memory_budget(budget);
    let database = Database::open(place.join(name), options)?;
    let create = async |tx: &Transaction| {
        let paged = TableOptions::default().paged();
        tx.create_table_with::<u64, u64>("records", paged).await.map(drop)
    };
    database.run_blocking(create)?;
    Bed::fill(database, records)
}
