//! `tatp`: the Telecommunication Application Transaction Processing benchmark, version 1.0: four
//! tables and seven transactions, with the specified mix and non-uniform choice of subscribers. At
//! the end, references between records and sums of the changes are checked.

mod client;
mod consistency;
mod population;
mod requests;
mod schema;
#[cfg(test)]
mod tests;

use braiddb::Database;
use clap::Args;
use client::Client;
use consistency::{Sums, check};
use schema::Tables;

use super::book::Book;
use super::contenders::{Contender, Home, Site, check_and_close, ratios};
use super::stage::Stage;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::check_memory;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};

#[derive(Clone, Debug)]
pub(crate) struct TatpDefaults;

impl Defaults for TatpDefaults {
    /// The number in the description.
    const RECORDS: u64 = 100_000;
    const QUICK_RECORDS: u64 = 300;
}

/// Arguments of `braid-lab bench tatp`. --records are subscribers.
#[derive(Args, Clone, Debug)]
pub(crate) struct TatpArguments {
    #[command(flatten)]
    scale: Scale<TatpDefaults>,

    /// Subjects to compare; the first two share a database, and so do the fourth and fifth.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::all())]
    subjects: Vec<Contender>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl TatpArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.subjects, &self.place.make()?)
    }
}

/// The approximate memory of a subscriber with all its records: some ten records and an entry.
const SUBSCRIBER_BYTES: u64 = 1_200;

/// Percent of successful transactions of each kind, computed from the rules of population and of
/// the draws. The first figure is for the loaded data, the second for the state after insertions
/// and deletions have replaced it. (An inserted forwarding ends at any hour, a loaded one 1 to 8
/// hours after it starts. For GET_NEW_DESTINATION the description gives 23.9.)
const SUCCESSFUL: [(f64, f64); Client::KINDS.len()] = [
    (100.0, 100.0),
    (14.79, 20.42),
    (62.5, 62.5),
    (62.5, 62.5),
    (100.0, 100.0),
    (31.25, 31.25),
    (31.25, 31.25),
];
/// The tolerance in percent, and the minimum numbers of transactions and subscribers for the check.
const OFF_BY_PERCENT: f64 = 3.0;
const JUDGED_FROM: u64 = 10_000;

/// A database under test, with its initial contents and the changes of committed transactions in
/// all rounds.
struct Tested {
    home: Home,
    site: Site,
    database: Database,
    tables: Tables,
    first: Sums,
    book: Book<Sums>,
}

impl Tested {
    fn fill(home: Home, site: Site, settings: &Settings) -> Result<Self, Error> {
        let database = site.open()?;
        let tables = Tables::open(&database)?;
        let (subscribers, workers) = (settings.records, site.opening.workers);
        population::fill(&database, &tables, subscribers, settings.seed, workers)?;
        let first = check(&database, &tables, subscribers)?;
        Ok(Self { home, site, database, tables, first, book: Book::default() })
    }

    fn subject(&self, contender: Contender, settings: &Settings, seed: u64) -> Box<dyn Subject> {
        let (tables, book, subscribers) =
            (self.tables.clone(), self.book.clone(), settings.records);
        let make = move |seed| Client {
            tables: tables.clone(),
            subscribers,
            random: fastrand::Rng::with_seed(seed),
            book: book.clone(),
        };
        let (name, workers) = (contender.name(), self.site.opening.workers);
        let driven = Driven::new(name, &self.database, workers, seed, make);
        Box::new(driven.under(contender.run_options()))
    }
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    contenders: &[Contender],
    place: &Place,
) -> Result<Report, Error> {
    stage.beds.clear();
    let records = settings.records.clamp(1, u64::from(u32::MAX) - 1);
    let settings = Settings { records, ..settings.clone() };
    let homes = Home::all_of(contenders);
    check_memory(records, records * SUBSCRIBER_BYTES * homes.len() as u64)?;
    let subscribers = number::grouped(records);
    stage.progress.doing(format!("loading {subscribers} subscribers {} times", homes.len()));
    let tested = homes.into_iter().map(|home| {
        let site = home.site(&settings, place);
        Tested::fill(home, site, &settings)
    });
    let tested = tested.collect::<Result<Vec<_>, Error>>()?;
    let subjects = contenders.iter().zip(settings.seed..).map(|(contender, seed)| {
        let home = tested.iter().find(|tested| tested.home == contender.home());
        home.expect("all that are needed were filled").subject(*contender, &settings, seed)
    });
    let subjects = subjects.collect();
    let what = format!("TATP with {subscribers} subscribers and {} workers", settings.workers);
    let mut report = stage.measure("tatp", what, &settings, subjects)?;
    ratios(&mut report);
    add_success(&mut report, &settings)?;
    account(&mut report, &settings, tested)?;
    report.notes.push(place.describe());
    Ok(report)
}

/// Adds to the report how many transactions of each kind were successful, over all subjects.
/// Returns an error for shares that the rules exclude.
fn add_success(report: &mut Report, settings: &Settings) -> Result<(), Error> {
    for (place, (name, (least, most))) in Client::KINDS.iter().zip(SUCCESSFUL).enumerate() {
        let kinds = || report.measured.iter().filter_map(|measured| measured.kinds.get(place));
        let all: u64 = kinds().map(|kind| kind.transactions).sum();
        let unsuccessful: u64 = kinds().map(|kind| kind.unsuccessful).sum();
        let percent = 100.0 * (all - unsuccessful) as f64 / all.max(1) as f64;
        let expected = match least == most {
            true => format!("{least} %"),
            false => format!("{least} % of what was loaded, {most} % at last"),
        };
        let possible = least - OFF_BY_PERCENT..=most + OFF_BY_PERCENT;
        if all.min(settings.records) >= JUDGED_FROM && !possible.contains(&percent) {
            let told = format!("{percent:.2} % of {name} were successful, expected are {expected}");
            return Err(Error::Wrong(told));
        }
        let all = number::grouped(all);
        let text = format!("{percent:.2} % of {all}; expected are {expected}");
        report.fact(format!("{name}, successful"), percent, text);
    }
    Ok(())
}

/// Compares the contents with the initial contents and the changes of committed transactions.
fn account(report: &mut Report, settings: &Settings, tested: Vec<Tested>) -> Result<(), Error> {
    let mut all = 0;
    for Tested { site, database, tables, first, book, .. } in tested {
        let mut expected = first;
        expected += book.total();
        drop(tables);
        check_and_close(&site, database, |database, when| {
            let found = check(database, &Tables::open(database)?, settings.records)?;
            match found == expected {
                true => Ok(()),
                false => Err(Error::Wrong(format!(
                    "committed transactions give {expected:?}, but the tables contain {found:?} {when}"
                ))),
            }
        })?;
        all += expected.forwardings;
    }
    let text = "everything is of a subscriber or a facility that is there, and sums are those that committed \
                transactions lead to; on disk after opening again too";
    report.fact("check", all as f64, text);
    Ok(())
}
