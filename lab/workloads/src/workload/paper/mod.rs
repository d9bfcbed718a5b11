//! `paper`: reproduces the figures of the papers that Braid's ideas come from. Each figure has a
//! name. Its report shows the published result, Braid's result with the same parameters as far as
//! the machine allows, and why they differ.
//!
//! A figure runs existing workloads if possible, or its own subjects. Published figures are printed
//! next to measured ones. Most are ratios, because ratios are comparable between machines.

mod corobase;
mod corobase_tpcc;
mod eleda;
mod mosaicdb;
mod steps;
mod sweep;
mod umbra;

use std::path::PathBuf;

use clap::Args;

use super::stage::Stage;
use crate::error::Error;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::scale::whole::within;

#[derive(Clone, Debug)]
pub(crate) struct PaperDefaults;

impl Defaults for PaperDefaults {
    const RECORDS: u64 = 20_000_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 1.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench paper`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PaperArguments {
    /// Names of figures, or `all`.
    #[arg(value_name = "FIGURE", required_unless_present = "list", value_parser = known)]
    figures: Vec<String>,

    /// List the figures and run none.
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    scale: Scale<PaperDefaults>,

    /// Put the databases (temporary ones) into this directory, to choose the disk.
    #[arg(long, value_name = "DIR,...", value_delimiter = ',')]
    dir: Vec<PathBuf>,

    /// Warehouses of TPC-C, of some 100 MB each [default: one a worker].
    #[arg(long, value_name = "COUNT", value_parser = within::<u16>(1..=65_535))]
    warehouses: Option<u16>,
}

const ALL: &str = "all";

fn known(name: &str) -> Result<String, String> {
    let is_known = name == ALL || figures().any(|figure| figure.name == name);
    let told = || format!("no figure has the name {name}; --list lists the figures");
    is_known.then(|| name.to_owned()).ok_or_else(told)
}

/// A figure of a paper.
pub(crate) struct Figure {
    /// The name on the command line.
    name: &'static str,
    /// The subject of the figure, in one line.
    shows: &'static str,
    /// The result of the paper.
    found: &'static str,
    /// The reasons why Braid's results differ or may differ.
    differs: &'static str,
    run: fn(&mut Run<'_>) -> Result<Vec<Report>, Error>,
}

fn figures() -> impl Iterator<Item = &'static Figure> {
    let papers = [
        mosaicdb::FIGURES,
        corobase::FIGURES,
        corobase_tpcc::FIGURES,
        eleda::FIGURES,
        umbra::FIGURES,
    ];
    papers.into_iter().flatten()
}

impl PaperArguments {
    /// Runs the figures, and stores each before the next begins.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        if self.list {
            let mut report = Report::new("paper", "figures of papers, each by its name");
            for figure in figures() {
                report.notes.push(format!("{}: {}", figure.name, figure.shows));
            }
            return Ok(vec![report]);
        }
        let asked =
            |figure: &&Figure| self.figures.iter().any(|name| name == ALL || name == figure.name);
        let settings = self.scale.settings();
        let warehouses = self.warehouses.unwrap_or(settings.workers as u16);
        let arguments = format!("{settings:?}, {warehouses} warehouses, {:?}", self.dir);
        let mut reports = Vec::new();
        for figure in figures().filter(asked) {
            let measure = |stage: &mut Stage| {
                stage.progress.doing(figure.name);
                stage.beds.clear();
                let run = &mut Run { stage, settings: &settings, dirs: &self.dir, warehouses };
                let mut reports = (figure.run)(run)?;
                stage.beds.clear();
                label(figure, &mut reports);
                Ok(reports)
            };
            reports.extend(stage.figure(figure.name, &arguments, measure)?);
        }
        Ok(reports)
    }
}

/// Names the reports and charts of a figure, and adds the result of the paper.
fn label(figure: &Figure, reports: &mut [Report]) {
    let several = reports.len() > 1;
    for (number, report) in (1..).zip(&mut *reports) {
        let name =
            if several { format!("{}-{number}", figure.name) } else { figure.name.to_owned() };
        for (place, chart) in (1..).zip(&mut report.lines) {
            chart.name = format!(
                "{name}-{}",
                if place == 1 { "lines".to_owned() } else { place.to_string() }
            );
        }
        report.workload = name;
    }
    if let Some(first) = reports.first_mut() {
        first.notes.insert(0, format!("the paper: {}", figure.found));
        first.notes.insert(1, format!("differences: {}", figure.differs));
    }
}

/// A figure that is being measured.
struct Run<'r> {
    stage: &'r mut Stage,
    settings: &'r Settings,
    dirs: &'r [PathBuf],
    warehouses: u16,
}

impl Run<'_> {
    /// Creates a new directory on the first disk.
    fn place(&self) -> Result<Place, Error> {
        Place::inside(self.dirs.first().map(PathBuf::as_path))
    }

    /// Returns the arguments of another workload as from its command line, at the scale of this
    /// one.
    fn arguments<A: Args>(&self, own: &[&str]) -> A {
        let Settings { rounds, workers, seed, quick, pin, effort, .. } = *self.settings;
        let mut all: Vec<String> = own.iter().map(|argument| (*argument).to_owned()).collect();
        let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
        add("--rounds", rounds.to_string());
        add("--workers", workers.to_string());
        add("--seed", seed.to_string());
        match effort {
            crate::harness::rounds::Effort::Seconds(seconds) => {
                // Some figures specify the duration.
                if !own.contains(&"--seconds") {
                    add("--seconds", seconds.to_string());
                }
            }
            crate::harness::rounds::Effort::Transactions(count) => {
                if !own.contains(&"--seconds") {
                    add("--transactions", count.to_string());
                }
            }
        }
        all.extend((!pin).then(|| "--no-pin".to_owned()));
        all.extend(quick.then(|| "--quick".to_owned()));
        let command = A::augment_args(clap::Command::new("bench")).no_binary_name(true);
        let matches = command.try_get_matches_from(&all);
        let parsed = matches.and_then(|matches| A::from_arg_matches(&matches));
        parsed.unwrap_or_else(|error| unreachable!("{all:?} are arguments: {error}"))
    }

    /// Returns the same arguments with a disk.
    fn arguments_on_disk<A: Args>(&self, own: &[&str]) -> A {
        let directory = self.dirs.first().map(|directory| directory.to_string_lossy().into_owned());
        match &directory {
            Some(directory) => self.arguments(&[own, &["--dir", directory]].concat()),
            None => self.arguments(own),
        }
    }

    /// Returns one, then twice the last number each time, up to the number of workers.
    fn thread_counts(&self) -> Vec<usize> {
        let most = self.settings.workers;
        let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
            .take_while(|count| *count < most)
            .collect();
        counts.push(most);
        counts
    }

    fn records(&self) -> String {
        self.settings.records.to_string()
    }
}

#[cfg(test)]
mod tests;
