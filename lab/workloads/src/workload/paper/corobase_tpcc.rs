//! CoroBase, table 5.1 and figures 5.9 to 5.12: TPC-C and its variants, stalls and latency.

use braiddb::{Database, Width};

use super::mosaicdb::tpcc;
use super::steps::{Counts, Keys, Steps};
use super::sweep::{self, Axis, Point, driven, mean_ms};
use super::{Figure, Run};
use crate::engine::fixture::{Bed, Opening, RECORD_BYTES, check_memory};
use crate::error::Error;
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::workload::tpcc::{Cardinalities, Kept, Mix, Style, TpccBed};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "corobase-table-5.1",
        shows: "TPC-C: sequential, braided, and with operations of many keys where they fit (Hybrid)",
        found: "CoroBase is as fast as ERMIA, 1.14 times Naive, and Hybrid 1.29 times Naive; with hyperthreads 1.07 and 1.11",
        differs: "1000 warehouses there; TPC-C has few stalls, so the cost of a switch decides",
        run: table,
    },
    Figure {
        name: "corobase-5.9",
        shows: "share of the time that transactions wait for memory: YCSB reads, TPC-C, TPC-CH; sequential and braided",
        found: "YCSB stalls for memory most of the time, TPC-C less than half of it; CoroBase reduces stalls everywhere",
        differs: "counters of the processor there, which virtual machines seldom have; here the share is estimated: by how \
                  much a transaction takes longer on the whole data than on data that stays in the cache",
        run: stalls,
    },
    Figure {
        name: "corobase-5.10",
        shows: "TPC-CR (half Order-Status, half Stock-Level) by threads",
        found: "CoroBase up to 1.55 and 1.3 times Naive and ERMIA, Hybrid 1.08 times CoroBase",
        differs: "as for the table",
        run: read_only,
    },
    Figure {
        name: "corobase-5.11",
        shows: "TPC-CH (a tenth Query2*) by threads, and by suppliers that Query2* looks at",
        found: "with 100 suppliers CoroBase is 34 % ahead of ERMIA; 37 to 71 % ahead of Naive over sizes; Hybrid up to 1.36 \
                times CoroBase",
        differs: "Query2* reads ten items of each supplier in its home warehouse",
        run: queries,
    },
    Figure {
        name: "corobase-5.12",
        shows: "mean latency by the number interleaved: YCSB, TPC-C, TPC-CH",
        found: "latency grows with the batch, little up to four, then in proportion; least under TPC-CH",
        differs: "the axis is the pinned width of the hot queue",
        run: latency,
    },
];

const THREADS: Axis = Axis { name: "threads", title: "Transactions a second by threads" };
const SEQUENTIAL: &str = "sequential (Naive)";
const BRAIDED: &str = "braided (CoroBase)";
const HYBRID: &str = "braided, multi_get (Hybrid)";

/// TPC-C's databases, sequential and braided.
struct Beds {
    sequential: TpccBed,
    braided: TpccBed,
    workers: usize,
    seed: u64,
}

impl Beds {
    fn load(run: &Run<'_>, cardinalities: Cardinalities) -> Result<Self, Error> {
        check_memory(cardinalities.records(), 2 * cardinalities.bytes())?;
        let (workers, seed) = (run.settings.workers, run.settings.seed);
        let sequential = Opening { workers, ..Opening::sequential(run.settings) };
        let sequential = load(run, sequential, cardinalities)?;
        let braided = load(run, Opening::braided(run.settings), cardinalities)?;
        Ok(Self { sequential, braided, workers, seed })
    }

    fn points(&self, x: f64, threads: usize, style: Style) -> Vec<Point> {
        let of = |bed: &TpccBed, style| {
            let make = bed.terminals(threads.min(self.workers), style);
            driven(&bed.database, threads, self.seed, make)
        };
        let together = Style { together: true, ..style };
        vec![
            Point::new(SEQUENTIAL, x, of(&self.sequential, style)),
            Point::new(BRAIDED, x, of(&self.braided, style)),
            Point::new(HYBRID, x, of(&self.braided, together)),
        ]
    }

