//! `tpch`: loads `orders` and `lineitem` of TPC-H, refreshes them, and runs queries 1, 6 and 12 at
//! the same time. These are analytical reads of whole tables next to many small writes, as in
//! Umbra's paper (§5.4). The tables are in memory, or paged: fully cached, or a multiple of memory.
//!
//! Each query result is compared with the results after every refresh that the query may have seen.

mod generate;
mod queries;
mod refresh;
mod schema;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braiddb::{Database, Durability, TableOptions};
use clap::{Args, ValueEnum};
use generate::{Generator, LINES_OF_ORDER, ORDERS};
use queries::{Answer, Query};
use refresh::{Expected, Refreshes};
use schema::{StagedTables, Tables};

use super::encoding::Encoded;
use super::stage::Stage;
use crate::engine::fixture::{Opening, check_memory};
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, KindSample, Sample, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings};

/// Names of databases in tables.
const HOT: &str = "in memory";
const CACHED: &str = "paged";
const LARGER: &str = "paged, 4 times the memory";
/// The suffix of the name if queries run during refreshes.
const REFRESHED: &str = ", refreshed";
/// The suffix of the name if each refresh is a bulk operation, which only paged tables have.
const IN_BULK: &str = ", refreshed in bulk";
/// The size of a table as a multiple of the memory for its pages.
const TIMES: u64 = 4;
/// The minimum budget with the log's ring, which is small in a small budget.
const MIN_BUDGET: u64 = (32 << 20) + 1;
/// The approximate memory of a line with its share of an order.
const LINE_BYTES: u64 = 320;
/// The same for pages.
const LINE_ON_PAGE_BYTES: u64 = 210;

#[derive(Clone, Debug)]
pub(crate) struct TpchDefaults;

