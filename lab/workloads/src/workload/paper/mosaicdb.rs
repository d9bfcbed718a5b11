//! MosaicDB (Huang et al., PVLDB 2023), figures 6 to 12.

use std::collections::BTreeSet;

use braiddb::{Durability, Policy, Width};

use super::sweep::{self, Axis, Point, driven};
use super::{Figure, Run};
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::workload::hot_cold::{self, SHARES, UPDATES, subject};
use crate::workload::inserts::{self, Interleaving};
use crate::workload::tpcc::{Cardinalities, Kept, Style, TpccBed};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mosaicdb-6",
        shows: "reads, 0 to 50 % of transactions storage-bound, four schedulers",
        found: "at 5 % storage-bound, batch, pipeline and MosaicDB commit 1.6, 1.9 and 1.9 times as much as sequential; \
                MosaicDB loses 16 % of its total up to 10 %; sequential and batch collapse as the share grows",
        differs: "40 threads and a Samsung 980 PRO there, few cores here, so storage saturates at another share; \
                  300 M records there; sequential of Braid issues no prefetches, that of the paper does",
        run: |run| policies(run, &SHARES, 0),
    },
    Figure {
        name: "mosaicdb-7",
        shows: "half read-modify-writes, 0 to 50 % of transactions storage-bound, four schedulers",
        found: "in memory, batch, pipeline and MosaicDB are 1.39, 1.29 and 1.29 times as fast as sequential; MosaicDB up to \
                2.1 times with storage-bound ones, and loses 21 % from 0 to 50 %",
        differs: "10 threads there; the log of the paper is one buffer of 8 MB a thread, Braid's one ring for all",
        run: |run| policies(run, &SHARES, UPDATES),
    },
    Figure {
        name: "mosaicdb-8",
        shows: "reads by size of the storage queue",
        found: "at 5 % storage-bound the size does not matter; 16 saturates the SSD, more only adds latency",
        differs: "one worker here waits for as many reads as 40 threads there with a queue each, so larger queues pay off",
        run: queues,
    },
    Figure {
        name: "mosaicdb-9",
        shows: "10 % storage-bound, reads and half read-modify-writes, on each disk given",
        found: "MosaicDB is ahead of the others on all three SSDs with reads; with writes it is not always the best, but close",
        differs: "the disks are those that --dir names, one if one is named",
        run: devices,
    },
    Figure {
        name: "mosaicdb-10",
        shows: "TPC-C with as many workers as cores, and with more",
        found: "CoroBase with a background thread beside 10 workers on 10 cores loses 35 %; MosaicDB, which has none, is 1.7 \
                times as fast",
        differs: "Braid has no background thread that could be measured beside it; instead there are one worker more than \
                  cores, and twice as many, left to the kernel",
        run: oversubscribed,
    },
    Figure {
        name: "mosaicdb-11",
        shows: "reads by nesting of coroutines, in memory and 10 % storage-bound",
        found: "selectively nested is as fast as flattened; fully nested is 18 % slower in memory, and about as fast with \
                storage accesses",
        differs: "Rust's compiler flattens nested async functions; nesting means boxed futures here",
        run: nesting,
    },
    Figure {
        name: "mosaicdb-12",
        shows: "inserts at the end of the keys, sequential and 4, 8 and any number interleaved, by workers",
        found: "beyond eight threads 4 and 8 interleaved are up to 1.71 and 2.38 times as fast as sequential, which latch \
                contention holds at the rate of one thread",
        differs: "contention needs cores: beyond those there are, workers only take turns; Braid's leaves are latched \
                  optimistically, and an append takes the last leaf's latch for a few stores",
        run: contended_inserts,
    },
];

const POLICIES: [&str; 3] = ["batch", "pipeline", "dual-queue"];

fn hot_cold<'r>(run: &'r mut Run<'_>, place: &'r Place) -> hot_cold::Run<'r> {
    hot_cold::Run { stage: run.stage, settings: run.settings, place, judged: false }
}

fn policies(run: &mut Run<'_>, shares: &[u32], updates: u32) -> Result<Vec<Report>, Error> {
    let place = run.place()?;
    let mut report = hot_cold(run, &place).policies(shares, &[updates])?;
    report.bars.clear();
    report.ratios.clear();
    // Over sequential, for reads at 5 % and read-modify-writes in memory.
    let (cold, published) =
        if updates == 0 { (5, [1.6, 1.9, 1.9]) } else { (0, [1.39, 1.29, 1.29]) };
    for (policy, published) in POLICIES.into_iter().zip(published) {
        let sequential = subject("sequential", cold, updates);
        let over = report.over(&subject(policy, cold, updates), &sequential);
        report.published(format!("{policy} over sequential, {cold} % cold"), published, over, "×");
    }
    let dual = |cold| subject("dual-queue", cold, updates);
    let (cold, published) = if updates == 0 { (10, 0.84) } else { (50, 0.79) };
    let kept = report.over(&dual(cold), &dual(0));
    report.published(format!("dual-queue, {cold} % cold over none"), published, kept, "×");
    let best = shares
        .iter()
        .filter_map(|cold| report.over(&dual(*cold), &subject("sequential", *cold, updates)));
    let best = best.max_by(f64::total_cmp);
    let published = if updates == 0 { 33.0 } else { 2.1 };
    report.published("dual-queue over sequential, at most", published, best, "×");
    Ok(vec![report])
}

