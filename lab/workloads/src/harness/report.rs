//! A report: everything one workload measured, ready for a table, JSON or charts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::interned::{self, Name};
use super::machine::Machine;
use super::number;
use super::rounds::{Effort, Measured};
use super::spread::Spread;

/// What one workload measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// One sentence: what the workload does.
    pub what: String,
    /// What rates count.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
    /// At which scale it was measured.
    pub setting: Option<Setting>,
    /// What each subject did.
    pub measured: Vec<Measured>,
    /// Subjects over one another.
    pub ratios: Vec<Ratio>,
    /// Figures that are no rates.
    pub facts: Vec<Fact>,
    /// What figures must reach.
    pub bars: Vec<Bar>,
    /// Figures that others published, beside those measured here.
    pub published: Vec<Published>,
    /// Lines to be drawn.
    pub lines: Vec<LineChart>,
    /// What happened side by side, to be drawn.
    pub lanes: Vec<LaneChart>,
    /// Files that were drawn or written.
    pub figures: Vec<PathBuf>,
    /// Percent of the machine's processor time that others took meanwhile.
    pub others_percent: Option<f64>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// The scale a report was measured at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Records there were.
    pub records: u64,
    /// How long a round ran.
    pub effort: Effort,
    /// Rounds.
    pub rounds: usize,
}

/// One subject's rate over another's, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The subject that is divided.
    pub above: String,
    /// The one it is divided by.
    pub below: String,
    /// Median and extremes over the rounds.
    pub ratio: Spread,
}

/// A figure that is no rate, already worded for people and raw for programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// What it is called.
    pub name: String,
    /// For programs.
    pub value: f64,
    /// For people.
    pub text: String,
}

/// A figure that others published, beside the one measured here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// What it is of.
    pub what: String,
    /// As published.
    pub theirs: f64,
    /// As measured here; nothing where that was not to be had.
    pub ours: Option<f64>,
    /// Unit of both.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
}

/// Something plotted against something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineChart {
    /// Also the file's name.
    pub name: String,
    /// Above the chart.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x: String,
    /// What the vertical axis shows, with its unit.
    pub y: String,
    /// Lines to be drawn.
    pub lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// `(x, y)`, in the order they are joined.
    pub points: Vec<(f64, f64)>,
}

/// What several did at the same time, each in a lane of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneChart {
    /// Also the file's name.
    pub name: String,
    /// Above the chart.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x: String,
    /// Where the horizontal axis ends; it begins at zero.
    pub right: f64,
    /// What may be done, in the order of colours.
    #[serde(deserialize_with = "interned::names")]
    pub kinds: Vec<Name>,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
}

/// What one of them did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lane {
    /// What it is called.
    pub name: String,
    /// None overlaps another.
    pub stretches: Vec<Stretch>,
}

/// From when to when it did something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// On the horizontal axis.
    pub begin: f64,
    /// On the horizontal axis.
    pub end: f64,
    /// What it did: one of the kinds.
    #[serde(deserialize_with = "interned::name")]
    pub what: Name,
}

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The figure must reach the limit.
    AtLeast,
    /// The figure must not exceed the limit.
    AtMost,
}

/// Whether a bar was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// Measured at another scale than the bar speaks of.
    NotJudged,
}

/// A bar: what a figure must reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// What is judged.
    pub what: String,
    /// Which side of the limit is good.
    pub side: Side,
    /// The limit.
    pub limit: f64,
    /// Unit of the limit and of the figure.
    #[serde(deserialize_with = "interned::name")]
    pub unit: Name,
    /// The figure.
    pub measured: f64,
    /// Whether it was reached.
    pub verdict: Verdict,
}

impl Bar {
    /// Judges `measured` against `limit`; `judged` is false when the scale is not the bar's.
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
    /// An empty report of `workload`.
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

    /// The subject of that name.
    pub fn subject(&self, name: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.name == name)
    }

    /// Adds the ratio of two subjects and returns its median; `None` when one was not measured.
    pub fn ratio(&mut self, above: &str, below: &str) -> Option<f64> {
        let ratio = Spread::of_ratios(&self.subject(above)?.rates, &self.subject(below)?.rates)?;
        self.ratios.push(Ratio { above: above.to_owned(), below: below.to_owned(), ratio });
        Some(ratio.median)
    }

    /// Adds a figure.
    pub fn fact(&mut self, name: impl Into<String>, value: f64, text: impl Into<String>) {
        self.facts.push(Fact { name: name.into(), value, text: text.into() });
    }

    /// Adds a rate that was published of another system, on another machine, and what was measured beside it: a figure to
    /// know, not one to be judged by.
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

    /// The median of one subject's rate over another's, round by round; `None` when one was not measured.
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

    /// Adds a bar, if its figure was measured.
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

/// All that one command printed: the machine and one report a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Where it was measured.
    pub machine: Machine,
    /// One a workload.
    pub reports: Vec<Report>,
}

impl Document {
    /// How many bars were judged and missed.
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
