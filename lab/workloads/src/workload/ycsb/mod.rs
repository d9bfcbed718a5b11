//! `ycsb`: the core workloads A to F with several operations in a transaction, at both isolation
//! levels on one database, over skew and length; and the rate of aborts.

mod distribution;
mod numbers;
mod transaction;

use std::ops::Range;
use std::sync::Arc;

use braiddb::{Certifier, Database, Isolation, RunOptions, Table, Transaction};
use clap::{Args, ValueEnum};
use distribution::{Chooser, Distribution, key_of};
use numbers::Numbers;
use transaction::{Client, Core, FIELD_BYTES, FIELDS, Records};

use super::bars;
use super::stage::Stage;
use crate::engine::drive::Driven;
use crate::engine::fixture::{Opening, RECORD_BYTES, check_memory};
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::harness::number;
use crate::harness::report::{Line, LineChart, Report};
use crate::harness::rounds::{Measured, Subject};
use crate::scale::arguments::{Defaults, Scale, Settings};
use crate::scale::whole::within;

#[derive(Clone, Debug)]
pub(crate) struct YcsbDefaults;

impl Defaults for YcsbDefaults {
    const RECORDS: u64 = 1_000_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 1.0;
}

/// Arguments of `braid-lab bench ycsb`.
#[derive(Args, Clone, Debug)]
pub(crate) struct YcsbArguments {
    #[command(flatten)]
    scale: Scale<YcsbDefaults>,

    /// Core workloads to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Core::value_variants().to_vec())]
    workloads: Vec<Core>,

    /// Operations of a transaction, up to 1000.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_values_t = [1, 10],
          value_parser = within::<usize>(1..=1000))]
    operations: Vec<usize>,

    /// Skew of the zipfian and of the latest distribution.
    #[arg(long, value_name = "THETA,...", value_delimiter = ',', default_values_t = [THETA],
          value_parser = theta)]
    theta: Vec<f64>,

    /// Distribution of records; D always uses the latest.
    #[arg(long, value_enum, default_value_t = Distribution::Zipfian)]
    distribution: Distribution,
}

/// YCSB's default skew.
const THETA: f64 = 0.99;
/// The number of records that one loading transaction inserts.
const PIECE: u64 = 200;

fn theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..1.0).contains(&theta) => Ok(theta),
        _ => Err("theta is a number from 0 to below 1".to_owned()),
    }
}

impl YcsbArguments {
    /// Runs the workload: a report for each core workload, length and skew.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        stage.beds.clear();
        let bytes = settings.records * (RECORD_BYTES + (FIELDS * FIELD_BYTES) as u64);
        check_memory(settings.records, 2 * bytes)?;
        stage
            .progress
            .doing(format!("loading {} records twice", number::grouped(settings.records)));
        let load = |certifier| {
            let opening = Opening::braided(&settings).certifier(certifier);
            YcsbField::load(Database::in_memory(opening.options())?, &settings)
        };
        let fields = Fields {
            validation: load(Certifier::default())?,
            net: load(Certifier::SerialSafetyNet)?,
        };
        let mut reports = Vec::new();
        for &core in &self.workloads {
            let mut all = Vec::new();
            for &operations in &self.operations {
                for &theta in &self.theta {
                    let shape = Shape { core, operations, theta, asked: self.distribution };
                    let report = measure(stage, &settings, &fields, shape)?;
                    all.push((shape, report));
                }
            }
            if self.theta.len() > 1 {
                let lines = charts(core, &all);
                all.last_mut().expect("there are several").1.lines = lines;
            }
            reports.extend(all.into_iter().map(|(_, report)| report));
        }
        fields.validation.database.close()?;
        fields.net.database.close()?;
        Ok(reports)
    }
}

/// A workload at one length and skew.
#[derive(Clone, Copy, Debug)]
struct Shape {
    core: Core,
    operations: usize,
    theta: f64,
    asked: Distribution,
}

/// The name, isolation and certifier of each subject.
const LEVELS: [(&str, Isolation, Certifier); 3] = [
    ("snapshot", Isolation::Snapshot, Certifier::ReadValidation),
    ("serializable", Isolation::Serializable, Certifier::ReadValidation),
    ("serial safety net", Isolation::Serializable, Certifier::SerialSafetyNet),
];

impl Shape {
    fn name(&self, level: &str) -> String {
        format!("{}, {level}", self.describe())
    }

    fn describe(&self) -> String {
        let Self { core, operations, theta, .. } = self;
        let letter = core.letter().to_ascii_uppercase();
        match core.distribution(self.asked) {
            Distribution::Uniform => format!("{letter}, {operations} a transaction, uniform"),
            Distribution::Zipfian => format!("{letter}, {operations} a transaction, theta {theta}"),
            Distribution::Latest => {
                format!("{letter}, {operations} a transaction, latest, theta {theta}")
            }
        }
    }
}

/// One loaded database for each certifier.
struct Fields {
    validation: YcsbField,
    net: YcsbField,
}

