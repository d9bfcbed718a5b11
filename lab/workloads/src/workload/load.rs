//! `load`: records per second and core when loading in key order, in memory and into a database on
//! disk, and the memory of a record.

use std::path::Path;

use braiddb::{Database, Durability};
use clap::Args;

use super::bars;
use super::stage::Stage;
use crate::engine::fixture::{Bed, Opening};
use crate::engine::load;
use crate::error::Error;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::process::OthersMeter;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Effort, Sample, repeat_in_turn};
use crate::harness::{number, process};
use crate::scale::arguments::{Defaults, Scale, Settings};

#[derive(Clone, Debug)]
pub(crate) struct LoadDefaults;

impl Defaults for LoadDefaults {
    const RECORDS: u64 = bars::READS_LARGE;
}

/// Arguments of `braid-lab bench load`. A round loads all records; --seconds and --transactions
/// have no effect.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    scale: Scale<LoadDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl LoadArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        measure(stage, &self.scale.settings(), &self.place.make()?)
    }
}

/// Runs the workload with defaults, for a run of all workloads.
pub(crate) fn at(stage: &mut Stage, quick: bool, place: &Place) -> Result<Report, Error> {
    measure(stage, &Settings::defaults::<LoadDefaults>(quick), place)
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    stage.beds.clear();
    let records = settings.records;
    let opening = Opening { workers: 1, ..Opening::braided(settings) };
    let mut resident = None;
    let mut counted = None;
    let mut round = || -> Result<Sample, Error> {
        let before = process::resident_bytes();
        let bed = Bed::empty(Database::in_memory(opening.options())?, records)?;
        let sample = load::load(&bed)?;
        // Only the first round starts from a process without freed memory to reuse.
        let grown = || process::resident_bytes()?.checked_sub(before?);
        resident = resident.or_else(grown);
        counted = counted.or(Some(bed.database.stats().memory));
        Ok(Sample { transactions: records, ..sample })
    };
    let others = OthersMeter::start();
    let mut staged = || -> Result<Sample, Error> {
        let sample = load::load_staged(&Database::in_memory(opening.options())?, records)?;
        Ok(Sample { transactions: records, ..sample })
    };
    let mut durable = || load_durably(opening, records, &place.join("records"));
    let mut all: [(&str, &mut dyn FnMut() -> _); 3] = [
        ("in key order", &mut round),
        ("from an iterator", &mut staged),
        ("from an iterator, durable", &mut durable),
    ];
    let measured = repeat_in_turn(&mut all, settings.rounds, &stage.progress)?;
    let mut report = Report::new("load", "records of 8 + 8 bytes inserted in key order, 1 worker");
    report.others_percent = others.and_then(|others| others.percent());
    let rate = measured[0].rate.median;
    report.unit = "records";
    report.measured = measured;
    let effort = Effort::Transactions(records);
    report.setting = Some(Setting { records, effort, rounds: settings.rounds });
    if let Some(counted) = counted {
        for (kind, bytes) in [("versions", counted.versions), ("index nodes", counted.index_nodes)]
        {
            bytes_a_record(&mut report, &format!("{kind}, counted by the engine"), bytes, records);
        }
    }
    let mut a_record = None;
    if let Some(resident) = resident {
        bytes_a_record(&mut report, "memory of the process", resident, records);
        a_record = Some(resident as f64 / records as f64);
    }
    report.ratio("from an iterator, durable", "from an iterator");
    report.notes.push(place.describe());
    let judged = records == bars::READS_LARGE && !settings.quick;
    report.fact("records loaded a second", rate, number::scaled(rate));
    report.bar("memory of a record", bars::RECORD_BYTES, a_record, judged);
    Ok(report)
}

/// Loads a new database on disk, which is removed afterwards. The load ends when the table is
/// published and therefore durable.
fn load_durably(opening: Opening, records: u64, directory: &Path) -> Result<Sample, Error> {
    let options = opening.durability(Durability::Group).options();
    let database = Database::open(directory, options)?;
    let sample = load::load_staged(&database, records)?;
    database.close()?;
    drop(database);
    std::fs::remove_dir_all(directory).map_err(Error::file(directory))?;
    Ok(Sample { transactions: records, ..sample })
}

fn bytes_a_record(report: &mut Report, what: &str, bytes: u64, records: u64) {
    let each = bytes as f64 / records as f64;
    let text = format!("{} ({} bytes a record)", number::bytes(bytes), number::three_digits(each));
    report.fact(what, each, text);
}