impl Defaults for TpchDefaults {
    /// The number of orders at scale 1.
    const RECORDS: u64 = ORDERS;
    const QUICK_RECORDS: u64 = 1_000;
    const SECONDS: f64 = 10.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench tpch`. --records are orders.
#[derive(Args, Clone, Debug)]
pub(crate) struct TpchArguments {
    #[command(flatten)]
    scale: Scale<TpchDefaults>,

    /// Tables to compare.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kept::value_variants().to_vec())]
    tables: Vec<Kept>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl TpchArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.tables, &self.place.make()?)
    }
}

/// The storage of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// In memory.
    Memory,
    /// On pages, all of which fit into memory.
    Paged,
    /// On pages, a quarter of which fits into memory.
    Larger,
}

/// A database with loaded tables, and the rows loaded per second.
struct Loaded {
    name: &'static str,
    refreshes: Refreshes,
    lines_a_second: f64,
}

impl Loaded {
    fn load(
        name: &'static str,
        database: Database,
        options: TableOptions,
        generator: Generator,
        loaded: &Answer,
    ) -> Result<Self, Error> {
        let begin = Instant::now();
        let tables = pollster::block_on(load(&database, options, generator))?;
        let lines_a_second =
            (LINES_OF_ORDER * generator.orders()) as f64 / begin.elapsed().as_secs_f64();
        let expected = Arc::new(Expected::new(loaded.clone()));
        let refreshes = Refreshes {
            database,
            tables,
            generator,
            expected,
            pairs: Arc::default(),
            in_bulk: false,
        };
        Ok(Self { name, refreshes, lines_a_second })
    }
}

async fn load(
    database: &Database,
    options: TableOptions,
    generator: Generator,
) -> Result<Tables, Error> {
    let staged = StagedTables::make(database, options).await?;
    let all = || (0..generator.orders()).map(move |number| generator.order(number));
    let lines = all().flat_map(|full| {
        let lines = full.keyed_lines().map(|(key, line)| (key, Encoded::of(&line)));
        lines.collect::<Vec<_>>()
    });
    staged.lines.load(lines, |_| ()).await?;
    let orders = all().map(|full| (full.key, Encoded::of(&full.order)));
    staged.orders.load(orders, |_| ()).await?;
    staged.publish().await
}

/// Queries on one database, one after the other, each a read-only transaction. Another thread may
/// run refreshes.
struct Queries {
    name: String,
    refreshes: Refreshes,
    is_refreshed: bool,
    /// The rows that refreshes changed, and the time that this took.
    refreshed: Rc<Cell<(u64, Duration)>>,
}

impl Queries {
    /// Runs a query and checks its result.
    fn run_one(refreshes: &Refreshes, query: Query) -> Result<(), Error> {
        let committed = refreshes.expected.committed();
        let tables = refreshes.tables.clone();
        let run = async move |tx: &braiddb::Transaction| query.run(tx, &tables).await;
        let answer =
            pollster::block_on(refreshes.database.transaction().read_only(true).run(run))?.value;
        match refreshes.expected.has(&answer, query, committed) {
            true => Ok(()),
            false => Err(Error::Wrong(format!(
                "{} returned a result that was never true since it began: {answer:?}",
                query.name()
            ))),
        }
    }

    /// Runs all queries in turn, repeatedly, for this effort.
    fn run_all(refreshes: &Refreshes, effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        let mut latencies = Query::ALL.map(|_| Latencies::one_in(1));
        let (mut counts, mut ran) = (Query::ALL.map(|_| 0), 0);
        loop {
            for (place, query) in Query::ALL.into_iter().enumerate() {
                let begin = Instant::now();
                Self::run_one(refreshes, query)?;
                latencies[place].record(begin.elapsed());
                counts[place] += 1;
                ran += 1;
            }
            let is_enough = match effort {
                Effort::Seconds(seconds) => begin.elapsed().as_secs_f64() >= seconds,
                Effort::Transactions(count) => ran >= count,
            };
            if is_enough {
                break;
            }
        }
        let mut all = Latencies::one_in(1);
        latencies.iter().for_each(|one| all.merge(one));
        let kinds = Query::ALL.iter().zip(counts).zip(latencies);
        let kinds = kinds.map(|((query, transactions), latencies)| KindSample {
            name: query.name(),
            transactions,
            unsuccessful: 0,
            conflicts: 0,
            latencies,
        });
        let kinds = kinds.collect();
        Ok(Sample { kinds, ..Sample::plain(ran, begin.elapsed(), all) })
    }
}

impl Subject for Queries {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        if !self.is_refreshed {
            return Self::run_all(&self.refreshes, effort);
        }
        let ran = self.refreshes.clone();
        let (stop, begin) = (AtomicBool::new(false), Instant::now());
        let (sample, rows) = std::thread::scope(|scope| {
            let refreshing = scope.spawn(|| self.refreshes.run(&stop));
            let sample = Self::run_all(&ran, effort);
            // Relaxed: joining the thread makes its results visible.
            stop.store(true, Ordering::Relaxed);
            let rows = refreshing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sample, rows)
        });
        let (before, time) = self.refreshed.get();
        self.refreshed.set((before + rows?, time + begin.elapsed()));
        sample
    }
}

/// Loads a database for each kind of table in the comparison. Returns the bytes that the pages of
/// all rows take.
fn load_all(
    settings: &Settings,
    kept: &[Kept],
    generator: Generator,
    loaded: &Answer,
    place: &Place,
) -> Result<(Vec<Loaded>, u64), Error> {
    let opening = Opening::braided(settings);
    let paged = TableOptions::default().paged();
    let open = |name, budget: Option<u64>| {
        let options = opening.durability(Durability::Volatile).options().memory_budget(budget);
        Database::open(place.join(name), options)
    };
    let (mut databases, mut page_bytes) =
        (Vec::new(), LINES_OF_ORDER * generator.orders() * LINE_ON_PAGE_BYTES);
    for kept in Kept::value_variants().iter().filter(|one| kept.contains(one)) {
        let (name, database, options) = match kept {
            Kept::Memory => (HOT, Database::in_memory(opening.options())?, TableOptions::default()),
            Kept::Paged => (CACHED, open("cached", None)?, paged),
            Kept::Larger => {
                let budget = (page_bytes / TIMES).max(MIN_BUDGET);
                (LARGER, open("larger", Some(budget))?, paged)
            }
        };
        let database = Loaded::load(name, database, options, generator, loaded)?;
        if *kept == Kept::Paged {
            page_bytes = database.refreshes.database.stats().memory.pages;
        }
        databases.push(database);
    }
    Ok((databases, page_bytes))
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    kept: &[Kept],
    place: &Place,
) -> Result<Report, Error> {
    stage.beds.clear();
    let generator = Generator::new(settings.seed, settings.records.max(1));
    let (orders, lines) = (generator.orders(), LINES_OF_ORDER * generator.orders());
    let whole = kept.iter().filter(|kept| **kept != Kept::Larger).count() as u64;
    check_memory(orders, whole * lines * LINE_BYTES)?;
    stage.progress.doing(format!("loading {} orders", number::grouped(orders)));
    let mut loaded = Answer::default();
    (0..orders).for_each(|number| loaded.add(&generator.order(number), 1));

    let (databases, page_bytes) = load_all(settings, kept, generator, &loaded, place)?;
    let refreshed: Vec<Rc<Cell<_>>> = databases.iter().map(|_| Rc::default()).collect();
    let subjects = databases.iter().zip(&refreshed).flat_map(|(database, refreshed)| {
        let ways = [("", false, false), (REFRESHED, true, false), (IN_BULK, true, true)];
        let ways = ways.into_iter().filter(|(.., in_bulk)| database.name != HOT || !in_bulk);
        ways.map(|(way, is_refreshed, in_bulk)| {
            let name = format!("{}{way}", database.name);
            let refreshes = Refreshes { in_bulk, ..database.refreshes.clone() };
            let refreshed = refreshed.clone();
            Box::new(Queries { name, refreshes, is_refreshed, refreshed }) as Box<dyn Subject>
        })
    });
    let what = format!(
        "queries 1, 6 and 12 of TPC-H over {} orders, alone and during refreshes, {} workers, nothing logged",
        number::grouped(orders),
        settings.workers
    );
    let mut report = stage.measure("tpch", what, settings, subjects.collect())?;
    report.unit = "queries";
    report.ratio(CACHED, HOT);
    report.ratio(LARGER, CACHED);
    for (database, refreshed) in databases.iter().zip(&refreshed) {
        let name = database.name;
        report.ratio(&format!("{name}{REFRESHED}"), name);
        report.ratio(&format!("{name}{IN_BULK}"), name);
        let rate = database.lines_a_second;
        report.fact(format!("lines loaded a second, {name}"), rate, number::scaled(rate));
        let (rows, time) = refreshed.get();
        let rate = rows as f64 / time.as_secs_f64();
        report.fact(format!("rows refreshed a second, {name}"), rate, number::scaled(rate));
        let workers = database.refreshes.database.stats().workers;
        let longest = workers.iter().map(|worker| worker.longest_stretch).max().unwrap_or_default();
        let nanos = longest.as_nanos() as u64;
        let what = format!("longest time for which a worker ran transactions alone, {name}");
        report.fact(what, nanos as f64, number::nanoseconds(nanos));
    }
    report.fact("pages of the tables", page_bytes as f64, number::bytes(page_bytes));
    report.fact(
        "what queries found",
        1.0,
        "each equal to the result after a refresh that it may have seen",
    );
    report.notes.push(place.describe());
    for database in databases {
        database.refreshes.database.close()?;
    }
    Ok(report)
}
