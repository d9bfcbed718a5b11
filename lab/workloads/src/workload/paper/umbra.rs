//! Umbra (Freitag et al., PVLDB 2022): TATP and TPC-C (figure 6), larger than memory (figure 7),
//! bulk operations (tables 2 and 3), and the cost of each layer (table 1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braiddb::{Database, Durability, Isolation};

use super::mosaicdb::tpcc;
use super::steps::{Counts, Keys, Steps};
use super::sweep::{self, Axis, Point};
use super::{Figure, Run};
use crate::engine::drive::{Driven, drive};
use crate::engine::fixture::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::error::Error;
use crate::harness::number;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Effort, Sample, Subject, repeat};
use crate::reference::hinted_lookup::HintedLookup;
use crate::reference::in_place::Layer;
use crate::scale::arguments::cores;
use crate::workload::contenders::Contender;
use crate::workload::load::LoadArguments;
use crate::workload::tatp::TatpArguments;
use crate::workload::timeline;
use crate::workload::tpcc::{Kept, Style, TpccArguments, TpccBed};
use crate::workload::tpch::TpchArguments;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "umbra-tatp",
        shows: "TATP (figure 6a)",
        found: "183 k/s with one client and 3.25 M/s with 48, at most 9.2 times PostgreSQL",
        differs: "10 M subscribers and asynchronous commit there; requests come as SQL through a driver there, stored \
                  procedures run in the workers here",
        run: tatp,
    },
    Figure {
        name: "umbra-tpcc",
        shows: "TPC-C (figure 6b)",
        found: "27 k/s with one client and 413 k/s with 48, at most 18.8 times an in-memory system",
        differs: "100 warehouses there; as for TATP",
        run: tpcc_rates,
    },
    Figure {
        name: "umbra-layers",
        shows: "the cost of each layer: no versions, + status, + snapshot, + serializable, + durable (table 1)",
        found: "TPC-C at 32.8 k/s without transactions; with lists of them 0.96, with shared latches 0.95, with versions \
                0.82 of it; without in-place updates a fifth",
        differs: "10 read-modify-writes in place of TPC-C where there is no engine: a bare tree changed in place, then with \
                  a state for each transaction; Braid's tables are those in memory here, of which each write makes a version \
                  beside the old one (paged tables are written in place), and there is no undo log",
        run: layers,
    },
    Figure {
        name: "umbra-memory",
        shows: "TPC-C on pages that outgrow their memory, over time (figure 7)",
        found: "from 370 k/s in memory to 340 k/s beyond, without a stall, with at most 60 MB of versions",
        differs: "the budget is as much larger than the data at first as there, 4 to 3; minutes there, --seconds here",
        run: larger_than_memory,
    },
    Figure {
        name: "umbra-bulk-load",
        shows: "loading by transactions and by a staged table (table 2)",
        found: "11.7 s without versions, 15.0 with them and 2.9 GB for them, 13.0 s and none as a bulk operation",
        differs: "records of 8 and 8 bytes in place of TPC-H's tables; a staged table is not seen until it is published",
        run: bulk_load,
    },
    Figure {
        name: "umbra-bulk-queries",
        shows: "queries of TPC-H beside refreshes (table 3)",
        found: "28.6 queries/s alone, 23.8 beside regular updates, 25.0 beside bulk updates",
        differs: "queries 1, 6 and 12 in one transaction each",
        run: bulk_queries,
    },
];

fn tatp(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    // A subscriber takes a kilobyte.
    let subscribers = (run.settings.records / 20).max(1).to_string();
    let own =
        ["--records", &subscribers, "--subjects", "serializable,snapshot,memory,memory-snapshot"];
    let arguments: TatpArguments = run.arguments_on_disk(&own);
    let mut report = arguments.run(run.stage)?;
    report.notes.push(format!("{} workers; 1 and 48 clients there", run.settings.workers));
    let rate = report.subject(Contender::Snapshot.name()).map(|subject| subject.rate.median);
    report.published("durable, snapshot, all workers; 1 client there", 183e3, rate, "/s");
    report.published("durable, snapshot, all workers; 48 clients there", 3.247e6, rate, "/s");
    Ok(vec![report])
}

