//! Figures as CSV files for further processing: every round of every subject, and every point of
//! every line.

use std::path::{Path, PathBuf};

use super::report::Report;
use crate::error::Error;

/// Writes the figures of `report` into `directory` (created if missing), and adds the files' paths
/// to the report.
///
/// # Errors
/// Fails if the directory or a file cannot be written.
pub fn write(report: &mut Report, directory: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(directory).map_err(Error::file(directory))?;
    if !report.measured.is_empty() {
        let rates = report.measured.iter().flat_map(|subject| {
            let rounds = subject.rates.iter().enumerate();
            rounds.map(|(i, rate)| {
                vec![subject.name.clone(), (i + 1).to_string(), format!("{rate:.1}")]
            })
        });
        let unit = format!("{} a second", report.unit);
        let path = directory.join(format!("{}.csv", report.workload));
        table(&path, &["subject", "round", &unit], rates)?;
        report.figures.push(path);
    }
    for chart in &report.lines {
        let points = chart.lines.iter().flat_map(|line| {
            let points = line.points.iter();
            points.map(|(x, y)| vec![line.name.clone(), x.to_string(), y.to_string()])
        });
        let path = directory.join(format!("{}.csv", chart.name));
        table(&path, &["line", &chart.x, &chart.y], points)?;
        report.figures.push(path);
    }
    Ok(())
}

fn table(
    path: &PathBuf,
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), Error> {
    let failed = |error: csv::Error| Error::File {
        path: path.clone(),
        source: std::io::Error::other(error),
    };
    let mut file = csv::Writer::from_path(path).map_err(failed)?;
    file.write_record(header).map_err(failed)?;
    for row in rows {
        file.write_record(row).map_err(failed)?;
    }
    file.flush().map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::super::report::{Line, LineChart};
    use super::super::rounds::Measured;
    use super::super::spread::Spread;
    use super::*;

    #[test]
    fn rows_contain_each_round_and_each_point() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::new("reads", "");
        report.measured = vec![Measured {
            name: "braided, 2 workers".into(),
            rates: vec![10.0, 11.25],
            rate: Spread { median: 10.6, min: 10.0, max: 11.25 },
            transactions: 1,
            conflicts: 0,
            latency: None,
            kinds: Vec::new(),
            aborts: Vec::new(),
        }];
        report.lines.push(LineChart {
            name: "memory".into(),
            title: "memory".into(),
            x: "seconds".into(),
            y: "bytes".into(),
            lines: vec![Line { name: "rss".into(), points: vec![(0.0, 1.0), (1.0, 2.5)] }],
        });
        write(&mut report, &directory.path().join("figures")).unwrap();
        let texts = report.figures.iter().map(|path| std::fs::read_to_string(path).unwrap());
        let texts: Vec<String> = texts.collect();
        assert_eq!(
            texts,
            [
                "subject,round,transactions a second\n\"braided, 2 workers\",1,10.0\n\"braided, 2 workers\",2,11.2\n",
                "line,seconds,bytes\nrss,0,1\nrss,1,2.5\n"
            ]
        );
    }
}