    /// Checks the consistency conditions of both.
    fn close(self) -> Result<(), Error> {
        for bed in [self.sequential, self.braided] {
            bed.check()?;
            bed.close()?;
        }
        Ok(())
    }
}

fn load(run: &Run<'_>, opening: Opening, cardinalities: Cardinalities) -> Result<TpccBed, Error> {
    let (seed, progress) = (run.settings.seed, &run.stage.progress);
    let database = Database::in_memory(opening.options())?;
    TpccBed::fill(database, Kept::Memory, cardinalities, seed, opening.workers, progress)
}

/// Measures a mix by threads, with published ratios at the largest number of threads.
fn by_threads(
    run: &mut Run<'_>,
    mix: Mix,
    published: &[(&str, &str, f64)],
) -> Result<Report, Error> {
    let beds = Beds::load(run, tpcc(run))?;
    let style = Style { mix, ..Style::default() };
    let counts = run.thread_counts();
    let points = counts.iter().flat_map(|threads| beds.points(*threads as f64, *threads, style));
    let points = points.collect();
    let what =
        format!("TPC-C, mix {mix:?}, {} warehouses, snapshot isolation, in memory", run.warehouses);
    let mut report = sweep::measure(run, &what, THREADS, points)?;
    beds.close()?;
    let most = *counts.last().expect("there is one") as f64;
    for (above, below, published) in published {
        let name = |series: &str| THREADS.subject(series, most);
        let ours = report.over(&name(above), &name(below));
        report.published(format!("{above} over {below}"), *published, ours, "×");
    }
    Ok(report)
}

fn table(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let published =
        [(BRAIDED, SEQUENTIAL, 1.14), (HYBRID, SEQUENTIAL, 1.29), (HYBRID, BRAIDED, 1.13)];
    Ok(vec![by_threads(run, Mix::Standard, &published)?])
}

fn read_only(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let published = [(BRAIDED, SEQUENTIAL, 1.55), (HYBRID, BRAIDED, 1.08)];
    Ok(vec![by_threads(run, Mix::ReadOnly, &published)?])
}

fn queries(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "suppliers", title: "TPC-CH by suppliers of a Query2*" };
    const SUPPLIERS: [u32; 4] = [10, 100, 300, 1_000];
    let first = by_threads(run, Mix::Queries, &[(HYBRID, BRAIDED, 1.36)])?;
    let beds = Beds::load(run, tpcc(run))?;
    let mut points = Vec::new();
    for suppliers in SUPPLIERS {
        let style = Style { mix: Mix::Queries, suppliers, ..Style::default() };
        points.extend(beds.points(f64::from(suppliers), beds.workers, style));
    }
    let what = "TPC-CH, all workers, snapshot isolation, in memory";
    let mut second = sweep::measure(run, what, AXIS, points)?;
    beds.close()?;
    let over = SUPPLIERS.map(|suppliers| {
        let name = |series| AXIS.subject(series, f64::from(suppliers));
        second.over(&name(BRAIDED), &name(SEQUENTIAL))
    });
    let over = || over.iter().flatten().copied();
    let (least, most) = (over().min_by(f64::total_cmp), over().max_by(f64::total_cmp));
    second.published("braided over sequential, at least", 1.37, least, "×");
    second.published("braided over sequential, at most", 1.71, most, "×");
    Ok(vec![first, second])
}

