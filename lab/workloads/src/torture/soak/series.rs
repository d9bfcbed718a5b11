//! Series of readings: each quantity over time, as a table, JSON and charts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::harness::report::{Line, LineChart, Report};
use crate::harness::{chart, number, table};

/// Percent by which a quantity may grow after the first half of the time and still count as flat.
const FLAT_PERCENT: u64 = 10;

/// The unit of a quantity, which is also its chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    /// Bytes on disk.
    Disk,
    /// Bytes of memory.
    Memory,
    Count,
    Microseconds,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Disk, Self::Memory, Self::Count, Self::Microseconds];

    fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Count => "counts",
            Self::Microseconds => "times",
        }
    }

    fn axis(self) -> &'static str {
        match self {
            Self::Disk | Self::Memory => "bytes",
            Self::Count => "number",
            Self::Microseconds => "µs",
        }
    }

    fn show(self, value: u64) -> String {
        match self {
            Self::Disk | Self::Memory => number::bytes(value),
            Self::Count => number::grouped(value),
            Self::Microseconds => number::nanoseconds(value * 1000),
        }
    }
}

/// A quantity over time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// The largest bound while it was read.
    pub(super) bound: Option<u64>,
    pub(super) most: u64,
    /// The first value above its bound at that time: seconds, value, bound.
    pub(super) exceeded: Option<(f64, u64, u64)>,
    /// Seconds and values.
    pub(super) points: Vec<(f64, u64)>,
}

impl Series {
    /// Returns true if the median of the last quarter is not above the values of the first half.
    fn is_flat(&self) -> bool {
        let (half, quarter) = (self.points.len().div_ceil(2), self.points.len().div_ceil(4));
        let first = self.points[..half].iter().map(|(_, value)| *value).max();
        let last = &self.points[self.points.len() - quarter..];
        let mut last: Vec<_> = last.iter().map(|(_, value)| *value).collect();
        last.sort_unstable();
        let grown = last[last.len() / 2].saturating_sub(first.unwrap_or(0));
        grown * 100 <= first.unwrap_or(0) * FLAT_PERCENT
    }

    /// Returns the value at a share of the time.
    fn at(&self, share: f64) -> u64 {
        let place = ((self.points.len() - 1) as f64 * share).round() as usize;
        self.points[place].1
    }
}

/// All quantities.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct AllSeries(Vec<Series>);

impl AllSeries {
    /// Adds a value of a quantity.
    pub(super) fn note(
        &mut self,
        seconds: f64,
        (name, unit): (&'static str, Unit),
        value: u64,
        bound: Option<u64>,
    ) {
        let place = self.0.iter().position(|series| series.name == name).unwrap_or_else(|| {
            let (bound, exceeded, points) = (None, None, Vec::new());
            self.0.push(Series { name, unit, bound, most: 0, exceeded, points });
            self.0.len() - 1
        });
        let series = &mut self.0[place];
        series.bound = series.bound.max(bound);
        series.most = series.most.max(value);
        series.points.push((seconds, value));
        let exceeded = bound.filter(|bound| value > *bound);
        series.exceeded = series.exceeded.or(exceeded.map(|bound| (seconds, value, bound)));
    }

    /// Describes each quantity that was above its bound.
    pub(super) fn exceeded(&self) -> Vec<String> {
        let describe = |series: &Series| {
            let (seconds, value, bound) = series.exceeded?;
            let [value, bound] = [value, bound].map(|value| series.unit.show(value));
            Some(format!("{}: {value} after {seconds:.1} s, the bound is {bound}", series.name))
        };
        self.0.iter().filter_map(describe).collect()
    }

    /// Returns a table with one row for each quantity.
    pub(super) fn table(&self) -> String {
        let header = ["", "at 10 %", "at 25 %", "at 50 %", "at 75 %", "at the end", "most"];
        let mut table = table::empty_table(header.into_iter().chain(["bound", ""]).collect());
        for series in &self.0 {
            let shares = [0.1, 0.25, 0.5, 0.75, 1.0].map(|share| series.at(share));
            let values = shares.into_iter().chain([series.most]);
            let mut row = vec![comfy_table::Cell::new(series.name)];
            row.extend(values.map(|value| table::right(series.unit.show(value))));
            let bound = series.bound.map_or(String::new(), |bound| series.unit.show(bound));
            row.push(table::right(bound));
            row.push(comfy_table::Cell::new(if series.is_flat() { "flat" } else { "grows" }));
            table.add_row(row);
        }
        table.to_string()
    }

    /// Draws a chart for each unit. Returns the files.
    pub(super) fn draw(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let mut report = Report::new("soak", "each quantity over time");
        for unit in Unit::ALL {
            let mut lines = Vec::new();
            for series in self.0.iter().filter(|series| series.unit == unit) {
                let points = series.points.iter().map(|(at, value)| (*at, *value as f64));
                lines.push(Line { name: series.name.to_owned(), points: points.collect() });
            }
            if lines.is_empty() {
                continue;
            }
            let (name, title) = (format!("soak-{}", unit.name()), format!("soak: {}", unit.name()));
            let (x, y) = ("seconds".to_owned(), unit.axis().to_owned());
            report.lines.push(LineChart { name, title, x, y, lines });
        }
        chart::draw(&mut report, directory).context("drawing charts")?;
        Ok(report.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = u64>) -> AllSeries {
        let mut all = AllSeries::default();
        for (second, value) in values.into_iter().enumerate() {
            all.note(second as f64, ("disk", Unit::Disk), value, Some(1 << 30));
        }
        all
    }

    #[test]
    fn growth_is_distinguished_from_noise() {
        assert!(series((0..40).map(|second| (100 << 20) + second % 7)).0[0].is_flat());
        assert!(!series((0..40).map(|second| second << 24)).0[0].is_flat());
        // Filled at the beginning only.
        assert!(series((0..40_u64).map(|second| second.min(8) << 24)).0[0].is_flat());
        assert!(series([5]).0[0].is_flat());
    }

    #[test]
    fn a_value_above_its_bound_is_described() {
        let mut all = series([1, 2]);
        assert!(all.exceeded().is_empty());
        all.note(3.0, ("disk", Unit::Disk), 3 << 20, Some(2 << 20));
        all.note(4.0, ("disk", Unit::Disk), 4 << 20, Some(2 << 20));
        assert_eq!(all.exceeded(), ["disk: 3.00 MiB after 3.0 s, the bound is 2.00 MiB"]);
    }

    #[test]
    fn a_table_and_charts_show_each_quantity() {
        let all = series((0..40).map(|second| second << 20));
        let table = all.table();
        assert!(table.contains("39.0 MiB") && table.contains("1.00 GiB"), "{table}");
        let directory = tempfile::tempdir().unwrap();
        let drawn = all.draw(directory.path()).unwrap();
        let svg = std::fs::read_to_string(directory.path().join("soak-disk.svg")).unwrap();
        assert!(svg.contains("seconds") && !drawn.is_empty(), "{drawn:?}");
    }
}