fn tpcc_rates(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let warehouses = run.warehouses.to_string();
    let own =
        ["--warehouses", &warehouses, "--subjects", "serializable,snapshot,memory,memory-snapshot"];
    let arguments: TpccArguments = run.arguments_on_disk(&own);
    let mut reports = arguments.run(run.stage)?;
    for report in &mut reports {
        report.bars.clear();
        let rate = report.subject(Contender::Snapshot.name()).map(|subject| subject.rate.median);
        report.published("durable, snapshot, all workers; 1 client there", 27e3, rate, "/s");
        report.published("durable, snapshot, all workers; 48 clients there", 413.3e3, rate, "/s");
    }
    Ok(reports)
}

/// Changes the bare tree in place.
struct InPlace {
    tree: HintedLookup,
    layer: Layer,
    seed: u64,
}

impl Subject for InPlace {
    fn name(&self) -> &str {
        "bare"
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.seed += 1;
        Ok(self.tree.modify(self.layer, effort, self.seed))
    }
}

fn layers(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis =
        Axis { name: "layers", title: "10 read-modify-writes, by how much there is around them" };
    const LAYERS: [&str; 5] =
        ["no versions", "+ status", "+ snapshot", "+ serializable", "+ durable"];
    let (settings, place) = (run.settings, run.place()?);
    let (records, seed) = (settings.records, settings.seed);
    check_memory(records, 2 * records * RECORD_BYTES + 2 * HintedLookup::bytes(records))?;
    run.stage.progress.doing("loading");
    let mut points = Vec::new();
    for (place, layer) in [Layer::NoVersions, Layer::Status].into_iter().enumerate() {
        let tree = HintedLookup::build(records)?;
        let subject = Box::new(InPlace { tree, layer, seed });
        points.push(Point::new(LAYERS[place], (place + 1) as f64, subject));
    }
    let one = Opening { workers: 1, ..Opening::braided(settings) };
    let volatile = Bed::loaded(one, records)?;
    let options = one.durability(Durability::Group).options();
    let durable = Bed::fill(Database::open(place.join("durable"), options)?, records)?;
    for (number, bed, isolation) in [
        (2, &volatile, Isolation::Snapshot),
        (3, &volatile, Isolation::Serializable),
        (4, &durable, Isolation::Serializable),
    ] {
        let (of, counts) = (bed.clone(), Counts { modifies: 10, ..Counts::default() });
        let make = move |seed| Steps::on(&of, counts, Keys::of(of.records, 0.0, seed));
        let driven = Driven::new("", &bed.database, 1, seed, make);
        let subject = driven.isolation(isolation);
        points.push(Point::new(LAYERS[number], (number + 1) as f64, Box::new(subject)));
    }
    let what =
        "transactions of 10 uniform read-modify-writes, 1 worker, braided from the third layer on";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.lines.clear();
    report.notes.push(place.describe());
    let name = |number: usize| AXIS.subject(LAYERS[number], (number + 1) as f64);
    let over = |report: &Report, number| report.over(&name(number), &name(0));
    let shares = [1, 2, 3, 4].map(|number| over(&report, number));
    report.published(
        "+ status over no versions (transaction lists and latches)",
        0.95,
        shares[0],
        "×",
    );
    report.published("+ snapshot over no versions", 0.82, shares[1], "×");
    report.published(
        "+ serializable over no versions (CoroBase: 10 to 15 % less)",
        0.72,
        shares[2],
        "×",
    );
    for number in 1..LAYERS.len() {
        report.ratio(&name(number), &name(number - 1));
    }
    Ok(vec![report, layers_of_tpcc(run)?])
}