/// Measures the share of a transaction's time that cache misses cost.
fn stalls(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis =
        Axis { name: "of the data", title: "Whole data (1) and data that stays in the cache (0)" };
    const CACHED: u64 = 10_000;
    let settings = run.settings;
    let (workers, seed) = (settings.workers, settings.seed);
    let mut points = Vec::new();
    let openings = [
        ("sequential", Opening { workers, ..Opening::sequential(settings) }),
        ("braided", Opening::braided(settings)),
    ];
    check_memory(settings.records, 2 * settings.records * RECORD_BYTES)?;
    for (series, opening) in openings {
        for (x, records) in [(0.0, CACHED.min(settings.records)), (1.0, settings.records)] {
            let bed = Bed::loaded(opening, records)?;
            let database = bed.database.clone();
            let first = Keys::of(records, 0.0, seed);
            let make = move |seed| Steps::on(&bed, Counts::reads(10), first.with_seed(seed));
            let subject = driven(&database, workers, seed, make);
            points.push(Point::new(format!("YCSB reads, {series}"), x, subject));
        }
    }
    let mut beds = Vec::new();
    for (series, opening) in openings {
        for (x, cardinalities) in [(0.0, Cardinalities::tiny(1)), (1.0, tpcc(run))] {
            let bed = load(run, opening, cardinalities)?;
            for (mix, name) in [(Mix::Standard, "TPC-C"), (Mix::Queries, "TPC-CH")] {
                let style = Style { mix, suppliers: 50, ..Style::default() };
                let subject = driven(&bed.database, workers, seed, bed.terminals(workers, style));
                points.push(Point::new(format!("{name}, {series}"), x, subject));
            }
            beds.push(bed);
        }
    }
    let what = "the same transactions on all data and on data that stays in the cache";
    let mut report = sweep::measure(run, what, AXIS, points)?;
    report.lines.clear();
    for bed in beds {
        bed.check()?;
        bed.close()?;
    }
    let share = |report: &Report, name: &str, series: &str| {
        let name = format!("{name}, {series}");
        let whole = report.over(&AXIS.subject(&name, 1.0), &AXIS.subject(&name, 0.0));
        whole.map(|rate| 100.0 * (1.0 - rate).max(0.0))
    };
    for name in ["YCSB reads", "TPC-C", "TPC-CH"] {
        for (series, _) in openings {
            if let Some(percent) = share(&report, name, series) {
                let text = format!("{percent:.0} % of the time");
                report.fact(format!("memory, {name}, {series}"), percent, text);
            }
        }
    }
    let ours = share(&report, "TPC-C", "sequential");
    report.published("TPC-C, sequential: memory stalls, at most", 50.0, ours, "%");
    Ok(vec![report])
}

fn latency(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis =
        Axis { name: "interleaved", title: "Transactions a second by the number interleaved" };
    const WIDTHS: [usize; 5] = [1, 2, 4, 8, 16];
    let settings = run.settings;
    let (workers, seed) = (settings.workers, settings.seed);
    let mut all = Vec::new();
    for width in WIDTHS {
        let x = width as f64;
        let opening = Opening { width: Width::Fixed(width), ..Opening::braided(settings) };
        check_memory(settings.records, settings.records * RECORD_BYTES)?;
        let bed = Bed::loaded(opening, settings.records)?;
        let database = bed.database.clone();
        let counts = Counts { reads: 8, modifies: 2, ..Counts::default() };
        let first = Keys::of(settings.records, 0.0, seed);
        let make = move |seed| Steps::on(&bed, counts, first.with_seed(seed));
        let ycsb: Box<dyn Subject> = driven(&database, workers, seed, make);
        let mut points = vec![Point::new("YCSB, 8 reads, 2 read-modify-writes", x, ycsb)];
        let bed = load(run, opening, tpcc(run))?;
        for (mix, name) in [(Mix::Standard, "TPC-C"), (Mix::Queries, "TPC-CH")] {
            let style = Style { mix, ..Style::default() };
            let subject = driven(&bed.database, workers, seed, bed.terminals(workers, style));
            points.push(Point::new(name, x, subject));
        }
        let places: Vec<_> = points.iter().map(|point| (point.series.clone(), x)).collect();
        let what = "latency by the number interleaved, snapshot isolation, in memory, all workers";
        let mut report = sweep::measure(run, what, AXIS, points)?;
        bed.check()?;
        bed.close()?;
        let axis = Axis { title: "Mean latency by the number interleaved", ..AXIS };
        let means = sweep::lines(&report, &places, axis, "ms", |measured| {
            Some(measured.latency.as_ref()?.mean_nanoseconds / 1e6)
        });
        report.lines.push(means);
        for (series, _) in &places {
            let name = AXIS.subject(series, x);
            if let Some(mean) = mean_ms(&report, &name) {
                report.fact(format!("mean latency, {name}"), mean, format!("{:.1} µs", mean * 1e3));
            }
        }
        all.push(report);
    }
    Ok(vec![sweep::join(all)])
}
