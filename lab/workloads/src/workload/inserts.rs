//! `inserts`: one insert in each transaction, braided at several widths and sequential, into a
//! loaded table. Keys are ascending, so that all workers meet at the end of the index (MosaicDB
//! §6.4), or spread over the whole index. At the end the table must contain exactly the loaded and
//! inserted records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braiddb::{Table, Transaction, Width};
use clap::Args;

use super::stage::Stage;
use crate::engine::drive::{Driven, Procedure};
use crate::engine::fixture::{Bed, Opening, check_memory};
use crate::error::Error;
use crate::harness::number;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

/// The approximate memory of one second of inserts.
const A_SECOND: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct InsertsDefaults;

impl Defaults for InsertsDefaults {
    const RECORDS: u64 = 1_000_000;
    const SECONDS: f64 = 0.5;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench inserts`.
#[derive(Args, Clone, Debug)]
pub(crate) struct InsertsArguments {
    #[command(flatten)]
    scale: Scale<InsertsDefaults>,
}

impl InsertsArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        measure(stage, &self.scale.settings())
    }
}

/// The position of inserted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// After all others.
    End,
    /// Over the whole table, between loaded keys.
    Anywhere,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::End => "at the end",
            Self::Anywhere => "anywhere",
        }
    }
}

/// The mode of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interleaving {
    Sequential,
    Width(usize),
    Tuned,
}

impl Interleaving {
    pub(crate) const ALL: [Self; 4] =
        [Self::Sequential, Self::Width(4), Self::Width(8), Self::Tuned];

    fn name(self) -> String {
        match self {
            Self::Sequential => "sequential".to_owned(),
            Self::Width(width) => format!("{width} interleaved"),
            Self::Tuned => "braided".to_owned(),
        }
    }

    fn opening(self, settings: &Settings, workers: usize) -> Opening {
        let opening = match self {
            Self::Sequential => Opening::sequential(settings),
            Self::Width(width) => {
                Opening { width: Width::Fixed(width), ..Opening::braided(settings) }
            }
            Self::Tuned => Opening::braided(settings),
        };
        Opening { workers, pin: opening.pin && workers <= settings.workers, ..opening }
    }
}

/// Returns the name of a subject.
pub(crate) fn name(how: Interleaving, place: Place, workers: usize) -> String {
    format!("{}, {}, {workers} workers", how.name(), place.name())
}

/// Maps numbers below `2^bits` to numbers below `2^bits`, neighbours far from each other.
fn scattered(number: u64, bits: u32) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << bits) - 1)
}

/// Inserted keys have this bit, loaded keys do not. The rest of the number is scattered over this
/// number of bits.
const BITS: u32 = 40;

/// Inserts; each number is used once.
#[derive(Clone)]
struct Inserts {
    table: Table<u64, u64>,
    next: Arc<AtomicU64>,
    loaded: u64,
    place: Place,
}

impl Inserts {
    fn key(&self, number: u64) -> u64 {
        match self.place {
            Place::End => key_of(self.loaded + number),
            // Loaded keys have remainder 1 modulo 7; these have 2 to 6.
            Place::Anywhere => {
                let place = u128::from(scattered(number, BITS)) * u128::from(self.loaded) * 5;
                let place = (place >> BITS) as u64;
                place / 5 * 7 + 2 + place % 5
            }
        }
    }
}

impl Procedure for Inserts {
    type Input = u64;

    fn draw(&mut self) -> u64 {
        // Relaxed: each number is used once, and the counter publishes no other data.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn run(&self, tx: &Transaction, number: &u64) -> Result<(), braiddb::Error> {
        // Some scattered numbers map to the same key.
        tx.put(&self.table, &self.key(*number), number).await
    }
}

/// Inserts into one database, which is loaded before its first round and checked after its last.
struct Inserting {
    name: String,
    bed: Bed,
    next: Arc<AtomicU64>,
    place: Place,
    driven: Box<dyn Subject>,
}

impl Inserting {
    fn new(
        (how, place, workers): (Interleaving, Place, usize),
        settings: &Settings,
    ) -> Result<Self, Error> {
        let bed = Bed::loaded(how.opening(settings, workers), settings.records)?;
        let next = Arc::new(AtomicU64::new(0));
        let inserts = Inserts {
            table: bed.table.clone(),
            next: next.clone(),
            loaded: settings.records,
            place,
        };
        let name = name(how, place, workers);
        let make = move |_| inserts.clone();
        let driven = Driven::new(&name, &bed.database, workers, settings.seed, make);
        Ok(Self { name, bed, next, place, driven: Box::new(driven) })
    }

    /// Compares the table with the inserted records.
    fn check(&self) -> Result<(), Error> {
        // Relaxed: the workers have finished.
        let taken = self.next.load(Ordering::Relaxed);
        let (table, loaded) = (self.bed.table.clone(), self.bed.records);
        let inserts =
            Inserts { table: table.clone(), next: Arc::default(), loaded, place: self.place };
        let mut expected: Vec<u64> = (0..taken).map(|number| inserts.key(number)).collect();
        expected.extend((0..loaded).map(key_of));
        expected.sort_unstable();
        expected.dedup();
        let all = expected.len();
        let count = async move |tx: &Transaction| {
            let mut scan = tx.scan(&table, ..)?;
            for place in 0.. {
                let Some((key, _)) = scan.next().await? else { return Ok(place) };
                if expected.get(place) != Some(&key) {
                    return Ok(usize::MAX);
                }
            }
            unreachable!("a scan ends")
        };
        let found = self.bed.database.run_blocking(count)?;
        match found == all {
            true => Ok(()),
            false => Err(Error::Wrong(format!("{}: inserted keys are wrong", self.name))),
        }
    }
}

impl Subject for Inserting {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let sample = self.driven.round(effort)?;
        self.check()?;
        Ok(sample)
    }
}

/// Measures inserts at these positions with this number of workers.
pub(crate) fn compare(
    stage: &mut Stage,
    settings: &Settings,
    places: &[Place],
    workers: &[usize],
) -> Result<Report, Error> {
    let count = places.len() * workers.len() * Interleaving::ALL.len();
    let of_inserts = if settings.quick { 0 } else { A_SECOND / 4 };
    let a_bed = settings.records * crate::engine::fixture::RECORD_BYTES + of_inserts;
    check_memory(settings.records, a_bed * count as u64)?;
    stage
        .progress
        .doing(format!("loading {} records {count} times", number::grouped(settings.records)));
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for &place in places {
        for &workers in workers {
            for how in Interleaving::ALL {
                subjects.push(Box::new(Inserting::new((how, place, workers), settings)?));
            }
        }
    }
    let what = format!(
        "transactions of one insert into a table of {} records, in memory; keys ascending, all at the end, or anywhere",
        number::grouped(settings.records)
    );
    stage.measure("inserts", what, settings, subjects)
}

fn measure(stage: &mut Stage, settings: &Settings) -> Result<Report, Error> {
    let mut workers = vec![1];
    if settings.workers > 1 {
        workers.push(settings.workers);
    }
    let mut report = compare(stage, settings, &[Place::End, Place::Anywhere], &workers)?;
    for place in [Place::End, Place::Anywhere] {
        for &workers in &workers {
            let sequential = name(Interleaving::Sequential, place, workers);
            for how in &Interleaving::ALL[1..] {
                report.ratio(&name(*how, place, workers), &sequential);
            }
        }
    }
    report.fact(
        "check",
        1.0,
        "after each round every key that was inserted is there, and no other",
    );
    Ok(report)
}
