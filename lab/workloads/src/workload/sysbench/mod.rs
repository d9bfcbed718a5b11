//! `sysbench`: the OLTP scripts of sysbench with their default statements, over uniform and special
//! draws. At the end all rows and the sum of the indexed numbers are checked.

mod consistency;
mod distribution;
mod rows;
mod script;
#[cfg(test)]
mod tests;

use braiddb::Database;
use clap::{Args, ValueEnum};
use consistency::check;
use distribution::Distribution;
use rows::Tables;
use script::{Client, Script};

use super::book::Book;
use super::contenders::{Contender, Home, Site, check_and_close, ratios};
use super::stage::Stage;
use crate::engine::drive::Driven;
use crate::engine::fixture::check_memory;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::scale::whole::within;

#[derive(Clone, Debug)]
pub(crate) struct SysbenchDefaults;

impl Defaults for SysbenchDefaults {
    /// The number in the tool.
    const RECORDS: u64 = 10_000;
    const QUICK_RECORDS: u64 = 500;
    const SECONDS: f64 = 1.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench sysbench`. --records are rows of each table.
#[derive(Args, Clone, Debug)]
pub(crate) struct SysbenchArguments {
    #[command(flatten)]
    scale: Scale<SysbenchDefaults>,

    /// Number of tables, up to 1000.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = within::<usize>(1..=1000))]
    tables: usize,

    /// Scripts to run, one after the other on the same databases.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Script::value_variants().to_vec())]
    scripts: Vec<Script>,

    /// Distribution of rows; several run one after the other.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = Distribution::value_variants().to_vec())]
    distribution: Vec<Distribution>,

    /// Subjects to compare; the first two share a database, and so do the fourth and fifth.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::all())]
    subjects: Vec<Contender>,

    #[command(flatten)]
    place: PlaceArguments,
}

/// The approximate memory of a row with its index entry.
const ROW_BYTES: u64 = 450;

impl SysbenchArguments {
    /// Runs the workload: a report for each script and distribution.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        stage.beds.clear();
        let settings = self.scale.settings();
        let records = settings.records.clamp(1, u64::from(u32::MAX / 2));
        let settings = Settings { records, ..settings };
        let place = self.place.make()?;
        let tested = self.fill_all(stage, &settings, &place)?;
        let mut reports = Vec::new();
        for &script in &self.scripts {
            for &distribution in &self.distribution {
                reports.push(self.measure(stage, &settings, &tested, (script, distribution))?);
            }
        }
        let sum = account(tested, self.tables, records as u32)?;
        let text = "all rows are there and whole, the index leads to each, and the sum of what is indexed is \
                    the one that committed transactions lead to; on disk after opening again too";
        for report in &mut reports {
            report.fact("check", sum as f64, text);
            report.notes.push(place.describe());
        }
        Ok(reports)
    }

    /// Fills the databases that the contenders need, each with the same data.
    fn fill_all(
        &self,
        stage: &Stage,
        settings: &Settings,
        place: &Place,
    ) -> Result<Vec<Tested>, Error> {
        let homes = Home::all_of(&self.subjects);
        let rows = settings.records * self.tables as u64;
        check_memory(rows, rows * ROW_BYTES * homes.len() as u64)?;
        let rows = number::grouped(rows);
        stage.progress.doing(format!("loading {rows} rows {} times", homes.len()));
        let fill = |home: Home| {
            let site = home.site(settings, place);
            let (database, size) = (site.open()?, settings.records as u32);
            let tables = rows::open(&database, self.tables)?;
            rows::fill(&database, &tables, size, settings.seed, site.opening.workers)?;
            let first = check(&database, &tables, size)?;
            Ok(Tested { home, site, database, tables, first, book: Book::default() })
        };
        homes.into_iter().map(fill).collect()
    }

    fn measure(
        &self,
        stage: &mut Stage,
        settings: &Settings,
        tested: &[Tested],
        (script, distribution): (Script, Distribution),
    ) -> Result<Report, Error> {
        let subjects = self.subjects.iter().zip(settings.seed..).map(|(contender, seed)| {
            let home = tested.iter().find(|tested| tested.home == contender.home());
            let tested = home.expect("all that are needed were filled");
            tested.subject(*contender, settings, (script, distribution), seed)
        });
        let subjects = subjects.collect();
        let (script, distribution) = (script.name(), distribution.name());
        let what = format!(
            "sysbench OLTP, {script}, rows drawn {distribution}, with {} tables of {} rows and {} workers",
            self.tables,
            number::grouped(settings.records),
            settings.workers
        );
        let mut report = stage.measure("sysbench", what, settings, subjects)?;
        report.workload = format!("sysbench-{script}-{distribution}");
        ratios(&mut report);
        Ok(report)
    }
}

/// A database under test, with the initial sum of all `k` and its change by committed transactions
/// in all rounds.
struct Tested {
    home: Home,
    site: Site,
    database: Database,
    tables: Tables,
    first: i64,
    book: Book<i64>,
}

impl Tested {
    fn subject(
        &self,
        contender: Contender,
        settings: &Settings,
        (script, distribution): (Script, Distribution),
        seed: u64,
    ) -> Box<dyn Subject> {
        let (tables, book, size) =
            (self.tables.clone(), self.book.clone(), settings.records as u32);
        let make = move |seed| Client {
            script,
            distribution,
            tables: tables.clone(),
            size,
            random: fastrand::Rng::with_seed(seed),
            book: book.clone(),
        };
        let (name, workers) = (contender.name(), self.site.opening.workers);
        let driven = Driven::new(name, &self.database, workers, seed, make);
        Box::new(driven.under(contender.run_options()).time_one_in(4))
    }
}

/// Compares the tables with the initial sum and the changes of committed transactions. Returns the
/// sum of all `k` in all databases.
fn account(tested: Vec<Tested>, tables: usize, size: u32) -> Result<i64, Error> {
    let mut all = 0;
    for Tested { site, database, tables: opened, first, book, .. } in tested {
        let expected = first + book.total();
        drop(opened);
        check_and_close(&site, database, |database, when| {
            let found = check(database, &rows::open(database, tables)?, size)?;
            match found == expected {
                true => Ok(()),
                false => Err(Error::Wrong(format!(
                    "the sum of all k is {found} {when}, but committed transactions give {expected}"
                ))),
            }
        })?;
        all += expected;
    }
    Ok(all)
}
