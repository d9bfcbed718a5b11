//! `reads`: ten uniform reads a transaction (CoroBase §5.4), compared with the bare lookup loop.

use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, Reads};
use super::stage::{BRAIDED, SEQUENTIAL, Stage, braided_on};
use crate::engine::drive::Driven;
use crate::engine::fixture::{Opening, check_memory};
use crate::error::Error;
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::reference::hinted_lookup::{HintedLookup, Path, READS};
use crate::scale::arguments::{Defaults, Scale, Settings};
use braiddb::{Policy, Width};

const _: () = assert!(READS == OPERATIONS, "both sides read as much");

const REFERENCE: &str = "bare lookup loop";
const TUNED: &str = "width that tunes itself";
/// The widths of the sweep, among which the reference also finds its best.
const WIDTHS: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 48];

#[derive(Clone, Debug)]
pub(crate) struct ReadsDefaults;

impl Defaults for ReadsDefaults {
    const RECORDS: u64 = bars::READS_LARGE;
}

/// Arguments of `braid-lab bench reads`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReadsArguments {
    #[command(flatten)]
    scale: Scale<ReadsDefaults>,

    /// Leave out the bare lookup loop (index, indirection and version without an engine), which
    /// doubles the memory.
    #[arg(long)]
    no_reference: bool,

    /// Measure widths instead: the self-tuning width and fixed ones from 1 to 48, each on a new
    /// database.
    #[arg(long, conflicts_with_all = ["no_reference", "policies", "width"])]
    sweep: bool,

    /// Also measure the other two schedulers, batch and pipeline.
    #[arg(long)]
    policies: bool,
}

impl ReadsArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        let settings = self.scale.settings();
        match self.sweep {
            true => sweep(stage, &settings),
            false => compare(stage, &settings, !self.no_reference, self.policies),
        }
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, records: u64) -> Result<Report, Error> {
    let settings = Settings::defaults::<ReadsDefaults>(quick).with_records(records);
    compare(stage, &settings, records >= bars::READS_MIDDLE, false)
}

/// Measures widths, for a run of all workloads.
pub(crate) fn widths_at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    let settings = Settings::defaults::<ReadsDefaults>(quick).with_records(bars::READS_MIDDLE);
    sweep(stage, &settings)
}

fn compare(
    stage: &mut Stage,
    settings: &Settings,
    reference: bool,
    policies: bool,
) -> Result<Report, Error> {
    let make = |bed: &_, seed| Reads::<OPERATIONS>(Points::on(bed, seed));
    let mut subjects = stage.usual_subjects(settings, make)?;
    if policies {
        for (name, policy) in [("batch", Policy::Batch), ("pipeline", Policy::Pipeline)] {
            let width = Width::Fixed(settings.width.unwrap_or(24));
            let opening = Opening { policy, width, workers: 1, ..Opening::braided(settings) };
            let bed = stage.beds.get(opening, settings.records, &stage.progress)?;
            let database = bed.database.clone();
            let make = move |seed| make(&bed, seed);
            subjects.push(Box::new(Driven::new(name, &database, 1, settings.seed, make)));
        }
    }
    if reference {
        stage.progress.doing("building the bare lookup loop");
        subjects.push(Box::new(Reference::build(settings)?));
    }
    let workload = format!("reads-{}", crate::scale::count::Count(settings.records));
    let what = "transactions of 10 uniform point reads, 8-byte keys and values, in memory";
    let mut report = stage.measure(&workload, what, settings, subjects)?;
    judge(&mut report, settings);
    Ok(report)
}

