//! Results kept in a directory, one file for each figure. An interrupted run of many figures can
//! therefore continue with the missing ones.
//!
//! A file exists completely or not at all. It is used only if the same version made it with the
//! same arguments on the same kind of machine. Otherwise the figure is measured again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::report::Report;
use super::{chart, rows};
use crate::error::Error;

/// The contents of a file.
#[derive(Serialize)]
struct Written<'r> {
    made_with: &'r str,
    machine: &'r Machine,
    reports: &'r [Report],
}

#[derive(Deserialize)]
struct Read {
    made_with: String,
    reports: Vec<Report>,
}

/// Stores the reports of figures.
#[derive(Clone, Debug)]
pub struct Keep {
    directory: PathBuf,
}

impl Keep {
    /// Returns a store in `directory`, which is created with the first figure.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Returns the path of a figure's reports.
    pub fn path(&self, figure: &str) -> PathBuf {
        self.directory.join(format!("{figure}.json"))
    }

    /// Returns the stored reports of a figure if they were made with these arguments.
    pub fn read(&self, figure: &str, arguments: &str) -> Option<Vec<Report>> {
        let text = std::fs::read_to_string(self.path(figure)).ok()?;
        let read: Read = serde_json::from_str(&text).ok()?;
        (read.made_with == made_with(arguments)).then_some(read.reports)
    }

    /// Draws the charts of a figure's reports, writes their rows, and finally writes the reports.
    ///
    /// # Errors
    /// Fails if the directory or a file cannot be written.
    pub fn write(
        &self,
        figure: &str,
        arguments: &str,
        reports: &mut [Report],
    ) -> Result<(), Error> {
        for report in &mut *reports {
            chart::draw(report, &self.directory)?;
            rows::write(report, &self.directory)?;
        }
        let path = self.path(figure);
        reports.iter_mut().for_each(|report| report.figures.push(path.clone()));
        let made_with = &*made_with(arguments);
        let machine = &Machine::here();
        let written = Written { made_with, machine, reports };
        let text = serde_json::to_vec_pretty(&written).map_err(std::io::Error::from)?;
        let partial = self.directory.join(format!(".{figure}.partial"));
        std::fs::write(&partial, text).map_err(Error::file(&partial))?;
        std::fs::rename(&partial, &path).map_err(Error::file(&path))
    }
}

/// Returns the properties that figures must share to be comparable.
fn made_with(arguments: &str) -> String {
    let Machine { cores, processor, version, optimised, .. } = Machine::here();
    let built = if optimised { "optimised" } else { "not optimised" };
    format!("braid {version}, {built}, {cores} cores of {processor}, {arguments}")
}

#[cfg(test)]
mod tests {
    use super::super::report::{Line, LineChart};
    use super::*;

    #[test]
    fn saved_results_are_reused_only_for_the_same_arguments() {
        let directory = tempfile::tempdir().unwrap();
        let keep = Keep::new(&directory.path().join("results"));
        assert!(keep.read("figure", "-n 1").is_none(), "nothing is there");
        let mut report = Report::new("figure", "what");
        report.unit = "blocks";
        report.published("a over b", 2.0, Some(1.5), "×");
        report.lines.push(LineChart {
            name: "figure-line".into(),
            title: "title".into(),
            x: "x".into(),
            y: "y".into(),
            lines: vec![Line { name: "a".into(), points: vec![(1.0, 2.0)] }],
        });
        let mut reports = [report];
        keep.write("figure", "-n 1", &mut reports).unwrap();
        let read = keep.read("figure", "-n 1").unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&reports).unwrap());
        assert!(keep.read("figure", "-n 2").is_none(), "other arguments");
        std::fs::write(keep.path("figure"), "{\"made_with\": ").unwrap();
        assert!(keep.read("figure", "-n 1").is_none(), "a broken file");
        let left = std::fs::read_dir(directory.path().join("results")).unwrap();
        assert!(left.flatten().all(|entry| !entry.path().ends_with("partial")));
    }
}
