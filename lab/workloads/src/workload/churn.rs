//! `churn`: many updates of few records while a reader opens and closes snapshots. Old versions
//! must be freed at the rate of their creation: memory stays bounded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braiddb::Database;
use clap::Args;

use super::bars;
use super::points::{Points, Updates};
use super::stage::Stage;
use crate::engine::drive::drive;
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::report::{Line, LineChart, Report, Setting};
use crate::harness::rounds::{Effort, repeat};
use crate::harness::spread::Spread;
use crate::harness::{number, process};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// The default number of updates in a run.
const UPDATES: u64 = 100_000_000;
const QUICK_UPDATES: u64 = 2_000;
/// The time that the reader keeps a snapshot, and the pause after it.
const HOLD: Duration = Duration::from_millis(50);
/// The interval of memory samples.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct ChurnDefaults;

impl Defaults for ChurnDefaults {
    const RECORDS: u64 = 1_000;
    const ROUNDS: usize = 1;
}

/// Arguments of `braid-lab bench churn`. It runs --transactions updates (default: 100M) once.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChurnArguments {
    #[command(flatten)]
    scale: Scale<ChurnDefaults>,
}

impl ChurnArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings())
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    measure(stage, &Settings::defaults::<ChurnDefaults>(quick))
}

/// Memory at one moment of the run.
#[derive(Clone, Copy, Debug)]
struct Look {
    seconds: f64,
    resident: u64,
    versions: u64,
}

fn measure(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    stage.beds.clear();
    let updates = match settings.effort {
        Effort::Transactions(count) => count,
        Effort::Seconds(_) if settings.quick => QUICK_UPDATES,
        Effort::Seconds(_) => UPDATES,
    };
    let opening = Opening { workers: 1, ..Opening::braided(settings) };
    let bed = Bed::loaded(opening, settings.records)?;
    let make = |_worker| Updates::<1>(Points::on(&bed, settings.seed));
    let over = AtomicBool::new(false);
    let (measured, snapshots, looks) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_snapshots(&bed, &over));
        let watcher = scope.spawn(|| watch(&bed.database, &over));
        let effort = Effort::Transactions(updates);
        let measured =
            repeat("updates", 1, &stage.progress, || drive(&bed.database, 1, make, effort, 64));
        // Release: pairs with the loads of the two threads, which must see the end of the run.
        over.store(true, Ordering::Release);
        let snapshots = reader.join().expect("the reader does not panic");
        let looks = watcher.join().expect("the watcher does not panic");
        (measured, snapshots, looks)
    });
    let what = "updates of uniform records, one a transaction, during reads of snapshots";
    let mut report = Report::new("churn", what);
    let effort = Effort::Transactions(updates);
    report.setting = Some(Setting { records: settings.records, effort, rounds: 1 });
    report.measured.push(measured?);
    let snapshots = snapshots?;
    report.fact("snapshots read", snapshots as f64, number::grouped(snapshots));
    let judged = updates >= UPDATES && settings.records == ChurnDefaults::RECORDS;
    add_figures(&mut report, &looks, judged);
    bed.database.close()?;
    Ok(report)
}

fn add_figures(report: &mut Report, looks: &[Look], judged: bool) {
    let of = |part: &[Look], what: fn(&Look) -> u64| {
        Spread::of(part.iter().map(|look| what(look) as f64)).map(|spread| spread.median)
    };
    let quarter = looks.len() / 4;
    let second = &looks[quarter..(2 * quarter).max(quarter + 1).min(looks.len())];
    let last = &looks[looks.len() - quarter.max(1)..];
    let resident: fn(&Look) -> u64 = |look| look.resident;
    let versions: fn(&Look) -> u64 = |look| look.versions;
    for (name, what) in [("memory of the process", resident), ("versions in use", versions)] {
        let peak = looks.iter().map(what).max().unwrap_or(0);
        report.fact(format!("{name}, at most"), peak as f64, number::bytes(peak));
        if let Some(at_end) = of(last, what) {
            report.fact(format!("{name}, at the end"), at_end, number::bytes(at_end as u64));
        }
    }
    let growth = of(second, resident).zip(of(last, resident));
    let growth = growth.map(|(early, late)| late / early);
    let what = "memory at the end over memory after a quarter";
    report.bar(what, bars::CHURN_GROWTH, growth, judged);
    let line = |name: &str, what: fn(&Look) -> u64| Line {
        name: name.to_owned(),
        points: looks.iter().map(|look| (look.seconds, what(look) as f64)).collect(),
    };
    report.lines.push(LineChart {
        name: "churn-memory".to_owned(),
        title: "Memory while 1 000 records are updated".to_owned(),
        x: "seconds".to_owned(),
        y: "bytes".to_owned(),
        lines: vec![line("process", resident), line("versions", versions)],
    });
}

/// Opens a snapshot, reads a record twice with a pause between, and closes the snapshot, repeatedly
/// until the run ends. Returns the number of snapshots.
fn read_snapshots(bed: &Bed, over: &AtomicBool) -> Result<u64, Error> {
    let mut snapshots = 0;
    // Acquire: pairs with the release store at the end of the run.
    while !over.load(Ordering::Acquire) {
        let key = key_of(snapshots % bed.records);
        let snapshot = pollster::block_on(bed.database.begin())?;
        let first = pollster::block_on(snapshot.get(&bed.table, &key))?;
        std::thread::sleep(HOLD);
        let second = pollster::block_on(snapshot.get(&bed.table, &key))?;
        pollster::block_on(snapshot.abort())?;
        if first.is_none() || first != second {
            let told = format!("one snapshot read {first:?}, then {second:?}, of key {key}");
            return Err(Error::Wrong(told));
        }
        snapshots += 1;
        std::thread::sleep(HOLD);
    }
    Ok(snapshots)
}

fn watch(database: &Database, over: &AtomicBool) -> Vec<Look> {
    let begin = Instant::now();
    let mut looks = Vec::new();
    loop {
        looks.push(Look {
            seconds: begin.elapsed().as_secs_f64(),
            resident: process::resident_bytes().unwrap_or(0),
            versions: database.stats().memory.versions,
        });
        // Acquire: pairs with the release store at the end of the run.
        if over.load(Ordering::Acquire) {
            return looks;
        }
        std::thread::sleep(LOOK);
    }
}
