//! `hot-cold`: hot transactions mixed with storage-bound ones (MosaicDB §6.2 and §6.5), in five
//! parts.

mod requests;
mod tables;

use braiddb::{Durability, Options, Overload, Policy, Width};
use clap::{Args, ValueEnum};

use self::requests::{COLD_READS, ClassFigures, Mix, Mixed, Nesting};
use self::tables::{HotCold, cold_records};
use super::bars;
use super::fio::Fio;
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::stage::Stage;

const VALUE_BYTES: usize = 1000;
/// Percent of transactions that are storage-bound.
pub(crate) const SHARES: [u32; 5] = [0, 5, 10, 20, 50];
/// The share that bars are set for.
const JUDGED_SHARE: u32 = 10;
/// Percent of updating transactions in the read-write mode.
pub(crate) const UPDATES: u32 = 50;
const POLICIES: [(&str, Policy); 4] = [
    ("dual-queue", Policy::DualQueue),
    ("batch", Policy::Batch),
    ("pipeline", Policy::Pipeline),
    ("sequential", Policy::Sequential),
];
/// The width of policies that do not tune theirs.
const WIDTH: usize = 24;

#[derive(Clone, Debug)]
pub(crate) struct HotColdDefaults;

impl Defaults for HotColdDefaults {
    const RECORDS: u64 = 20_000_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 3;
}

/// A part of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The four schedulers, by share of storage-bound transactions: reads, and half updates.
    Policies,
    /// Storage-bound transactions beyond the cold queue fail: the rates of hot transactions and of
    /// the disk.
    Shedding,
    /// Sizes of the cold queue.
    Queues,
    /// Sizes of the cold records.
    Sizes,
    /// Operations in one state machine, and behind boxed futures.
    Nesting,
}

/// Arguments of `braid-lab bench hot-cold`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HotColdArguments {
    #[command(flatten)]
    scale: Scale<HotColdDefaults>,

    #[command(flatten)]
    place: PlaceArguments,

    /// Run only these parts, separated by commas.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    parts: Vec<Part>,
}

impl HotColdArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        stage.beds.clear();
        let settings = self.scale.settings();
        let judged = settings.records == HotColdDefaults::RECORDS && !settings.quick;
        let mut reports = Vec::new();
        for part in Part::value_variants() {
            if !self.parts.is_empty() && !self.parts.contains(part) {
                continue;
            }
            let place = self.place.make()?;
            let mut run = Run { stage, settings: &settings, place: &place, judged };
            let report = match part {
                Part::Policies => run.policies(&SHARES, &[0, UPDATES]),
                Part::Shedding => run.shedding(),
                Part::Queues => run.queues(),
                Part::Sizes => run.sizes(),
                Part::Nesting => run.nesting(),
            };
            reports.push(report?);
        }
        Ok(reports)
    }
}

/// Measures the schedulers with defaults, without storage-bound transactions and with the judged
/// share, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, place: &Place) -> Result<Report, Error> {
    stage.beds.clear();
    let settings = Settings::defaults::<HotColdDefaults>(quick);
    let mut run = Run { stage, settings: &settings, place, judged: !quick };
    run.policies(&[0, JUDGED_SHARE], &[0])
}

/// A part in progress.
pub(crate) struct Run<'r> {
    pub(crate) stage: &'r mut Stage,
    pub(crate) settings: &'r Settings,
    pub(crate) place: &'r Place,
    /// True if bars are set for its scale.
    pub(crate) judged: bool,
}

