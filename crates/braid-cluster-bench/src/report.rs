//! Results: medians over rounds, as tables for people or as JSON.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};

/// Name, value and number of decimal places of a figure.
pub type Column = (&'static str, f64, usize);

/// Figures of one subject, of all rounds.
struct Row {
    subject: String,
    rounds: Vec<Vec<Column>>,
}

/// Rows of one group of figures, in the order in which they were measured first.
pub struct Report {
    pub title: &'static str,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(title: &'static str) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds the figures of a subject in one round.
    pub fn add(&mut self, subject: impl Into<String>, columns: Vec<Column>) {
        let subject = subject.into();
        match self.rows.iter_mut().find(|row| row.subject == subject) {
            Some(row) => row.rounds.push(columns),
            None => self.rows.push(Row { subject, rounds: vec![columns] }),
        }
    }

    /// Returns the highest median of a figure over the rounds, of the subjects whose names start so.
    pub fn best(&self, subjects: &str, column: &str) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.subject.starts_with(subjects));
        let medians = rows.filter_map(|row| {
            row.sorted(row.rounds[0].iter().position(|(name, ..)| *name == column)?).median()
        });
        medians.reduce(f64::max)
    }

    /// Writes the rows to standard output.
    pub fn write(&self, is_json: bool) -> Result<()> {
        let mut output = std::io::stdout().lock();
        if is_json {
            for row in &self.rows {
                writeln!(output, "{}", row.json(self.title))?;
            }
            return Ok(output.flush()?);
        }
        let Some(first) = self.rows.first() else { return Ok(()) };
        let mut lines = vec![vec![self.title.to_owned()]];
        lines[0].extend(first.rounds[0].iter().map(|(name, ..)| (*name).to_owned()));
        lines[0].push("lowest to highest".to_owned());
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        for line in &lines {
            write!(output, "{:width$}", line[0], width = widths[0])?;
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                write!(output, "  {cell:>width$}")?;
            }
            writeln!(output)?;
        }
        writeln!(output)?;
        Ok(output.flush()?)
    }
}

/// Values of one figure, in ascending order.
struct Sorted(Vec<f64>);

impl Sorted {
    fn median(&self) -> Option<f64> {
        self.0.get(self.0.len() / 2).copied()
    }
}

impl Row {
    fn sorted(&self, column: usize) -> Sorted {
        let mut values: Vec<f64> = self.rounds.iter().map(|columns| columns[column].1).collect();
        values.sort_by(f64::total_cmp);
        Sorted(values)
    }

    /// Returns the medians, and the range of the first figure.
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.subject.clone()];
        for (column, (_, _, places)) in self.rounds[0].iter().enumerate() {
            cells.push(number(self.sorted(column).median().unwrap_or(f64::NAN), *places));
        }
        let (Sorted(first), places) = (self.sorted(0), self.rounds[0][0].2);
        let (lowest, highest) = (first[0], first[first.len() - 1]);
        cells.push(format!("{} to {}", number(lowest, places), number(highest, places)));
        cells
    }

    fn json(&self, title: &str) -> Value {
        let mut figures = Map::new();
        for (column, (name, ..)) in self.rounds[0].iter().enumerate() {
            let sorted = self.sorted(column);
            let value = json!({"median": sorted.median(), "rounds": sorted.0});
            figures.insert((*name).to_owned(), value);
        }
        json!({"figure": title, "subject": self.subject, "figures": figures})
    }
}

/// Formats a number with spaces between groups of three digits.
pub fn number(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let whole = text.find('.').unwrap_or(text.len());
    let mut grouped = String::new();
    for (position, digit) in text.chars().enumerate() {
        if position > 0 && position < whole && (whole - position) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::{Report, number};

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1_234_567.8, 0), "1 234 568");
        assert_eq!(number(999.25, 2), "999.25");
        assert_eq!(number(1000.25, 1), "1 000.2");
    }

    #[test]
    fn the_best_median_of_all_rounds_is_found() {
        let mut report = Report::new("test");
        for (subject, first) in [("one", 3.0), ("one more", 30.0), ("two", 300.0)] {
            for value in [first, first - 2.0, first - 1.0] {
                report.add(subject, vec![("a", value, 0), ("b", -value, 0)]);
            }
        }
        assert_eq!(report.best("one", "a"), Some(29.0));
        assert_eq!(report.best("one", "b"), Some(-2.0));
        assert_eq!(report.best("one", "c"), None);
        assert_eq!(report.best("three", "a"), None);
    }
}
