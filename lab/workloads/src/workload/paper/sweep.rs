//! Subjects by series and value on an axis, measured in turn, with a line for each series.

use std::rc::Rc;

use braiddb::{Database, Isolation, RunOptions};

use super::Run;
use super::steps::Keys;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Opening, check_memory};
use crate::error::Error;
use crate::harness::number;
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Effort, Measured, Sample, Subject};
use crate::reference::hinted_lookup::HintedLookup;
use crate::reference::probing::{Depth, MOST, Probing};

/// The horizontal axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// The name of an axis value in tables: `threads`.
    pub(super) name: &'static str,
    /// The title above the chart.
    pub(super) title: &'static str,
}

impl Axis {
    /// Returns the name of the subject of `series` at `x`.
    pub(super) fn subject(self, series: &str, x: f64) -> String {
        format!("{series}, {} {}", number::tick(x), self.name)
    }
}

/// A subject and its position in the chart.
pub(super) struct Point {
    pub(super) series: String,
    pub(super) x: f64,
    pub(super) subject: Box<dyn Subject>,
}

impl Point {
    pub(super) fn new(series: impl Into<String>, x: f64, subject: Box<dyn Subject>) -> Self {
        Self { series: series.into(), x, subject }
    }
}

/// A subject under another name.
struct Renamed {
    name: String,
    subject: Box<dyn Subject>,
}

impl Subject for Renamed {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.subject.round(effort)
    }
}

/// Measures points in turn.
pub(super) fn measure(
    run: &mut Run<'_>,
    what: &str,
    axis: Axis,
    points: Vec<Point>,
) -> Result<Report, Error> {
    let places: Vec<(String, f64)> =
        points.iter().map(|point| (point.series.clone(), point.x)).collect();
    let subjects = points.into_iter().map(|Point { series, x, subject }| {
        let name = axis.subject(&series, x);
        Box::new(Renamed { name, subject }) as Box<dyn Subject>
    });
    let subjects = subjects.collect();
    let mut report = run.stage.measure("figure", what, run.settings, subjects)?;
    let unit = format!("{}/s", report.unit);
    let chart = lines(&report, &places, axis, &unit, |measured| Some(measured.rate.median));
    report.lines.push(chart);
    Ok(report)
}

/// Returns a line for each series through the results of `value` for its points.
pub(super) fn lines(
    report: &Report,
    places: &[(String, f64)],
    axis: Axis,
    y: &str,
    value: impl Fn(&Measured) -> Option<f64>,
) -> LineChart {
    let mut lines: Vec<Line> = Vec::new();
    for (series, x) in places {
        let measured = report.subject(&axis.subject(series, *x));
        let Some(y) = measured.and_then(&value) else { continue };
        match lines.iter_mut().find(|line| line.name == *series) {
            Some(line) => line.points.push((*x, y)),
            None => lines.push(Line { name: series.clone(), points: vec![(*x, y)] }),
        }
    }
    LineChart {
        name: String::new(),
        title: axis.title.to_owned(),
        x: axis.name.to_owned(),
        y: y.to_owned(),
        lines,
    }
}

/// Adds the distribution of latencies: a line for each subject.
pub(super) fn distribution(report: &mut Report, title: &str) {
    let lines = report.measured.iter().filter_map(|measured| {
        let points = measured.latency.as_ref()?.distribution.iter();
        let points = points.map(|(nanoseconds, percent)| (nanoseconds / 1e6, *percent)).collect();
        Some(Line { name: measured.name.clone(), points })
    });
    let chart = LineChart {
        name: String::new(),
        title: title.to_owned(),
        x: "ms".to_owned(),
        y: "% of transactions that took no longer".to_owned(),
        lines: lines.collect(),
    };
    report.lines.push(chart);
}

/// Returns the mean latency of a subject in milliseconds.
pub(super) fn mean_ms(report: &Report, subject: &str) -> Option<f64> {
    let latency = report.subject(subject)?.latency.as_ref()?;
    Some(latency.mean_nanoseconds / 1e6)
}

/// Joins reports that were measured one after the other, and their lines with the same names.
pub(super) fn join(reports: Vec<Report>) -> Report {
    let mut reports = reports.into_iter();
    let mut all = reports.next().expect("there is at least one");
    for report in reports {
        all.measured.extend(report.measured);
        all.ratios.extend(report.ratios);
        all.facts.extend(report.facts);
        all.published.extend(report.published);
        all.others_percent = match (all.others_percent, report.others_percent) {
            (Some(one), Some(other)) => Some(f64::max(one, other)),
            (one, other) => one.or(other),
        };
        for (chart, other) in all.lines.iter_mut().zip(report.lines) {
            for line in other.lines {
                match chart.lines.iter_mut().find(|known| known.name == line.name) {
                    Some(known) => known.points.extend(line.points),
                    None => chart.lines.push(line),
                }
            }
        }
    }
    all
}

/// Returns options for snapshot isolation, as in the papers.
pub(super) fn snapshots() -> RunOptions {
    RunOptions::default().isolation(Isolation::Snapshot)
}

/// Returns a subject of a procedure on this number of workers of a database.
pub(super) fn driven<P: Procedure>(
    database: &Database,
    workers: usize,
    seed: u64,
    make: impl FnMut(u64) -> P + 'static,
) -> Box<dyn Subject> {
    Box::new(Driven::new("", database, workers, seed, make).under(snapshots()))
}

/// Returns a kept database of the stage.
pub(super) fn bed(run: &mut Run<'_>, opening: Opening) -> Result<Bed, Error> {
    run.stage.beds.get(opening, run.settings.records, &run.stage.progress)
}

/// Returns the bare tree with this number of records.
pub(super) fn tree(run: &Run<'_>, records: u64) -> Result<Rc<HintedLookup>, Error> {
    check_memory(records, HintedLookup::bytes(records))?;
    run.stage.progress.doing("building the bare tree");
    Ok(Rc::new(HintedLookup::build(records)?))
}

/// Batches of look-ups in the bare tree.
pub(super) struct Bare {
    pub(super) tree: Rc<HintedLookup>,
    pub(super) how: (Probing, Depth),
    pub(super) keys: usize,
    pub(super) threads: usize,
    pub(super) theta: f64,
    pub(super) seed: u64,
}

impl Bare {
    pub(super) fn boxed(self) -> Box<dyn Subject> {
        Box::new(self)
    }
}

impl Subject for Bare {
    fn name(&self) -> &str {
        self.how.0.name()
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.seed += 1_000;
        let (count, seed) = (self.keys, self.seed);
        let first = Keys::of(self.tree.records(), self.theta, seed);
        let make = |thread: usize| {
            let mut keys = first.with_seed(seed + thread as u64);
            move |drawn: &mut [u64; MOST]| {
                keys.draw(count, drawn);
                count
            }
        };
        Ok(self.tree.probe(self.how, self.threads, effort, make))
    }
}
