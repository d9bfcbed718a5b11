//! `isolation`: the cost of serializability. Runs the same transactions at both isolation levels,
//! with both certifiers, and declared read-only where they only read: uniform and skewed, short and
//! long.

use braiddb::{Certifier, Error as Failure, Isolation, Table, Transaction};
use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Opening};
use crate::error::Error;
use crate::harness::report::Report;
use crate::harness::rounds::Subject;
use crate::random::{Skewed, Uniform};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::workload::missing_record;

#[derive(Clone, Debug)]
pub(crate) struct IsolationDefaults;

impl Defaults for IsolationDefaults {
    const RECORDS: u64 = bars::READS_MIDDLE;
    const SECONDS: f64 = 1.0;
}

/// Arguments of `braid-lab bench isolation`.
#[derive(Args, Clone, Debug)]
pub(crate) struct IsolationArguments {
    #[command(flatten)]
    scale: Scale<IsolationDefaults>,
}

impl IsolationArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        compare(stage, &self.scale.settings())
    }
}

/// The number of operations in the longer transactions.
const OPERATIONS: usize = 10;
/// The number of records in a scan.
const LENGTH: u64 = 100;
const THETA: f64 = 0.99;

/// The operations of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reads,
    ReadModifyWrites,
    /// Eight reads and two read-modify-writes.
    Mixed,
    Scan,
    ScanAndUpdate,
    /// This number of operations, each a read or an update with equal probability.
    ReadsOrUpdates(usize),
}

/// A kind of transaction, on uniform or on skewed keys, and its bars.
struct Shape {
    name: &'static str,
    kind: Kind,
    skewed: bool,
    serializable: f64,
    read_only: Option<f64>,
}

const SHAPES: [Shape; 7] = [
    Shape {
        name: "10 reads",
        kind: Kind::Reads,
        skewed: false,
        serializable: 0.97,
        read_only: Some(0.99),
    },
    Shape {
        name: "10 read-modify-writes",
        kind: Kind::ReadModifyWrites,
        skewed: false,
        serializable: 0.95,
        read_only: None,
    },
    Shape {
        name: "8 reads and 2 read-modify-writes",
        kind: Kind::Mixed,
        skewed: false,
        serializable: 0.95,
        read_only: None,
    },
    Shape {
        name: "a scan of 100",
        kind: Kind::Scan,
        skewed: false,
        serializable: 0.97,
        read_only: None,
    },
    Shape {
        name: "a scan of 100 and an update",
        kind: Kind::ScanAndUpdate,
        skewed: false,
        serializable: 0.75,
        read_only: None,
    },
    Shape {
        name: "1 skewed read or update",
        kind: Kind::ReadsOrUpdates(1),
        skewed: true,
        serializable: 0.97,
        read_only: None,
    },
    Shape {
        name: "10 skewed reads or updates",
        kind: Kind::ReadsOrUpdates(OPERATIONS),
        skewed: true,
        serializable: 1.0,
        read_only: None,
    },
];

/// Draws keys.
#[derive(Clone)]
enum Keys {
    Uniform(Uniform),
    Skewed(Skewed),
}

/// A transaction of one kind.
#[derive(Clone)]
struct Shaped {
    kind: Kind,
    table: Table<u64, u64>,
    keys: Keys,
    choices: fastrand::Rng,
}

impl Procedure for Shaped {
    /// Keys, and random bits for choices.
    type Input = ([u64; OPERATIONS], u64);

    fn draw(&mut self) -> Self::Input {
        let keys = &mut self.keys;
        let key = |_| match keys {
            Keys::Uniform(uniform) => uniform.key(),
            Keys::Skewed(skewed) => skewed.key(),
        };
        (std::array::from_fn(key), self.choices.u64(..))
    }