impl Fields {
    fn certified_by(&self, certifier: Certifier) -> &YcsbField {
        match certifier {
            Certifier::SerialSafetyNet => &self.net,
            _ => &self.validation,
        }
    }
}

/// A loaded database.
struct YcsbField {
    database: Database,
    records: Records,
    value: Arc<[u8]>,
}

impl YcsbField {
    fn load(database: Database, settings: &Settings) -> Result<Self, Error> {
        let table: Table<u64, [u8]> = pollster::block_on(database.create_table("usertable"))?;
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let value: Arc<[u8]> = (0..FIELDS * FIELD_BYTES).map(|_| random.u8(..)).collect();
        let insert = {
            let (table, value) = (table.clone(), value.clone());
            async move |tx: &Transaction, numbers: &Range<u64>| {
                for number in numbers.clone() {
                    tx.insert(&table, &key_of(number), &value).await?;
                }
                Ok(())
            }
        };
        load_in_pieces(&database, settings.workers, 0..settings.records, PIECE, insert)?;
        let numbers = Arc::new(Numbers::after(settings.records));
        Ok(Self { database, records: Records { table, numbers }, value })
    }

    fn subject(
        &self,
        shape: Shape,
        level: &str,
        isolation: Isolation,
        settings: &Settings,
    ) -> Box<dyn Subject> {
        let Shape { core, operations, theta, asked } = shape;
        let chooser = Chooser::new(core.distribution(asked), settings.records, theta);
        let (records, value) = (self.records.clone(), self.value.clone());
        let make = move |seed| Client {
            core,
            records: records.clone(),
            chooser: chooser.clone(),
            random: fastrand::Rng::with_seed(seed),
            operations,
            value: value.clone(),
        };
        let (workers, seed) = (settings.workers, settings.seed);
        let driven = Driven::new(&shape.name(level), &self.database, workers, seed, make);
        Box::new(driven.under(RunOptions::default().isolation(isolation)))
    }
}

fn measure(
    stage: &mut Stage,
    settings: &Settings,
    fields: &Fields,
    shape: Shape,
) -> Result<Report, Error> {
    let subjects = LEVELS.iter().map(|&(level, isolation, certifier)| {
        fields.certified_by(certifier).subject(shape, level, isolation, settings)
    });
    let subjects = subjects.collect();
    let what = format!(
        "YCSB {}; records of one value of {FIELDS} fields of {FIELD_BYTES} bytes, which an update \
         replaces; in memory, {} workers",
        shape.describe(),
        settings.workers
    );
    let mut report = stage.measure("ycsb", what, settings, subjects)?;
    let Shape { core, operations, theta, .. } = shape;
    report.workload = format!("ycsb-{}-{operations}-{theta}", core.letter());
    for measured in &report.measured.clone() {
        let percent = failed_percent(measured);
        let name = format!("{}: attempts that failed", measured.name);
        report.fact(name, percent, format!("{percent:.2} %"));
    }
    let over = report.ratio(&shape.name("serializable"), &shape.name("snapshot"));
    report.ratio(&shape.name("serial safety net"), &shape.name("snapshot"));
    report.ratio(&shape.name("serial safety net"), &shape.name("serializable"));
    let skewed = core.distribution(shape.asked) == Distribution::Zipfian && theta == THETA;
    if core == Core::A && skewed {
        let judged = settings.records == YcsbDefaults::RECORDS && !settings.quick;
        let limit = match operations {
            1 => Some(bars::YCSB_A_1),
            10 => Some(bars::YCSB_A_10),
            _ => None,
        };
        if let Some(limit) = limit {
            let told = format!("{}: serializable over snapshot", shape.describe());
            report.bar(told, limit, over, judged);
        }
    }
    Ok(report)
}

/// Returns the percent of attempts that failed.
fn failed_percent(measured: &Measured) -> f64 {
    let attempts = measured.conflicts + measured.transactions;
    100.0 * measured.conflicts as f64 / attempts.max(1) as f64
}

/// Returns charts of failed attempts, and of transactions a second, over skew: a line for each
/// length and level.
fn charts(core: Core, all: &[(Shape, Report)]) -> Vec<LineChart> {
    let lines = |value: fn(&Measured) -> f64| {
        let mut lines: Vec<Line> = Vec::new();
        for (shape, report) in all {
            for ((level, ..), measured) in LEVELS.iter().zip(&report.measured) {
                let name = format!("{} a transaction, {level}", shape.operations);
                let point = (shape.theta, value(measured));
                match lines.iter_mut().find(|line| line.name == name) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line { name, points: vec![point] }),
                }
            }
        }
        lines
    };
    let letter = core.letter();
    let chart = |name: &str, y: &str, lines| LineChart {
        name: format!("ycsb-{letter}-{name}"),
        title: format!("YCSB {}: {y} by skew", letter.to_ascii_uppercase()),
        x: "theta".to_owned(),
        y: y.to_owned(),
        lines,
    };
    vec![
        chart("failed", "% of attempts that failed", lines(failed_percent)),
        chart("rate", "transactions/s", lines(|measured| measured.rate.median)),
    ]
}
