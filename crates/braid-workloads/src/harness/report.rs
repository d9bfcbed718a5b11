//! A report: everything one workload measured, ready for a table, JSON or charts.

use std::path::PathBuf;

use serde::Serialize;

use super::machine::Machine;
use super::rounds::{Effort, Measured};
use super::spread::Spread;

/// What one workload measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) workload: String,
    /// One sentence: what the workload does.
    pub(crate) what: String,
    /// What rates count.
    pub(crate) unit: &'static str,
    pub(crate) setting: Option<Setting>,
    pub(crate) measured: Vec<Measured>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) lines: Vec<LineChart>,
    pub(crate) figures: Vec<PathBuf>,
    /// Percent of the machine's processor time that others took meanwhile.
    pub(crate) others_percent: Option<f64>,
    pub(crate) notes: Vec<String>,
}

/// The scale a report was measured at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) records: u64,
    pub(crate) effort: Effort,
    pub(crate) rounds: usize,
}

/// One subject's rate over another's, round by round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) above: String,
    pub(crate) below: String,
    pub(crate) ratio: Spread,
}

/// A figure that is no rate, already worded for people and raw for programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) text: String,
}

/// Something plotted against something.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LineChart {
    /// Also the file's name.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// Whether a bar was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// Measured at another scale than the bar speaks of.
    NotJudged,
}

/// A bar: what a figure must reach.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) side: Side,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    pub(crate) measured: f64,
    pub(crate) verdict: Verdict,
}

impl Bar {
    /// Judges `measured` against `limit`; `judged` is false when the scale is not the bar's.
    pub(crate) fn new(
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
    pub(crate) fn new(workload: &str, what: impl Into<String>) -> Self {
        Self {
            workload: workload.to_owned(),
            what: what.into(),
            unit: "transactions",
            setting: None,
            measured: Vec::new(),
            ratios: Vec::new(),
            facts: Vec::new(),
            bars: Vec::new(),
            lines: Vec::new(),
            figures: Vec::new(),
            others_percent: None,
            notes: Vec::new(),
        }
    }

    /// The subject of that name.
    pub(crate) fn subject(&self, name: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.name == name)
    }

    /// Adds the ratio of two subjects and returns its median; `None` when one was not measured.
    pub(crate) fn ratio(&mut self, above: &str, below: &str) -> Option<f64> {
        let ratio = Spread::of_ratios(&self.subject(above)?.rates, &self.subject(below)?.rates)?;
        self.ratios.push(Ratio { above: above.to_owned(), below: below.to_owned(), ratio });
        Some(ratio.median)
    }

    /// Adds a figure.
    pub(crate) fn fact(&mut self, name: impl Into<String>, value: f64, text: impl Into<String>) {
        self.facts.push(Fact { name: name.into(), value, text: text.into() });
    }

    /// Adds a bar, if its figure was measured.
    pub(crate) fn bar(
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
pub(crate) struct Document {
    pub(crate) machine: Machine,
    pub(crate) reports: Vec<Report>,
}

impl Document {
    /// How many bars were judged and missed.
    pub(crate) fn missed(&self) -> usize {
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
