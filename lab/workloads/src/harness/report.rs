//! A report: everything one workload measured, ready for a table, JSON or charts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::interned::{self, Name};
use super::machine::Machine;
use super::number;
use super::rounds::{Effort, Measured};
use super::spread::Spread;

/// The results of one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// One sentence: what the workload does.
    pub what: String,
    /// The operation that rates count.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
    /// The scale of the measurement.
    pub setting: Option<Setting>,
    /// The results of each subject.
    pub measured: Vec<Measured>,
    /// Rates of subjects divided by rates of others.
    pub ratios: Vec<Ratio>,
    /// Figures other than rates.
    pub facts: Vec<Fact>,
    /// Limits that figures must reach.
    pub bars: Vec<Bar>,
    /// Published figures, each with the figure measured here.
    pub published: Vec<Published>,
    /// Line charts to draw.
    pub lines: Vec<LineChart>,
    /// Charts of concurrent activity to draw.
    pub lanes: Vec<LaneChart>,
    /// Files that were drawn or written.
    pub figures: Vec<PathBuf>,
    /// Percent of the machine's processor time that other processes used during the measurement.
    pub others_percent: Option<f64>,
    /// Remarks that a reader needs to interpret the figures.
    pub notes: Vec<String>,
}

/// The scale a report was measured at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The number of records.
    pub records: u64,
    /// The length of a round.
    pub effort: Effort,
    /// The number of rounds.
    pub rounds: usize,
}

/// The rate of one subject divided by the rate of another, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The subject in the numerator.
    pub above: String,
    /// The subject in the denominator.
    pub below: String,
    /// Median and extremes over the rounds.
    pub ratio: Spread,
}

/// A figure that is not a rate, as text for people and as a number for programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// The name of the figure.
    pub name: String,
    /// The number, for programs.
    pub value: f64,
    /// The text, for people.
    pub text: String,
}

/// A published figure and the same figure as measured here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// The name of the figure.
    pub what: String,
    /// As published.
    pub theirs: f64,
    /// The figure measured here, if it could be measured.
    pub ours: Option<f64>,
    /// Unit of both.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
}

/// A chart of lines over one axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineChart {
    /// The name of the chart and of its file.
    pub name: String,
    /// The title above the chart.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: String,
    /// The label of the vertical axis, with its unit.
    pub y: String,
    /// The lines to draw.
    pub lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The name of the line.
    pub name: String,
    /// The points `(x, y)`, in the order in which the chart joins them.
    pub points: Vec<(f64, f64)>,
}

/// A chart of concurrent activities: one lane for each actor, over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneChart {
    /// The name of the chart and of its file.
    pub name: String,
    /// The title above the chart.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: String,
    /// The end of the horizontal axis, which begins at zero.
    pub right: f64,
    /// The kinds of activity, in the order of colours.
    #[serde(deserialize_with = "interned::names")]
    pub kinds: Vec<Name>,
    /// The lanes, from top to bottom.
    pub lanes: Vec<Lane>,
}

/// The activities of one actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lane {
    /// The name of the lane.
    pub name: String,
    /// The activities, which do not overlap.
    pub stretches: Vec<Stretch>,
}

/// The interval of one activity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// The beginning on the horizontal axis.
    pub begin: f64,
    /// The end on the horizontal axis.
    pub end: f64,
    /// The kind of activity: one of [`LaneChart::kinds`].
    #[serde(deserialize_with = "interned::name")]
    pub what: Name,
}

/// The side of the limit that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The figure must reach the limit.
    AtLeast,
    /// The figure must not exceed the limit.
    AtMost,
}

/// The outcome of comparing a figure with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// The scale of the measurement differs from the scale that the limit was set for.
    NotJudged,
}

/// A bar: a limit that a figure must reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// The name of the figure.
    pub what: String,
    /// The side of the limit that passes.
    pub side: Side,
    /// The limit.
    pub limit: f64,
    /// Unit of the limit and of the figure.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
    /// The figure.
    pub measured: f64,
    /// The outcome of the comparison.
    pub verdict: Verdict,
}

