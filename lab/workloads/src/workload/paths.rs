//! `paths`: the cost of nesting (CoroBase §4.3; Rust's compiler does the same flattening). Compares
//! the bare look-up loop as nested `async fn`s, flattened by hand into one, and behind two boxed
//! futures. Also compares the engine's nested reads with reads behind two boxed futures.

use std::pin::Pin;
use std::rc::Rc;

use braiddb::{Table, Transaction};
use clap::Args;

use super::bars;
use super::points::{OPERATIONS, Points, Reads};
use super::stage::Stage;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::Uniform;
use crate::reference::hinted_lookup::{HintedLookup, Path};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::missing_record;

const NESTED: &str = "nested";
const BOXED: &str = "boxed";
const BARE: [(&str, Path); 3] =
    [("bare, nested", Path::Nested), ("bare, flattened", Path::Flat), ("bare, boxed", Path::Boxed)];

/// The width of all three, so that only the path differs.
const WIDTH: usize = 24;

#[derive(Clone, Debug)]
pub(crate) struct PathsDefaults;

impl Defaults for PathsDefaults {
    const RECORDS: u64 = bars::READS_MIDDLE;
}

/// Arguments of `braid-lab bench paths`. All paths run at the same width: --width, or 24.
#[derive(Args, Clone, Debug)]
pub(crate) struct PathsArguments {
    #[command(flatten)]
    scale: Scale<PathsDefaults>,
}

impl PathsArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        compare(stage, &self.scale.settings())
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool) -> Result<Report, Error> {
    compare(stage, &Settings::defaults::<PathsDefaults>(quick))
}

/// Ten reads, each through two boxed futures.
#[derive(Clone)]
struct BoxedReads {
    table: Table<u64, u64>,
    uniform: Uniform,
}

type BoxedValue<'a> = Pin<Box<dyn Future<Output = Result<Option<u64>, braiddb::Error>> + 'a>>;

impl BoxedReads {
    fn get<'a>(&'a self, tx: &'a Transaction, key: &'a u64) -> BoxedValue<'a> {
        Box::pin(async move {
            let inner: BoxedValue<'_> = Box::pin(tx.get(&self.table, key));
            inner.await
        })
    }
}

impl Procedure for BoxedReads {
    type Input = [u64; OPERATIONS];

    fn draw(&mut self) -> Self::Input {
        self.uniform.keys()
    }

    async fn run(&self, tx: &Transaction, keys: &Self::Input) -> Result<(), braiddb::Error> {
        for key in keys {
            let value = self.get(tx, key).await?.ok_or_else(missing_record)?;
            std::hint::black_box(value);
        }
        Ok(())
    }
}

fn compare(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let width = settings.width.unwrap_or(WIDTH);
    let fixed = Settings { width: Some(width), ..settings.clone() };
    let opening = Opening { workers: 1, ..Opening::braided(&fixed) };
    let bed = stage.beds.get(opening, settings.records, &stage.progress)?;
    let mut subjects = vec![
        subject(NESTED, &bed, settings, |bed, seed| Reads::<OPERATIONS>(Points::on(bed, seed))),
        subject(BOXED, &bed, settings, |bed, seed| BoxedReads {
            table: bed.table.clone(),
            uniform: Uniform::below(bed.records, seed),
        }),
    ];
    let tree = Rc::new(HintedLookup::build(settings.records)?);
    for (name, path) in BARE {
        let (tree, seed) = (tree.clone(), settings.seed);
        subjects.push(Box::new(Bare { name, path, tree, width, seed }));
    }
    let what = format!("transactions of 10 uniform reads, {width} interleaved, by read path");
    let mut report = stage.measure("paths", what, settings, subjects)?;
    report.ratio(BOXED, NESTED);
    let [(nested, _), (flat, _), (boxed, _)] = BARE;
    report.ratio(boxed, nested);
    let over_flat = report.ratio(nested, flat);
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    report.bar("nested over flattened", bars::NESTED_OVER_FLAT, over_flat, judged);
    Ok(report)
}

/// The bare look-up loop in one variant.
struct Bare {
    name: &'static str,
    path: Path,
    tree: Rc<HintedLookup>,
    width: usize,
    seed: u64,
}

impl Subject for Bare {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        self.seed += 1;
        Ok(self.tree.run(self.path, self.width, effort, self.seed))
    }
}

fn subject<P: Procedure>(
    name: &str,
    bed: &Bed,
    settings: &Settings,
    make: fn(&Bed, u64) -> P,
) -> Box<dyn Subject> {
    let of = bed.clone();
    Box::new(Driven::new(name, &bed.database, 1, settings.seed, move |seed| make(&of, seed)))
}
