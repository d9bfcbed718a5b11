//! The same records loaded in several ways, each into a new database.

use std::ops::Range;
use std::time::Instant;

use braiddb::{Database, Durability, Transaction};

use super::BulkDefaults;
use super::{Records, open, value, with_most_versions};
use crate::engine::fixture::Opening;
use crate::engine::load::load_in_pieces;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::number;
use crate::harness::place::Place;
use crate::harness::report::{Report, Setting};
use crate::harness::rounds::{Effort, Sample, repeat_in_turn};
use crate::random::key_of;
use crate::scale::arguments::Defaults;
use crate::scale::arguments::Settings;
use crate::workload::bars;
use crate::workload::stage::Stage;

const TRANSACTIONS: &str = "transactions";
const BULK: &str = "a bulk operation";
const UNVERSIONED: &str = "onto pages alone";
const DURABLE_TRANSACTIONS: &str = "transactions, durable";
const DURABLE_BULK: &str = "a bulk operation, durable";

/// The number of records in one loading transaction.
const PIECE: u64 = 1_000;

/// The way in which a table is loaded, in key order, on one worker.
#[derive(Clone, Copy)]
enum How {
    Transactions,
    Bulk,
    /// Without transactions, versions and log.
    Unversioned,
}

impl How {
    fn load(self, database: &Database, table: &Records, records: u64) -> Result<(), Error> {
        let table = table.clone();
        match self {
            Self::Transactions => {
                let insert = async move |tx: &Transaction, piece: &Range<u64>| {
                    for record in piece.clone() {
                        tx.insert(&table, &key_of(record), &value(record)).await?;
                    }
                    Ok(())
                };
                load_in_pieces(database, 1, 0..records, PIECE, insert)
            }
            Self::Bulk => {
                let tables = table.clone();
                let insert = async move |tx: &Transaction| {
                    for record in 0..records {
                        tx.insert(&table, &key_of(record), &value(record)).await?;
                    }
                    Ok(())
                };
                Ok(pollster::block_on(database.run_bulk(&tables, insert))?)
            }
            Self::Unversioned => {
                let rows = (0..records).map(|record| (key_of(record), value(record)));
                let load = braiddb::experiment::load_onto_pages(database, &table, rows);
                Ok(pollster::block_on(load)?)
            }
        }
    }
}

/// One way to load, and the maximum memory of versions during the load.
struct Load {
    name: &'static str,
    how: How,
    durability: Durability,
    versions: u64,
}

impl Load {
    fn new(name: &'static str, how: How, durability: Durability) -> Self {
        Self { name, how, durability, versions: 0 }
    }

    fn all() -> Vec<Self> {
        let (none, group) = (Durability::Volatile, Durability::Group);
        vec![
            Self::new(TRANSACTIONS, How::Transactions, none),
            Self::new(BULK, How::Bulk, none),
            Self::new(UNVERSIONED, How::Unversioned, none),
            Self::new(DURABLE_TRANSACTIONS, How::Transactions, group),
            Self::new(DURABLE_BULK, How::Bulk, group),
        ]
    }

    /// Loads all records into a new database, and removes the database.
    fn round(&mut self, settings: &Settings, place: &Place) -> Result<Sample, Error> {
        let opening = Opening { workers: 1, ..Opening::braided(settings) };
        let (database, table) = open(place, "loaded", opening.durability(self.durability), None)?;
        let begin = Instant::now();
        let load = || self.how.load(&database, &table, settings.records).map(|()| begin.elapsed());
        let (elapsed, versions) = with_most_versions(&database, load);
        self.versions = self.versions.max(versions);
        let scan = async move |tx: &Transaction| tx.scan(&table, ..)?.count().await;
        let there = database.run_blocking(scan)?;
        database.close()?;
        let path = place.join("loaded");
        std::fs::remove_dir_all(&path).map_err(|source| Error::File { path, source })?;
        match elapsed {
            Ok(_) if there != settings.records => {
                let loaded = settings.records;
                Err(Error::Wrong(format!("{there} records exist of {loaded} loaded")))
            }
            Ok(elapsed) => Ok(Sample::plain(settings.records, elapsed, Latencies::one_in(1))),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn measure(
    stage: &mut Stage,
    settings: &Settings,
    place: &Place,
) -> Result<Report, Error> {
    let mut all = Load::all();
    let measured = {
        let each = all.iter_mut().map(|load| (load.name, move || load.round(settings, place)));
        let mut each: Vec<_> = each.collect();
        let named = each.iter_mut().map(|(name, round)| (*name, round as &mut dyn FnMut() -> _));
        repeat_in_turn(&mut named.collect::<Vec<_>>(), settings.rounds, &stage.progress)?
    };
    let records = settings.records;
    let what = "records of 8 + 100 bytes inserted in key order into a paged table, 1 worker";
    let mut report = Report::new("bulk-load", what);
    report.unit = "records";
    report.measured = measured;
    let effort = Effort::Transactions(records);
    report.setting = Some(Setting { records, effort, rounds: settings.rounds });
    report.ratio(BULK, TRANSACTIONS);
    report.ratio(DURABLE_BULK, DURABLE_TRANSACTIONS);
    {
        let judged = records >= BulkDefaults::RECORDS && !settings.quick;
        let over = report.ratio(UNVERSIONED, BULK);
        let what = "loading onto pages alone over a bulk operation";
        report.bar(what, bars::UNVERSIONED_OVER_BULK, over, judged);
    }
    for load in &all {
        let what = format!("memory of versions, at most: {}", load.name);
        report.fact(what, load.versions as f64, number::bytes(load.versions));
        if matches!(load.how, How::Bulk) {
            let bar = format!("memory of versions, {}", load.name);
            report.bar(bar, bars::BULK_VERSIONS, Some(load.versions as f64), !settings.quick);
        }
    }
    report.notes.push(place.describe());
    Ok(report)
}
