//! `tpcc`: TPC-C, revision 5.11: nine tables and five transactions with the specified mix, remote
//! shares and rollbacks. It has no keying and thinking times and is not audited. At the end all
//! databases are checked against the specification's consistency conditions. Databases on disk are
//! reopened and checked again.

mod consistency;
mod delivery;
mod fixture;
mod load;
mod new_order;
mod order_status;
mod payment;
mod query_2;
mod random;
mod schema;
mod stock_level;
mod terminal;
#[cfg(test)]
mod tests;
mod versions;

use std::cell::Cell;
use std::rc::Rc;

use clap::Args;
pub(crate) use consistency::Totals;
pub(crate) use fixture::TpccBed;
pub(crate) use schema::{Cardinalities, Kept};
pub(crate) use terminal::{Mix, Request, Style};
use terminal::{NEW_ORDER, PAYMENT, ROLLED_BACK};

use super::bars;
use super::contenders::{Contender, Home, Site, ratios};
use super::stage::Stage;
use crate::engine::drive::Driven;
use crate::engine::fixture::check_memory;
use crate::error::Error;
use crate::harness::number;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::scale::whole::within;

#[derive(Clone, Debug)]
pub(crate) struct TpccDefaults;

impl Defaults for TpccDefaults {
    const RECORDS: u64 = 1;
}

/// Arguments of `braid-lab bench tpcc`. --records has no effect.
#[derive(Args, Clone, Debug)]
pub(crate) struct TpccArguments {
    #[command(flatten)]
    scale: Scale<TpccDefaults>,

    /// Warehouses, of some 100 MB each; several numbers run one after the other [default: one a
    /// worker].
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',',
          value_parser = within::<u16>(1..=65_535))]
    warehouses: Vec<u16>,

    /// Subjects to compare; the first two share a database, and so do the fourth and fifth.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::all())]
    subjects: Vec<Contender>,

    /// Storage of records and their indexes.
    #[arg(long, value_enum, default_value_t)]
    tables: Kept,

    /// Measure the cost of versions instead: the standard's mix on pages by one worker, with
    /// versions and without.
    #[arg(long, conflicts_with_all = ["subjects", "mix", "workers", "width", "tables"])]
    versions: bool,

    /// Transactions to run: the standard's, only reads (TPC-CR), or the standard's with Query2*
    /// (TPC-CH).
    #[arg(long, value_enum, default_value_t = Mix::Standard)]
    mix: Mix,

    /// Suppliers that a Query2* reads, out of 10000.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = within::<u32>(1..=10_000))]
    suppliers: u32,

    #[command(flatten)]
    place: PlaceArguments,
}

/// The name of a subject that shares the database of the durable and serializable one. Its
/// New-Orders read only the parts of warehouses and customers that they need.
const PROJECTED: &str = "durable, projected";

impl TpccArguments {
    /// Runs the workload: a report for each number of warehouses.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let a_worker = settings.workers as u16;
        let warehouses =
            if self.warehouses.is_empty() { &[a_worker][..] } else { &self.warehouses };
        let measure = |&warehouses: &u16| {
            let place = self.place.make()?;
            if self.versions {
                return versions::measure(stage, &settings, warehouses, &place);
            }
            let style = Style { mix: self.mix, suppliers: self.suppliers, ..Style::default() };
            let shape = Shape { warehouses, kept: self.tables, style };
            measure(stage, &settings, shape, &self.subjects, &place)
        };
        warehouses.iter().map(measure).collect()
    }
}

/// The shape of a measurement.
#[derive(Clone, Copy)]
struct Shape {
    warehouses: u16,
    kept: Kept,
    style: Style,
}

impl Shape {
    fn name(self) -> String {
        let mix = match self.style.mix {
            Mix::Standard => "",
            Mix::ReadOnly => "r",
            Mix::Queries => "h",
        };
        let kept = match self.kept {
            Kept::Memory => "",
            Kept::Paged => "-paged",
            Kept::Both => "-both",
        };
        format!("tpcc{mix}-{}{kept}", self.warehouses)
    }

    fn cardinalities(self, settings: &Settings) -> Cardinalities {
        match settings.quick {
            true => Cardinalities::tiny(self.warehouses),
            false => Cardinalities::specified(self.warehouses),
        }
    }
}

/// A database under test, with the committed transactions of all rounds.
struct Tested {
    home: Home,
    site: Site,
    bed: TpccBed,
    cardinalities: Cardinalities,
    seed: u64,
    committed: Rc<Cell<Totals>>,
}

impl Tested {
    fn subject(&self, contender: Contender, style: Style, seed: u64) -> Box<dyn Subject> {
        let name = if style.projected { PROJECTED } else { contender.name() };
        let workers = self.site.opening.workers;
        let make = self.bed.terminals(workers, style);
        let driven = Driven::new(name, &self.bed.database, workers, seed, make);
        self.counted(driven.under(contender.run_options()).time_one_in(4))
    }

    /// Returns a subject on this database.
    fn counted(&self, inner: impl Subject + 'static) -> Box<dyn Subject> {
        Box::new(Counted { inner, committed: self.committed.clone() })
    }
}

/// A subject that counts orders and payments over all rounds, including warm-up.
struct Counted<S> {
    inner: S,
    committed: Rc<Cell<Totals>>,
}

