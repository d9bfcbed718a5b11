//! `smallbank`: Cahill's SmallBank (SIGMOD 2008), whose checks can show write skew, with the later
//! sixth procedure. Nine of ten accesses use a hotspot. At the end the total of all balances is
//! checked.

mod procedures;
mod teller;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use braiddb::Database;
use clap::Args;
use procedures::{FIRST_BALANCE, Tables};
use teller::Teller;

use super::contenders::{Contender, Home, Site, check_and_close, ratios};
use super::stage::Stage;
use crate::engine::drive::Driven;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::scale::whole::within;

#[derive(Clone, Debug)]
pub(crate) struct SmallbankDefaults;

impl Defaults for SmallbankDefaults {
    /// The number in the paper.
    const RECORDS: u64 = 18_000;
    const QUICK_RECORDS: u64 = 1_000;
}

/// More customers than any machine holds in memory.
const MAX_HOT: u64 = 1_000_000_000;

/// Arguments of `braid-lab bench smallbank`. --records are customers.
#[derive(Args, Clone, Debug)]
pub(crate) struct SmallbankArguments {
    #[command(flatten)]
    scale: Scale<SmallbankDefaults>,

    /// Customers in the hotspot, which receives nine of ten accesses: from 2 up to all; several
    /// numbers run one after the other.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_values_t = [1_000, 100],
          value_parser = within::<u64>(2..=MAX_HOT))]
    hotspot: Vec<u64>,

    /// Subjects to compare; the first two share a database, and so do the fourth and fifth.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::all())]
    subjects: Vec<Contender>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl SmallbankArguments {
    /// Runs the workload: a report for each hotspot.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let measure = |&hotspot: &u64| {
            let (hotspot, place) = (hotspot.min(settings.records.max(2)), self.place.make()?);
            measure(stage, &settings, hotspot, &self.subjects, &place)
        };
        self.hotspot.iter().map(measure).collect()
    }
}

/// A database under test, with the changes of committed transactions in all rounds.
struct Tested {
    home: Home,
    site: Site,
    database: Database,
    tables: Tables,
    book: Arc<AtomicI64>,
}

impl Tested {
    fn fill(home: Home, site: Site, customers: u64) -> Result<Self, Error> {
        let database = site.open()?;
        let tables = Tables::open(&database)?;
        tables.fill(&database, customers)?;
        Ok(Self { home, site, database, tables, book: Arc::default() })
    }

    fn subject(
        &self,
        contender: Contender,
        settings: &Settings,
        hotspot: u64,
        seed: u64,
    ) -> Box<dyn Subject> {
        let (tables, book, customers) = (self.tables.clone(), self.book.clone(), settings.records);
        let make = move |seed| Teller {
            tables: tables.clone(),
            customers,
            hotspot,
            random: fastrand::Rng::with_seed(seed),
            book: book.clone(),
        };
        let (name, workers) = (contender.name(), self.site.opening.workers);
        let driven = Driven::new(name, &self.database, workers, seed, make);
        Box::new(driven.under(contender.run_options()).time_one_in(4))
    }
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    hotspot: u64,
    contenders: &[Contender],
    place: &Place,
) -> Result<Report, Error> {
    stage.beds.clear();
    let settings = Settings { records: settings.records.max(2), ..settings.clone() };
    let homes = Home::all_of(contenders).into_iter();
    let tested =
        homes.map(|home| Tested::fill(home, home.site(&settings, place), settings.records));
    let tested = tested.collect::<Result<Vec<_>, Error>>()?;
    let subjects = contenders.iter().zip(settings.seed..).map(|(contender, seed)| {
        let home = tested.iter().find(|tested| tested.home == contender.home());
        home.expect("all that are needed were filled").subject(*contender, &settings, hotspot, seed)
    });
    let subjects = subjects.collect();
    let what = format!(
        "SmallBank with {} customers and {} workers, 90 % of accesses of {hotspot} customers",
        number::grouped(settings.records),
        settings.workers
    );
    let mut report = stage.measure("smallbank", what, &settings, subjects)?;
    report.workload = format!("smallbank-{hotspot}");
    ratios(&mut report);
    account(&mut report, &settings, tested)?;
    report.notes.push(place.describe());
    Ok(report)
}

/// Compares the total of all balances with the initial total and the changes of committed
/// transactions. Reopens and checks again databases on disk.
fn account(report: &mut Report, settings: &Settings, tested: Vec<Tested>) -> Result<(), Error> {
    let first = 2 * FIRST_BALANCE * settings.records as i64;
    let mut all = 0;
    for Tested { site, database, tables, book, .. } in tested {
        // Relaxed: the threads that add to it were waited for.
        let expected = first + book.load(Ordering::Relaxed);
        drop(tables);
        check_and_close(&site, database, |database, when| {
            expect(Tables::open(database)?.total(database)?, expected, when)
        })?;
        all += expected;
    }
    let text = "all money is there, but for what was deposited and withdrawn; on disk after opening \
                again too";
    report.fact("check", all as f64, text);
    Ok(())
}

fn expect(found: i64, expected: i64, when: &str) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Wrong(format!("the balances sum to {found} cents {when}, but should be {expected}")))
}