impl Run<'_> {
    fn options(&self, policy: Policy) -> Options {
        let opening = match policy {
            Policy::Sequential => Opening::sequential(self.settings),
            Policy::DualQueue => Opening { workers: 1, ..Opening::braided(self.settings) },
            _ => {
                let width = Width::Fixed(self.settings.width.unwrap_or(WIDTH));
                Opening { policy, width, workers: 1, ..Opening::braided(self.settings) }
            }
        };
        opening.durability(Durability::Relaxed).options()
    }

    fn tables(&self, name: &str, options: Options, value_bytes: usize) -> Result<HotCold, Error> {
        self.stage.progress.doing(format!("loading: {name}"));
        HotCold::build(self.place, name, options, self.settings.records, value_bytes)
    }

    /// Returns subjects that read one set of tables, one for each share of storage-bound
    /// transactions.
    fn reads(&self, tables: &HotCold, shares: &[u32], name: impl Fn(u32) -> String) -> Vec<Mixed> {
        let one = |cold: &u32| {
            let seed = self.settings.seed + u64::from(*cold);
            Mixed::new(name(*cold), tables, Mix::reads(*cold), seed)
        };
        shares.iter().map(one).collect()
    }

    /// Measures subjects, and adds the figures of their classes.
    fn measure(
        &mut self,
        name: &str,
        what: &str,
        subjects: Vec<Mixed>,
    ) -> Result<(Report, Vec<ClassFigures>), Error> {
        let figures: Vec<_> = subjects.iter().map(Mixed::figures).collect();
        let subjects = subjects.into_iter().map(|subject| Box::new(subject) as Box<dyn Subject>);
        let mut report = self.stage.measure(name, what, self.settings, subjects.collect())?;
        report.notes.push(self.place.describe());
        figures.iter().for_each(|figures| figures.add_to(&mut report));
        Ok((report, figures))
    }

    /// Measures the four schedulers at these shares of storage-bound transactions and of updates.
    pub(crate) fn policies(&mut self, shares: &[u32], updates: &[u32]) -> Result<Report, Error> {
        let mut subjects = Vec::new();
        for (name, policy) in POLICIES {
            let tables = self.tables(name, self.options(policy), VALUE_BYTES)?;
            for &updates in updates {
                for &cold in shares {
                    let mix = Mix { updates, ..Mix::reads(cold) };
                    let seed = self.settings.seed + u64::from(cold + updates);
                    subjects.push(Mixed::new(subject(name, cold, updates), &tables, mix, seed));
                }
            }
        }
        let what = "transactions of 10 reads, or half of them of 10 read-modify-writes; of a share \
                    of them, 2 read records on disk; 1 worker";
        let (mut report, _) = self.measure("hot-cold", what, subjects)?;
        let dual = subject("dual-queue", JUDGED_SHARE, 0);
        let over = report.ratio(&dual, &subject("sequential", JUDGED_SHARE, 0));
        let judged = self.judged;
        let what = "dual-queue over sequential, 10 % cold";
        report.bar(what, bars::DUAL_OVER_SEQUENTIAL, over, judged);
        let over = report.over(&dual, &subject("dual-queue", 0, 0));
        report.bar("dual-queue, 10 % cold over none", bars::COLD_OVER_ALL_HOT, over, judged);
        let rate = report.subject(&dual).map(|subject| subject.rate.median);
        report.beside_published("over MosaicDB, 10 % cold", bars::MOSAICDB_HOT_COLD, rate);
        let charts = [
            (0, "hot-cold", "Transactions a second by share of storage-bound ones"),
            (UPDATES, "hot-cold-updates", "The same, half of them updates"),
        ];
        for (updates, chart, title) in charts.into_iter().filter(|(of, ..)| updates.contains(of)) {
            let point = |report: &Report, name: &str, cold: u32| {
                let rate = report.subject(&subject(name, cold, updates))?.rate.median;
                Some((f64::from(cold), rate))
            };
            let lines = POLICIES.map(|(name, _)| Line {
                name: name.to_owned(),
                points: shares.iter().filter_map(|cold| point(&report, name, *cold)).collect(),
            });
            let chart = line_chart(chart, title, "percent storage-bound", lines.into());
            report.lines.push(chart);
        }
        Ok(report)
    }

    /// Finds the depth that saturates the device, and runs fio at each depth.
    fn shedding(&mut self) -> Result<Report, Error> {
        const DEPTHS: [usize; 4] = [16, 32, 64, 128];
        const JUDGED_DEPTH: usize = 64;
        const SHARES: [u32; 4] = [0, 10, 20, 50];
        let name = |depth: usize, cold: u32| format!("{depth} reads, {cold} % cold");
        // Saturating the disk takes more than one core.
        let workers = self.settings.workers;
        let mut subjects = Vec::new();
        for depth in DEPTHS {
            let each = (depth / workers).max(1);
            let options = self.options(Policy::DualQueue).workers(workers);
            let options = options
                .tune(|tuning| tuning.read_depth(each).cold_width(each).overload(Overload::Shed));
            let tables = self.tables(&format!("depth-{depth}"), options, VALUE_BYTES)?;
            subjects.extend(self.reads(&tables, &SHARES, |cold| name(depth, cold)));
        }
        let what = "the same reads, dual-queue; storage-bound transactions fail while as many reads \
                    as are named are under way";
        let (mut report, figures) = self.measure("hot-cold-shedding", what, subjects)?;
        let mut figures = figures.iter();
        for depth in DEPTHS {
            let bytes = (cold_records(self.settings.records) * 1024).clamp(1 << 20, 1 << 30);
            let fio = Fio::read(&self.place.join("fio"), bytes, depth, self.settings.quick);
            if let Some(fio) = &fio {
                let reads = fio.operations_a_second;
                report.fact(format!("fio, {depth} reads"), reads, format!("{reads:.0}/s"));
            }
            let mut all_hot = 0.0;
            for cold in SHARES {
                let [hot, bound] = figures.next().expect("one a subject").rates();
                let reads = bound * COLD_READS as f64;
                let what = format!("hot transactions; reads, {}", name(depth, cold));
                report.fact(what, hot, format!("{hot:.0}/s; {reads:.0}/s"));
                if cold == 0 {
                    all_hot = hot;
                    continue;
                }
                if depth != JUDGED_DEPTH {
                    continue;
                }
                let share = hot / (all_hot * f64::from(100 - cold) / 100.0);
                let what = format!("hot over its share of all-hot, {}", name(depth, cold));
                report.bar(what, bars::HOT_SHARE, Some(share), self.judged);
                let over = fio.as_ref().map(|fio| reads / fio.operations_a_second);
                let what = format!("reads over fio's, {}", name(depth, cold));
                report.bar(what, bars::READS_OVER_FIO, over, self.judged);
            }
        }
        Ok(report)
    }

    pub(crate) fn queues(&mut self) -> Result<Report, Error> {
        const SIZES: [usize; 5] = [8, 16, 32, 64, 256];
        const SHARES: [u32; 2] = [5, 20];
        let name = |size: usize, cold: u32| format!("queue of {size}, {cold} % cold");
        let mut subjects = Vec::new();
        for size in SIZES {
            let options = self.options(Policy::DualQueue).tune(|tuning| tuning.cold_width(size));
            let tables = self.tables(&format!("queue-{size}"), options, VALUE_BYTES)?;
            subjects.extend(self.reads(&tables, &SHARES, |cold| name(size, cold)));
        }
        let what = "the same reads, dual-queue, by the number of transactions that may wait for \
                    storage before no more begin";
        let (mut report, _) = self.measure("hot-cold-queues", what, subjects)?;
        let lines = SHARES.map(|cold| Line {
            name: format!("{cold} % cold"),
            points: SIZES
                .iter()
                .filter_map(|size| {
                    Some((*size as f64, report.subject(&name(*size, cold))?.rate.median))
                })
                .collect(),
        });
        let title = "Transactions a second by size of the cold queue";
        report.lines.push(line_chart("hot-cold-queues", title, "size", lines.into()));
        Ok(report)
    }

    fn sizes(&mut self) -> Result<Report, Error> {
        const SIZES: [usize; 4] = [100, 1000, 4000, 16_000];
        const SHARES: [u32; 2] = [10, 50];
        let mut subjects = Vec::new();
        for size in SIZES {
            let options = self.options(Policy::DualQueue);
            let tables = self.tables(&format!("size-{size}"), options, size)?;
            let name = |cold| format!("values of {size} B, {cold} % cold");
            subjects.extend(self.reads(&tables, &SHARES, name));
        }
        let what = "the same reads, dual-queue, by the size of the cold values, which are read in \
                    sectors of 4 KiB";
        Ok(self.measure("hot-cold-sizes", what, subjects)?.0)
    }

    pub(crate) fn nesting(&mut self) -> Result<Report, Error> {
        const NESTINGS: [(&str, Nesting); 3] = [
            ("flattened", Nesting::Flattened),
            ("selective", Nesting::Selective),
            ("boxed", Nesting::Boxed),
        ];
        const SHARES: [u32; 2] = [0, 10];
        let options = self.options(Policy::DualQueue);
        let tables = self.tables("nesting", options, VALUE_BYTES)?;
        let name = |nesting: &str, cold: u32| format!("{nesting}, {cold} % cold");
        let mut subjects = Vec::new();
        for cold in SHARES {
            for (nesting_name, nesting) in NESTINGS {
                let mix = Mix { nesting, ..Mix::reads(cold) };
                let seed = self.settings.seed + u64::from(cold);
                subjects.push(Mixed::new(name(nesting_name, cold), &tables, mix, seed));
            }
        }
        let what = "the same reads, dual-queue: all of a transaction in one state machine, its cold \
                    reads behind boxed futures, all its operations";
        let (mut report, _) = self.measure("hot-cold-nesting", what, subjects)?;
        for cold in SHARES {
            for (other, _) in &NESTINGS[1..] {
                report.ratio(&name(other, cold), &name(NESTINGS[0].0, cold));
            }
        }
        Ok(report)
    }
}

pub(crate) fn subject(policy: &str, cold: u32, updates: u32) -> String {
    let updating = if updates > 0 { format!(", {updates} % updates") } else { String::new() };
    format!("{policy}, {cold} % cold{updating}")
}

fn line_chart(name: &str, title: &str, x: &str, lines: Vec<Line>) -> LineChart {
    let (name, title, x) = (name.to_owned(), title.to_owned(), x.to_owned());
    LineChart { name, title, x, y: "transactions/s".to_owned(), lines }
}