impl<S: Subject> Subject for Counted<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let sample = self.inner.round(effort)?;
        let mut committed = self.committed.get();
        for kind in &sample.kinds {
            match kind.name {
                NEW_ORDER => committed.orders += kind.transactions,
                PAYMENT => committed.payments += kind.transactions,
                _ => {}
            }
        }
        self.committed.set(committed);
        Ok(sample)
    }
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    shape: Shape,
    contenders: &[Contender],
    place: &Place,
) -> Result<Report, Error> {
    let Shape { warehouses, kept, style } = shape;
    stage.beds.clear();
    let cardinalities = shape.cardinalities(settings);
    let settings = Settings { records: cardinalities.records(), ..settings.clone() };
    let tested = load_all(stage, &settings, (cardinalities, kept), contenders, place)?;
    let mut subjects = Vec::new();
    for (contender, seed) in contenders.iter().zip(settings.seed..) {
        let home = tested.iter().find(|tested| tested.home == contender.home());
        let tested = home.expect("all that are needed were loaded");
        subjects.push(tested.subject(*contender, style, seed));
        if *contender == Contender::Serializable && style.mix == Mix::Standard {
            let style = Style { projected: true, ..style };
            subjects.push(tested.subject(*contender, style, seed + 1_000));
        }
    }
    let what = format!(
        "TPC-C{} with {warehouses} warehouses{} and {} workers, no keying and thinking times; not an \
         audited result",
        match style.mix {
            Mix::Standard => "",
            Mix::ReadOnly => "R (only Order-Status and Stock-Level)",
            Mix::Queries => "H (a tenth Query2*)",
        },
        match kept {
            Kept::Memory => "",
            Kept::Paged => " on pages",
            Kept::Both => ", orders on pages,",
        },
        settings.workers
    );
    let mut report = stage.measure("tpcc", what, &settings, subjects)?;
    report.workload = shape.name();
    add_figures(&mut report, &settings, shape);
    account(stage, &mut report, tested)?;
    report.notes.push(place.describe());
    Ok(report)
}

/// Loads the databases that the contenders need, each with the same data.
fn load_all(
    stage: &Stage,
    settings: &Settings,
    (cardinalities, kept): (Cardinalities, Kept),
    contenders: &[Contender],
    place: &Place,
) -> Result<Vec<Tested>, Error> {
    let homes = Home::all_of(contenders);
    check_memory(cardinalities.records(), cardinalities.bytes() * homes.len() as u64)?;
    let (seed, progress) = (settings.seed, &stage.progress);
    let load = |home: Home| {
        let site = home.site(settings, place);
        let workers = site.opening.workers;
        let bed = TpccBed::fill(site.open()?, kept, cardinalities, seed, workers, progress)?;
        Ok(Tested { home, site, bed, cardinalities, seed, committed: Rc::default() })
    };
    homes.into_iter().map(load).collect()
}

/// Adds rates of New-Orders, ratios and bars to a report.
fn add_figures(report: &mut Report, settings: &Settings, shape: Shape) {
    let Shape { warehouses, kept, style } = shape;
    for measured in &report.measured.clone() {
        let orders = measured.transactions_of(NEW_ORDER) + measured.transactions_of(ROLLED_BACK);
        let share = orders as f64 / measured.transactions as f64;
        let a_minute = 60.0 * share * measured.rate.median;
        let name = format!("{}: New-Orders a minute", measured.name);
        report.fact(name, a_minute, number::scaled(a_minute));
    }
    let a_worker = usize::from(warehouses) == settings.workers;
    let standard = style.mix == Mix::Standard;
    let judged = !settings.quick
        && kept == Kept::Memory
        && standard
        && (a_worker || warehouses == bars::TPCC_WAREHOUSES);
    let [serializable, durable, memory] = ratios(report);
    let projected = report.ratio(PROJECTED, Contender::Snapshot.name());
    for (what, limit, measured) in [
        ("durable: serializable over snapshot", bars::TPCC_SERIALIZABLE, serializable),
        ("durable: projected over snapshot", bars::TPCC_PROJECTED, projected),
        ("durable: braided over sequential", bars::TPCC_BRAIDED, durable),
        ("in memory: braided over sequential", bars::TPCC_BRAIDED, memory),
    ] {
        report.bar(what, limit, measured, judged);
    }
    let durable = report.subject(Contender::Serializable.name());
    let rate = durable.map(|subject| subject.rate.median);
    if settings.workers == 1 {
        report.beside_published("over MosaicDB, not durable", bars::MOSAICDB_TPCC, rate);
        report.beside_published("over CoroBase, not durable", bars::COROBASE_TPCC, rate);
    }
}

/// Checks every database, and reopens and checks those on disk. Checks that exactly the committed
/// orders and payments are present.
fn account(stage: &Stage, report: &mut Report, tested: Vec<Tested>) -> Result<(), Error> {
    let mut all = 0;
    for Tested { site, bed, cardinalities, seed, committed, .. } in tested {
        stage.progress.doing("checking the consistency conditions");
        let committed = committed.get();
        expect(bed.check()?, committed, "before closing")?;
        bed.close()?;
        all += committed.orders + committed.payments;
        if site.path().is_some() {
            let bed = TpccBed::over(site.open()?, cardinalities, seed)?;
            expect(bed.check()?, committed, "after opening again")?;
            bed.close()?;
        }
    }
    let text = format!(
        "conditions 1 to 12 hold, and all {} orders and payments are there; on disk after opening \
         again too",
        number::grouped(all)
    );
    report.fact("check", all as f64, text);
    Ok(())
}

fn expect(found: Totals, committed: Totals, when: &str) -> Result<(), Error> {
    if found == committed {
        return Ok(());
    }
    Err(Error::Wrong(format!(
        "{committed:?} were committed, but the tables contain {found:?} {when}"
    )))
}