impl Bar {
    /// Compares `measured` with `limit`. Pass `judged` as false if the scale differs from the scale
    /// that the limit was set for.
    pub fn new(
        what: impl Into<String>,
        side: Side,
        limit: f64,
        unit: &'static str,
        measured: f64,
        judged: bool,
    ) -> Self {
        let reached = match side {
            Side::AtLeast => measured >= limit,
            Side::AtMost => measured <= limit,
        };
        let verdict = match (judged, reached) {
            (false, _) => Verdict::NotJudged,
            (true, true) => Verdict::Met,
            (true, false) => Verdict::Missed,
        };
        Self { what: what.into(), side, limit, unit, measured, verdict }
    }
}

impl Report {
    /// Returns an empty report of `workload`.
    pub fn new(workload: &str, what: impl Into<String>) -> Self {
        Self {
            workload: workload.to_owned(),
            what: what.into(),
            unit: "transactions",
            setting: None,
            measured: Vec::new(),
            ratios: Vec::new(),
            facts: Vec::new(),
            bars: Vec::new(),
            published: Vec::new(),
            lines: Vec::new(),
            lanes: Vec::new(),
            figures: Vec::new(),
            others_percent: None,
            notes: Vec::new(),
        }
    }

    /// Returns the subject with this name.
    pub fn subject(&self, name: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.name == name)
    }

    /// Adds the ratio of two subjects and returns its median, or `None` if one was not measured.
    pub fn ratio(&mut self, above: &str, below: &str) -> Option<f64> {
        let ratio = Spread::of_ratios(&self.subject(above)?.rates, &self.subject(below)?.rates)?;
        self.ratios.push(Ratio { above: above.to_owned(), below: below.to_owned(), ratio });
        Some(ratio.median)
    }

    /// Adds a figure.
    pub fn fact(&mut self, name: impl Into<String>, value: f64, text: impl Into<String>) {
        self.facts.push(Fact { name: name.into(), value, text: text.into() });
    }

    /// Adds the published rate of another system on another machine, with the rate measured here.
    /// The comparison is for information only; no bar judges it.
    pub fn beside_published(
        &mut self,
        what: impl Into<String>,
        published: f64,
        measured: Option<f64>,
    ) {
        let Some(measured) = measured else { return };
        let ratio = measured / published;
        let text =
            format!("{} ×, of {} a second", number::three_digits(ratio), number::scaled(published));
        self.fact(what, ratio, text);
    }

    /// Returns the median over the rounds of one subject's rate divided by another's, or `None` if
    /// one was not measured.
    pub fn over(&self, above: &str, below: &str) -> Option<f64> {
        let (above, below) = (self.subject(above)?, self.subject(below)?);
        Some(Spread::of_ratios(&above.rates, &below.rates)?.median)
    }

    /// Adds a published figure.
    pub fn published(
        &mut self,
        what: impl Into<String>,
        theirs: f64,
        ours: Option<f64>,
        unit: &'static str,
    ) {
        self.published.push(Published { what: what.into(), theirs, ours, unit });
    }

    /// Adds a bar if its figure was measured.
    pub fn bar(
        &mut self,
        what: impl Into<String>,
        (side, limit, unit): (Side, f64, &'static str),
        measured: Option<f64>,
        judged: bool,
    ) {
        if let Some(measured) = measured {
            self.bars.push(Bar::new(what, side, limit, unit, measured, judged));
        }
    }
}

/// The whole output of one command: the machine and one report for each workload.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// The machine of the measurement.
    pub machine: Machine,
    /// One report for each workload.
    pub reports: Vec<Report>,
}

impl Document {
    /// Returns the number of bars that were judged and missed.
    pub fn missed(&self) -> usize {
        let bars = self.reports.iter().flat_map(|report| &report.bars);
        bars.filter(|bar| bar.verdict == Verdict::Missed).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_judged_only_at_its_scale() {
        let verdict =
            |side, measured, judged| Bar::new("", side, 4.0, "×", measured, judged).verdict;
        assert_eq!(verdict(Side::AtLeast, 4.0, true), Verdict::Met);
        assert_eq!(verdict(Side::AtLeast, 3.9, true), Verdict::Missed);
        assert_eq!(verdict(Side::AtMost, 3.9, true), Verdict::Met);
        assert_eq!(verdict(Side::AtMost, 4.1, true), Verdict::Missed);
        assert_eq!(verdict(Side::AtMost, 4.1, false), Verdict::NotJudged);
        assert_eq!(verdict(Side::AtLeast, f64::NAN, true), Verdict::Missed);
    }
}