fn queues(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let place = run.place()?;
    let mut report = hot_cold(run, &place).queues()?;
    let rate = |size: u32, cold: u32| {
        Some(report.subject(&format!("queue of {size}, {cold} % cold"))?.rate.median)
    };
    let over = |cold| Some(rate(16, cold)? / rate(256, cold)?);
    let both = [5, 20].map(over);
    report.published("queue of 16 over 256, 5 % cold", 1.0, both[0], "×");
    report.published("queue of 16 over 256, 20 % cold", 1.0, both[1], "×");
    Ok(vec![report])
}

fn devices(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const SHARE: u32 = 10;
    let places = match run.dirs {
        [] => vec![run.place()?],
        dirs => dirs.iter().map(|dir| Place::inside(Some(dir))).collect::<Result<_, _>>()?,
    };
    let mut reports = Vec::new();
    for place in places {
        let mut report = hot_cold(run, &place).policies(&[SHARE], &[0, UPDATES])?;
        report.bars.clear();
        report.ratios.clear();
        report.lines.clear();
        for updates in [0, UPDATES] {
            for policy in POLICIES {
                report.ratio(
                    &subject(policy, SHARE, updates),
                    &subject("sequential", SHARE, updates),
                );
            }
        }
        reports.push(report);
    }
    Ok(reports)
}

fn oversubscribed(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    const AXIS: Axis = Axis { name: "workers", title: "TPC-C by workers" };
    let cores = run.settings.workers;
    let counts = BTreeSet::from([cores, cores + 1, 2 * cores]);
    let cardinalities = tpcc(run);
    let place = run.place()?;
    let (mut points, mut beds) = (Vec::new(), Vec::new());
    for &workers in &counts {
        let width = Width::Fixed(4);
        let opening = Opening {
            policy: Policy::Batch,
            width,
            workers,
            pin: run.settings.pin && workers == cores,
            durability: Durability::Group,
            ..Opening::braided(run.settings)
        };
        let database =
            braiddb::Database::open(place.join(&workers.to_string()), opening.options())?;
        let (seed, progress) = (run.settings.seed, &run.stage.progress);
        let bed = TpccBed::fill(database, Kept::Memory, cardinalities, seed, workers, progress)?;
        let make = bed.terminals(workers, Style::default());
        let subject = driven(&bed.database, workers, seed, make);
        points.push(Point::new("batch of 4, durable", workers as f64, subject));
        beds.push(bed);
    }
    let what = format!("TPC-C, {} warehouses, {cores} cores, by workers", cardinalities.warehouses);
    let mut report = sweep::measure(run, &what, AXIS, points)?;
    for more in counts.into_iter().skip(1) {
        let name = |workers: usize| AXIS.subject("batch of 4, durable", workers as f64);
        let over = report.over(&name(cores), &name(more));
        report.published(format!("{cores} workers over {more}, oversubscribed"), 1.7, over, "×");
    }
    for bed in beds {
        bed.check()?;
        bed.close()?;
    }
    report.notes.push(place.describe());
    Ok(vec![report])
}

/// Returns the size of TPC-C.
pub(super) fn tpcc(run: &Run<'_>) -> Cardinalities {
    match run.settings.quick {
        true => Cardinalities::tiny(run.warehouses),
        false => Cardinalities::specified(run.warehouses),
    }
}

fn nesting(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let place = run.place()?;
    let mut report = hot_cold(run, &place).nesting()?;
    for (nesting, cold, published) in
        [("selective", 0, 1.0), ("boxed", 0, 0.82), ("selective", 10, 1.0), ("boxed", 10, 1.0)]
    {
        let over =
            report.over(&format!("{nesting}, {cold} % cold"), &format!("flattened, {cold} % cold"));
        report.published(format!("{nesting} over flattened, {cold} % cold"), published, over, "×");
    }
    report.ratios.clear();
    Ok(vec![report])
}

fn contended_inserts(run: &mut Run<'_>) -> Result<Vec<Report>, Error> {
    let mut workers = run.thread_counts();
    // More threads than cores, where the paper finds contention.
    workers.push(4 * run.settings.workers);
    let place = inserts::Place::End;
    let mut report = inserts::compare(run.stage, run.settings, &[place], &workers)?;
    let most = *workers.last().expect("there are some");
    for (how, published) in [(Interleaving::Width(4), 1.71), (Interleaving::Width(8), 2.38)] {
        let sequential = inserts::name(Interleaving::Sequential, place, most);
        let name = inserts::name(how, place, most);
        let over = report.over(&name, &sequential);
        report.published(format!("{name} over sequential"), published, over, "×");
    }
    Ok(vec![report])
}
