//! `bulk`: loads a paged table by transactions and by one bulk operation, and measures the memory
//! of versions during both. Then a bulk operation changes every record of a table larger than its
//! memory, while readers run (Umbra's paper, §5.4).

mod loads;
mod updates;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braiddb::{Database, Table, TableOptions};
use clap::Args;

use super::stage::Stage;
use super::timeline::{Look, watch};
use crate::engine::fixture::{Opening, check_memory};
use crate::error::Error;
use crate::harness::place::{Place, PlaceArguments};
use crate::harness::report::Report;
use crate::scale::arguments::{Defaults, Scale};

const VALUE_BYTES: usize = 100;
const LOOK: Duration = Duration::from_millis(20);
/// The approximate size of a record on a page.
const RECORD_BYTES: u64 = 180;

type Records = Table<u64, [u8]>;

#[derive(Clone, Debug)]
pub(crate) struct BulkDefaults;

impl Defaults for BulkDefaults {
    const RECORDS: u64 = 5_000_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 5.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-lab bench bulk`. A round loads, and changes, all --records; readers alone
/// run for --seconds.
#[derive(Args, Clone, Debug)]
pub(crate) struct BulkArguments {
    #[command(flatten)]
    scale: Scale<BulkDefaults>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl BulkArguments {
    /// Runs the workload.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        stage.beds.clear();
        let (settings, place) = (self.scale.settings(), self.place.make()?);
        check_memory(settings.records, 2 * settings.records * RECORD_BYTES)?;
        let loads = loads::measure(stage, &settings, &place)?;
        Ok(vec![loads, updates::measure(stage, &settings, &place)?])
    }
}

/// Returns the value of a record, with all bytes the same.
fn value(fill: u64) -> [u8; VALUE_BYTES] {
    [fill as u8; VALUE_BYTES]
}

/// Opens a new database with an empty paged table.
fn open(
    place: &Place,
    name: &str,
    opening: Opening,
    budget: Option<u64>,
) -> Result<(Database, Records), Error> {
    let options = opening.options().memory_budget(budget);
    let database = Database::open(place.join(name), options)?;
    let paged = TableOptions::default().paged();
    let table = pollster::block_on(database.create_table_with("records", paged))?;
    Ok((database, table))
}

/// Returns the result of `work`, and the maximum memory of versions while it ran.
fn with_most_versions<T>(database: &Database, work: impl FnOnce() -> T) -> (T, u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(database, &over, LOOK));
        let result = work();
        // Release pairs with the watcher's Acquire.
        over.store(true, Ordering::Release);
        let looks = watcher.join().expect("the watcher does not panic");
        (result, looks.iter().map(Look::versions).max().unwrap_or(0))
    })
}
