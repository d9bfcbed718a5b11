//! `paged`: uniform reads and updates of a paged table. The table is fully cached, compared with a
//! table in memory; or four times as large as the memory for its pages, with a working set that
//! fits and one that does not.

use braiddb::{Database, Durability, TableOptions, Transaction};
use clap::Args;

use super::bars;
use super::fio::Fio;
use super::points::{OPERATIONS, Points, ReadModifyWrites, Reads, Updates};
use super::stage::Stage;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of subjects in tables.
const HOT: &str = "in memory";
const CACHED: &str = "paged, all cached";
const CACHED_SET: &str = "paged, all cached, an eighth is read";
const FITTING_SET: &str = "4 times the memory, an eighth is read";
const UNIFORM: &str = "4 times the memory, all is read";
const SEQUENTIAL: &str = "4 times the memory, all is read, sequential";
const CHANGED: &str = "4 times the memory, all is read and changed";
/// The queue depth of `fio`.
const FIO_DEPTH: usize = 64;
/// The size of the table as a multiple of the memory for its pages, and the working set's part of
/// the table.
const TIMES: u64 = 4;
const PART: u64 = 8;
/// The log's ring in a small budget, and the part of the rest that pages must not use, in
/// sixteenths.
const RING_BYTES: u64 = 32 << 20;
const KEPT_FREE: u64 = 16;

#[derive(Clone, Debug)]
pub(crate) struct PagedDefaults;

impl Defaults for PagedDefaults {
    const RECORDS: u64 = 5_000_000;
    const SECONDS: f64 = 2.0;
}

/// Arguments of `braid-lab bench paged`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PagedArguments {
    #[command(flatten)]
    scale: Scale<PagedDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl PagedArguments {
    /// Runs the workload: reads, then updates.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let place = self.place.make()?;
        let beds = Beds::load(stage, &settings, &place)?;
        let reports = vec![
            measure_reads(stage, &settings, &place, &beds)?,
            measure_updates(stage, &settings, &beds)?,
        ];
        for bed in [beds.hot, beds.cached, beds.larger, beds.sequential] {
            bed.database.close()?;
        }
        Ok(reports)
    }
}

/// The tables: all except the first are paged, and the last two are larger than the memory for
/// their pages.
struct Beds {
    hot: Bed,
    cached: Bed,
    larger: Bed,
    sequential: Bed,
    /// Bytes of all pages of one table.
    page_bytes: u64,
}

impl Beds {
    fn load(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Self, Error> {
        let records = settings.records;
        check_memory(records, 2 * records * RECORD_BYTES)?;
        stage.beds.clear();
        stage.progress.doing(format!("loading {} records, four times", number::grouped(records)));
        let braided = Opening { workers: 1, ..Opening::braided(settings) };
        let hot = Bed::loaded(braided, records)?;
        let cached = load(place, "cached", braided, records, None)?;
        let page_bytes = cached.database.stats().memory.pages;
        let room = page_bytes / TIMES;
        // A database without a log uses no ring; its budget must nevertheless be larger than a
        // ring.
        let budget = (room + room / (KEPT_FREE - 1)).max(RING_BYTES + 1);
        let larger = load(place, "larger", braided, records, Some(budget))?;
        let alone = Opening::sequential(settings);
        let sequential = load(place, "sequential", alone, records, Some(budget))?;
        Ok(Self { hot, cached, larger, sequential, page_bytes })
    }
}

/// Returns a subject of procedures from `make`.
fn subject<P: Procedure>(
    name: &str,
    bed: &Bed,
    seed: u64,
    make: impl Fn(Points) -> P + 'static,
) -> Box<dyn Subject> {
    let of = bed.clone();
    Box::new(Driven::new(name, &bed.database, 1, seed, move |seed| make(Points::on(&of, seed))))
}

fn measure_reads(
    stage: &mut Stage,
    settings: &Settings,
    place: &Place,
    beds: &Beds,
) -> Result<Report, Error> {
    let part = |bed: &Bed| Bed { records: (bed.records / PART).max(1), ..bed.clone() };
    let subjects = [
        (HOT, beds.hot.clone()),
        (CACHED, beds.cached.clone()),
        (CACHED_SET, part(&beds.cached)),
        (FITTING_SET, part(&beds.larger)),
        (UNIFORM, beds.larger.clone()),
        (SEQUENTIAL, beds.sequential.clone()),
    ];
    let subjects = subjects.into_iter().zip(settings.seed..);
    let subjects =
        subjects.map(|((name, bed), seed)| subject(name, &bed, seed, Reads::<OPERATIONS>));
    let what = "transactions of 10 uniform reads, 1 worker, nothing logged";
    let mut report = stage.measure("paged", what, settings, subjects.collect())?;
    report.notes.push(place.describe());
    let judged = is_judged(settings);
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
    let rate = records_a_second(&report, UNIFORM);
    stage.progress.doing("reading with fio");
    let fio = Fio::read(&place.join("fio"), beds.page_bytes, FIO_DEPTH, settings.quick);
    if let (Some(fio), Some(rate)) = (fio, rate) {
        let reads = fio.operations_a_second;
        report.fact(format!("fio, {FIO_DEPTH} reads of 4 KiB"), reads, format!("{reads:.0}/s"));
        report.bar(
            "records that are read, 4 times the memory, over reads of fio",
            bars::PAGED_READS_OVER_FIO,
            Some(rate / reads),
            judged,
        );
    }
    let in_memory = beds.larger.database.stats().memory.pages;
    let page_bytes = beds.page_bytes;
    report.fact("pages of the whole table", page_bytes as f64, number::bytes(page_bytes));
    report.fact("pages in memory where it is larger", in_memory as f64, number::bytes(in_memory));
    Ok(report)
}

fn measure_updates(stage: &mut Stage, settings: &Settings, beds: &Beds) -> Result<Report, Error> {
    let seed = settings.seed;
    let subjects = vec![
        subject(HOT, &beds.hot, seed, Updates::<OPERATIONS>),
        subject(CACHED, &beds.cached, seed + 1, Updates::<OPERATIONS>),
        subject(CHANGED, &beds.larger, seed + 2, ReadModifyWrites::<OPERATIONS>),
    ];
    let before = beds.larger.database.stats().pages;
    let what = "transactions of 10 uniform updates, or reads and updates where the table is larger than memory, 1 \
                worker, nothing logged";
    let mut report = stage.measure("paged-updates", what, settings, subjects)?;
    let judged = is_judged(settings);
    let over_hot = report.ratio(CACHED, HOT);
    report.bar(
        "updates, paged over in memory, all cached",
        bars::PAGED_UPDATES_OVER_HOT,
        over_hot,
        judged,
    );
    let changed = records_a_second(&report, CHANGED);
    report.bar(
        "records read and changed a second, 4 times the memory",
        bars::PAGED_CHANGES,
        changed,
        judged,
    );
    let after = beds.larger.database.stats().pages;
    let left = after.evicted - before.evicted;
    if left > 0 {
        let written = ((after.written - before.written) * after.page_bytes) as f64 / left as f64;
        report.bar(
            "bytes written for a page that left memory",
            bars::BYTES_FOR_A_PAGE,
            Some(written),
            judged,
        );
    }
    Ok(report)
}

fn is_judged(settings: &Settings) -> bool {
    settings.records == PagedDefaults::RECORDS && !settings.quick
}

fn records_a_second(report: &Report, subject: &str) -> Option<f64> {
    report.subject(subject).map(|subject| subject.rate.median * OPERATIONS as f64)
}

/// Loads a paged table with all records into a new directory.
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