    async fn run(&self, tx: &Transaction, (keys, choices): &Self::Input) -> Result<(), Failure> {
        match self.kind {
            Kind::Reads => {
                for key in keys {
                    self.read(tx, key).await?;
                }
            }
            Kind::ReadModifyWrites => {
                for key in keys {
                    let value = self.read(tx, key).await?;
                    tx.update(&self.table, key, &value.wrapping_add(1)).await?;
                }
            }
            Kind::Mixed => {
                for (number, key) in keys.iter().enumerate() {
                    let value = self.read(tx, key).await?;
                    if number >= 8 {
                        tx.update(&self.table, key, &value.wrapping_add(1)).await?;
                    }
                }
            }
            Kind::Scan => self.scan(tx, &keys[0]).await?,
            Kind::ScanAndUpdate => {
                self.scan(tx, &keys[0]).await?;
                tx.update(&self.table, &keys[1], choices).await?;
            }
            Kind::ReadsOrUpdates(count) => {
                for (number, key) in keys[..count].iter().enumerate() {
                    if choices >> number & 1 == 0 {
                        self.read(tx, key).await?;
                    } else {
                        tx.update(&self.table, key, choices).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Shaped {
    async fn read(&self, tx: &Transaction, key: &u64) -> Result<u64, Failure> {
        tx.get(&self.table, key).await?.ok_or_else(missing_record)
    }

    async fn scan(&self, tx: &Transaction, from: &u64) -> Result<(), Failure> {
        let mut scan = tx.scan(&self.table, from..)?.limit(LENGTH);
        let mut sum = 0_u64;
        while let Some((_, value)) = scan.next().await? {
            sum = sum.wrapping_add(value);
        }
        std::hint::black_box(sum);
        Ok(())
    }
}

/// One database for each certifier.
struct Beds {
    bed: Bed,
    net: Bed,
}

/// Measures each shape in a separate report, with its subjects in turn.
fn compare(stage: &mut Stage, settings: &Settings) -> Result<Vec<Report>, Error> {
    let bed = stage.beds.get(Opening::braided(settings), settings.records, &stage.progress)?;
    let opening = Opening::braided(settings).certifier(Certifier::SerialSafetyNet);
    let net = stage.beds.get(opening, settings.records, &stage.progress)?;
    let beds = Beds { bed, net };
    let skewed = Skewed::below(settings.records, THETA, settings.seed);
    SHAPES.iter().map(|shape| measure(stage, settings, &beds, &skewed, shape)).collect()
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    beds: &Beds,
    skewed: &Skewed,
    shape: &Shape,
) -> Result<Report, Error> {
    let name = |level: &str| format!("{}, {level}", shape.name);
    let mut levels = vec![
        ("snapshot", &beds.bed, Isolation::Snapshot, false),
        ("serializable", &beds.bed, Isolation::Serializable, false),
        ("serial safety net", &beds.net, Isolation::Serializable, false),
    ];
    if shape.read_only.is_some() {
        levels.push(("read-only", &beds.bed, Isolation::Serializable, true));
    }
    let subjects = levels.into_iter().map(|(level, bed, isolation, only_reads)| {
        let (bed_of, skewed, kind, is_skewed) =
            (bed.clone(), skewed.clone(), shape.kind, shape.skewed);
        let make = move |seed| Shaped {
            kind,
            table: bed_of.table.clone(),
            keys: match is_skewed {
                true => Keys::Skewed(skewed.with_seed(seed)),
                false => Keys::Uniform(Uniform::below(bed_of.records, seed)),
            },
            choices: fastrand::Rng::with_seed(!seed),
        };
        let (database, workers) = (&bed.database, settings.workers);
        let driven = Driven::new(&name(level), database, workers, settings.seed, make);
        Box::new(driven.isolation(isolation).read_only(only_reads)) as Box<dyn Subject>
    });
    let subjects = subjects.collect();
    let what =
        format!("transactions of {}, in memory, under both levels and certifiers", shape.name);
    let mut report = stage.measure("isolation", what, settings, subjects)?;
    for measured in &report.measured.clone() {
        let attempts = measured.conflicts + measured.transactions;
        let percent = 100.0 * measured.conflicts as f64 / attempts as f64;
        report.fact(
            format!("{}: attempts that failed", measured.name),
            percent,
            format!("{percent:.2} %"),
        );
    }
    let judged = settings.records == bars::READS_MIDDLE && !settings.quick;
    let over = report.ratio(&name("serializable"), &name("snapshot"));
    let told = format!("{}: serializable over snapshot", shape.name);
    report.bar(told, bars::at_least(shape.serializable), over, judged);
    if let Some(limit) = shape.read_only {
        let over = report.ratio(&name("read-only"), &name("snapshot"));
        let told = format!("{}: read-only over snapshot", shape.name);
        report.bar(told, bars::at_least(limit), over, judged);
    }
    Ok(report)
}