fn judge(report: &mut Report, settings: &Settings) {
    let at_scale = |records| settings.records == records && !settings.quick;
    let cached = at_scale(bars::READS_CACHED);
    let several = braided_on(settings.workers);
    let over_sequential = report.ratio(BRAIDED, SEQUENTIAL);
    let over_reference = report.ratio(BRAIDED, REFERENCE);
    let over_one = report.ratio(&several, BRAIDED);
    if settings.records <= bars::READS_CACHED {
        let limit = bars::CACHED_OVER_SEQUENTIAL;
        report.bar("braided over sequential, cached", limit, over_sequential, cached);
        return;
    }
    let (large, middle) = (at_scale(bars::READS_LARGE), at_scale(bars::READS_MIDDLE));
    report.bar(
        "braided over bare lookups",
        bars::READS_OVER_REFERENCE,
        over_reference,
        large || middle,
    );
    if settings.records == bars::READS_MIDDLE {
        let rates = [BRAIDED, &several].map(|name| Some(report.subject(name)?.rate.median));
        for (workers, (rate, published)) in rates.into_iter().zip(bars::MOSAICDB_READS).enumerate()
        {
            if workers == 0 || settings.workers == 2 {
                let what = format!("over MosaicDB, {} worker(s)", workers + 1);
                report.beside_published(what, published, rate);
            }
        }
        return;
    }
    report.bar("braided over sequential", bars::READS_OVER_SEQUENTIAL, over_sequential, large);
    let judged = large && settings.workers == 2;
    report.bar("two workers over one", bars::READS_TWO_WORKERS, over_one, judged);
}

/// Compares the self-tuning width with fixed ones.
fn sweep(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let name = |width: usize| format!("width {width}");
    // Each width has a separate database, which needs the memory of the kept ones.
    stage.beds.clear();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for width in std::iter::once(None).chain(WIDTHS.map(Some)) {
        let settings = Settings { width, workers: 1, ..settings.clone() };
        let opening = Opening::braided(&settings);
        let bed = stage.beds.get(opening, settings.records, &stage.progress)?;
        let database = bed.database.clone();
        let make = move |seed| Reads::<OPERATIONS>(Points::on(&bed, seed));
        let name = width.map_or_else(|| TUNED.to_owned(), name);
        subjects.push(Box::new(Driven::new(&name, &database, 1, settings.seed, make)));
    }
    let what = "transactions of 10 uniform point reads by one worker, by how many are interleaved";
    let mut report = stage.measure("reads", what, settings, subjects)?;
    stage.beds.clear();
    report.workload = format!("reads-{}-widths", crate::scale::count::Count(settings.records));
    let rate = |width| Some((width, report.subject(&name(width))?.rate.median));
    let rates: Vec<_> = WIDTHS.into_iter().filter_map(rate).collect();
    let best = rates.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
    let over = best.and_then(|(width, _)| report.ratio(TUNED, &name(*width)));
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    report.bar("tuned width over the best fixed one", bars::TUNED_OVER_FIXED, over, judged);
    report.lines.push(LineChart {
        name: format!("{}-by-width", report.workload),
        title: "Reads: transactions a second by hot width".to_owned(),
        x: "transactions interleaved".to_owned(),
        y: "transactions/s".to_owned(),
        lines: vec![Line {
            name: BRAIDED.to_owned(),
            points: rates.iter().map(|(width, rate)| (*width as f64, *rate)).collect(),
        }],
    });
    Ok(report)
}

/// The bare lookup loop as a subject.
struct Reference {
    tree: HintedLookup,
    width: usize,
    seed: u64,
    pin: bool,
}

impl Reference {
    fn build(settings: &Settings) -> Result<Self, Error> {
        check_memory(settings.records, HintedLookup::bytes(settings.records))?;
        let tree = HintedLookup::build(settings.records)?;
        let mut reference = Self { tree, width: 1, seed: settings.seed + 100, pin: settings.pin };
        // Its best width depends on machine and size: the bound is its rate at that width.
        let effort = settings.effort.warm_up();
        let mut best = 0.0;
        for width in WIDTHS.into_iter().filter(|width| *width >= 8) {
            let rate = reference.run(width, effort).rate();
            if rate > best {
                (best, reference.width) = (rate, width);
            }
        }
        Ok(reference)
    }

    /// Runs on the core of the engine's first worker if workers are bound to cores.
    fn run(&mut self, width: usize, effort: Effort) -> Sample {
        self.seed += 1;
        let Self { tree, seed, pin, .. } = self;
        std::thread::scope(|scope| {
            let run = || {
                if *pin {
                    crate::harness::process::stay_on_core(0);
                }
                tree.run(Path::Nested, width, effort, *seed)
            };
            scope.spawn(run).join().expect("the lookup loop does not panic")
        })
    }
}

impl Subject for Reference {
    fn name(&self) -> &str {
        REFERENCE
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        Ok(self.run(self.width, effort))
    }
}
