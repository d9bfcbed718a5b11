//! `changes`: small durable commits with and without a change feed that follows them, and the rate
//! at which a feed returns earlier commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use braiddb::{ChangeToken, Changes, ChangesFrom, Database, Durability, Table, Transaction};
use clap::Args;

use super::stage::Stage;
use crate::engine::fixture::Opening;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, Sample, Subject};
use crate::random::key_of;
use crate::scale::arguments::{Defaults, Scale, Settings};

const ALONE: &str = "nobody follows";
const FOLLOWED: &str = "a feed follows";
const BACKLOG: &str = "a feed of what was";
const VALUE_BYTES: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct ChangesDefaults;

impl Defaults for ChangesDefaults {
    const RECORDS: u64 = 200_000;
    const QUICK_RECORDS: u64 = 200;
    const ROUNDS: usize = 11;
}

/// Arguments of `braid-lab bench changes`. A round commits, or returns, --records transactions.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChangesArguments {
    #[command(flatten)]
    scale: Scale<ChangesDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl ChangesArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Report, Error> {
        stage.beds.clear();
        let place = self.place.make()?;
        measure(stage, &self.scale.settings(), &place)
    }
}

/// A database that receives small transactions.
struct Writer {
    database: Database,
    table: Table<u64, [u8]>,
    records: u64,
}

impl Writer {
    fn open(name: &str, place: &Place, settings: &Settings) -> Result<Self, Error> {
        let opening = Opening { workers: 1, ..Opening::braided(settings) };
        let options = opening.durability(Durability::Group).options();
        let database = Database::open(place.join(name), options)?;
        let table = pollster::block_on(database.open_or_create_table("records"))?;
        Ok(Self { database, table, records: settings.records })
    }

    /// Commits the transactions of one round.
    fn write(&self) -> Result<(), Error> {
        let table = self.table.clone();
        let body = async move |tx: &Transaction, number: &u64| {
            tx.put(&table, &key_of(*number), &[*number as u8; VALUE_BYTES]).await
        };
        self.database.run_source(0, 0..self.records, body)?.wait()?;
        Ok(())
    }
}

/// Commits without a feed.
struct Alone(Writer);

impl Subject for Alone {
    fn name(&self) -> &str {
        ALONE
    }

    fn round(&mut self, _effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        self.0.write()?;
        Ok(Sample::plain(self.0.records, begin.elapsed(), Latencies::one_in(1)))
    }
}

/// Commits with a feed that follows them on a separate thread.
struct Followed {
    writer: Writer,
    given: Arc<AtomicU64>,
    written: u64,
    follower: Option<JoinHandle<braiddb::Result<()>>>,
}

impl Followed {
    fn begin(writer: Writer) -> Self {
        let given = Arc::<AtomicU64>::default();
        let (mut changes, counted) = (writer.database.changes(ChangesFrom::Now), given.clone());
        let follower = std::thread::spawn(move || {
            while pollster::block_on(changes.next())?.is_some() {
                // Relaxed: a counter.
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { writer, given, written: 0, follower: Some(follower) }
    }

    /// Waits until the feed has returned all commits, unless it has ended.
    fn catch_up(&mut self) -> Result<(), Error> {
        // Relaxed: a counter.
        while self.given.load(Ordering::Relaxed) < self.written {
            if self.follower.as_ref().is_none_or(JoinHandle::is_finished) {
                let ended = self.follower.take().map(|ended| ended.join().expect("no panic"));
                ended.transpose()?;
                return Err(braiddb::Error::Closed.into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Subject for Followed {
    fn name(&self) -> &str {
        FOLLOWED
    }

    /// A round ends when the feed has returned all its commits.
    fn round(&mut self, _effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        self.writer.write()?;
        self.written += self.writer.records;
        self.catch_up()?;
        Ok(Sample::plain(self.writer.records, begin.elapsed(), Latencies::one_in(1)))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // The feed ends with its database.
        _ = self.writer.database.close();
        _ = self.follower.take().map(JoinHandle::join);
    }
}

/// A feed of earlier commits, from the beginning of the log.
struct Backlog {
    writer: Writer,
    from: ChangeToken,
}

impl Backlog {
    fn make(writer: Writer) -> Result<Self, Error> {
        let mut changes = writer.database.changes(ChangesFrom::Now);
        pollster::block_on(writer.database.put(&writer.table, &u64::MAX, &[0; VALUE_BYTES]))?;
        let from = Self::next(&mut changes)?;
        writer.write()?;
        Ok(Self { writer, from })
    }

    fn next(changes: &mut Changes) -> Result<ChangeToken, Error> {
        let given = pollster::block_on(changes.next())?.expect("a feed ends with an error");
        Ok(given.token.expect("every commit has one"))
    }
}

impl Subject for Backlog {
    fn name(&self) -> &str {
        BACKLOG
    }

    fn round(&mut self, _effort: Effort) -> Result<Sample, Error> {
        let begin = Instant::now();
        let mut changes = self.writer.database.changes(self.from.into());
        for _ in 0..self.writer.records {
            Self::next(&mut changes)?;
        }
        Ok(Sample::plain(self.writer.records, begin.elapsed(), Latencies::one_in(1)))
    }
}

fn measure(stage: &mut Stage, settings: &Settings, place: &Place) -> Result<Report, Error> {
    let settings = Settings { effort: Effort::Transactions(settings.records), ..settings.clone() };
    let open = |name| Writer::open(name, place, &settings);
    let subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(Alone(open("alone")?)),
        Box::new(Followed::begin(open("followed")?)),
        Box::new(Backlog::make(open("backlog")?)?),
    ];
    let what = "durable commits of one record of 100 bytes, and changes that a feed gives";
    let mut report = stage.measure("changes", what, &settings, subjects)?;
    report.notes.push(place.describe());
    report.notes.push(format!(
        "\"{FOLLOWED}\": until the feed has returned all commits; \"{BACKLOG}\": transactions returned a second"
    ));
    if let Some(ratio) = report.ratio(FOLLOWED, ALONE) {
        report.fact("commits with a feed over those without", ratio, format!("{ratio:.2} ×"));
    }
    Ok(report)
}