/// Measures the layers that an engine can omit, on TPC-C.
fn layers_of_tpcc(run: &mut Run<'_>) -> Result<Report, Error> {
    let warehouses = run.warehouses.to_string();
    let own = ["--warehouses", &warehouses, "--subjects", "serializable,memory,memory-snapshot"];
    let arguments: TpccArguments = run.arguments_on_disk(&own);
    let mut reports = arguments.run(run.stage)?;
    let mut report = reports.pop().expect("one number of warehouses was asked for");
    report.bars.clear();
    Ok(report)
}

fn larger_than_memory(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let (settings, place) = (run.settings, run.place()?);
    let cardinalities = tpcc(run);
    let workers = settings.workers;
    let opening = Opening::braided(settings).durability(Durability::Group);
    let progress = &run.stage.progress;
    let path = place.join("tpcc");
    let database = Database::open(&path, opening.options())?;
    let bed =
        TpccBed::fill(database, Kept::Paged, cardinalities, settings.seed, workers, progress)?;
    let pages = bed.database.stats().memory.pages;
    pollster::block_on(bed.database.checkpoint())?;
    bed.close()?;
    // 16 GB for 12 GB in the paper; plus the log's ring and other memory that holds no pages.
    let budget = (pages / 3 * 4 + (64 << 20)).max(160 << 20);
    let database = Database::open(&path, opening.options().memory_budget(Some(budget)))?;
    let bed = TpccBed::over(database, cardinalities, settings.seed)?;
    // A figure over time needs a minimum duration.
    let effort = match settings.effort {
        Effort::Seconds(seconds) if !settings.quick => Effort::Seconds((seconds * 60.0).max(30.0)),
        effort => effort,
    };
    let mut make = bed.terminals(workers, Style::default());
    let seed = settings.seed;
    let round = || drive(&bed.database, workers, |worker| make(seed + worker as u64), effort, 16);
    let over = AtomicBool::new(false);
    let pause = Duration::from_millis(if settings.quick { 10 } else { 1_000 });
    let (measured, looks) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| timeline::watch(&bed.database, &over, pause));
        let measured = repeat("TPC-C on pages", 1, progress, round);
        // Release pairs with the watcher's Acquire.
        over.store(true, Ordering::Release);
        (measured, watcher.join().expect("the watcher does not panic"))
    });
    let what = format!(
        "TPC-C with {} warehouses on pages, durable, under a budget of {}",
        cardinalities.warehouses,
        number::bytes(budget)
    );
    let mut report = Report::new("figure", what);
    report.setting = Some(Setting { records: cardinalities.records(), effort, rounds: 1 });
    report.measured.push(measured?);
    report.lines = timeline::charts(&looks);
    let versions = looks.iter().map(timeline::Look::versions).max().unwrap_or(0) as f64;
    report.published("memory of versions, at most", 60e6, Some(versions), "B");
    report.published("second half's rate over the first's", 0.92, timeline::halves(&looks), "×");
    report.fact("pages at first", pages as f64, number::bytes(pages));
    bed.check()?;
    bed.close()?;
    report.notes.push(place.describe());
    Ok(vec![report])
}

fn bulk_load(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let records = run.records();
    let arguments: LoadArguments = run.arguments(&["--records", &records]);
    let mut report = arguments.run(run.stage)?;
    report.bars.clear();
    let over = report.over("from an iterator", "in key order");
    report.published("bulk over regular transactions, records a second", 15.0 / 13.0, over, "×");
    Ok(vec![report])
}

fn bulk_queries(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    // 1.5 M orders are scale 1.
    let orders = (run.settings.records / 20).max(1).to_string();
    let arguments: TpchArguments = run.arguments_on_disk(&["--records", &orders]);
    let mut report = arguments.run(run.stage)?;
    for name in ["in memory", "paged"] {
        let over = report.over(&format!("{name}, refreshed"), name);
        report.published(format!("{name}: beside refreshes over alone"), 23.8 / 28.6, over, "×");
    }
    let over = report.over("paged, refreshed in bulk", "paged");
    report.published("paged: beside bulk refreshes over alone", 25.0 / 28.6, over, "×");
    report.notes.push(format!("{} cores", cores()));
    Ok(vec![report])
}
