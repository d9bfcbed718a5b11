//! The comparisons, and their common code: the choice of stores, loading, and ratios between
//! subjects.

pub mod commit;
pub mod larger;
pub mod memory;
pub mod opening;
pub mod space;
pub mod tpcc;

use std::collections::BTreeSet;

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::number;
use braid_workloads::harness::place::{Place, PlaceArguments};
use braid_workloads::harness::report::{Report, Side};
use braid_workloads::harness::rounds::Subject;
use braid_workloads::scale::arguments::{Defaults, Settings};
use clap::{Args, ValueEnum};

use crate::agree::agree;
use crate::answer::{COUNTER_BYTES, Failure};
use crate::drive::{Load, Loaded, clients, procedures, requests, threads};
use crate::store::{Kind, Setup};

/// The size of a key.
pub const KEY_BYTES: u64 = 8;
/// The number of calls whose answers are compared before the measurement.
const COMPARED_CALLS: u64 = 300;

/// The common arguments of all comparisons, without the scale.
#[derive(Args, Clone, Debug)]
pub struct FieldArguments {
    /// Stores to compare [default: all].
    #[arg(long, value_name = "STORE", value_enum, value_delimiter = ',')]
    stores: Vec<Kind>,

    /// Use a paged table for Braid.
    #[arg(long)]
    paged: bool,

    #[command(flatten)]
    place: PlaceArguments,
}

/// The stores of a comparison and their location.
pub struct Field {
    pub kinds: Vec<Kind>,
    pub place: Place,
    pub paged: bool,
}

impl FieldArguments {
    /// Creates a new location for the stores. Before the measurement, all stores must return the
    /// same answers to the same calls.
    ///
    /// # Errors
    /// Fails if they do not, or if a store fails.
    pub fn make(&self, stage: &Stage) -> Result<Field, Error> {
        let kinds = match self.stores.is_empty() {
            true => Kind::value_variants().to_vec(),
            false => self.stores.iter().copied().collect::<BTreeSet<_>>().into_iter().collect(),
        };
        let field = Field { kinds, place: self.place.make()?, paged: self.paged };
        stage.progress.doing("comparing answers");
        agree(&field.kinds, &field.place.join("answers"), false, COMPARED_CALLS)?;
        Ok(field)
    }
}

/// The setup of stores in a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub value_bytes: usize,
    pub synced: bool,
    pub budget: Option<u64>,
    pub clients: usize,
}

impl Terms {
    /// Returns the bytes of keys and values of this number of records.
    pub fn data_bytes(&self, records: u64) -> u64 {
        records * (KEY_BYTES + self.value_bytes as u64)
    }
}

impl Field {
    /// Returns the setup of a store of this kind.
    pub fn setup(&self, kind: Kind, terms: Terms, settings: &Settings) -> Setup {
        Setup {
            directory: self.place.join(kind.name()),
            value_bytes: terms.value_bytes,
            data_bytes: terms.data_bytes(settings.records),
            synced: terms.synced,
            budget: terms.budget,
            clients: terms.clients,
            workers: settings.workers,
            pin: settings.pin,
            paged: self.paged,
        }
    }

    /// Opens and fills all stores.
    ///
    /// # Errors
    /// Fails if a store fails.
    pub fn load(
        &self,
        stage: &Stage,
        terms: Terms,
        settings: &Settings,
        fill: impl Fn(&Loaded) -> Result<(), Failure>,
    ) -> Result<Vec<Loaded>, Error> {
        let load = |kind: &Kind| {
            stage.progress.doing(format!("loading {}", kind.name()));
            let failed = |source| Error::Subject { name: kind.name().to_owned(), source };
            let store = kind.open(&self.setup(*kind, terms, settings)).map_err(failed)?;
            let loaded = Loaded::new(kind.name(), store, settings.records);
            fill(&loaded).map_err(failed)?;
            Ok(loaded)
        };
        self.kinds.iter().map(load).collect()
    }

    /// Adds the location and the setup of the stores to a report.
    pub fn describe(&self, report: &mut Report, stores: &[Loaded]) {
        report.notes.push(self.place.describe());
        let settings =
            stores.iter().map(|store| format!("{}: {}", store.name, store.store.settings()));
        report.notes.extend(settings);
    }
}

/// Fills a store with records.
///
/// # Errors
/// Returns the store's error.
pub fn with_records(loaded: &Loaded) -> Result<(), Failure> {
    loaded.store.load(loaded.records)
}

/// Runs `check`, which verifies that all committed transactions are present, and closes the stores.
///
/// # Errors
/// Fails if a transaction is missing or present twice, or if a store fails.
pub fn check_and_close(
    stage: &Stage,
    stores: &[Loaded],
    check: impl Fn(&Loaded) -> Result<(), Error>,
) -> Result<(), Error> {
    for loaded in stores {
        stage.progress.doing(format!("checking {}", loaded.name));
        check(loaded)?;
        loaded.store.close().map_err(|failure| loaded.failed(failure))?;
    }
    Ok(())
}

/// Parses the size of a value.
///
/// # Errors
/// Fails if the text is no number, or the size is out of range.
pub fn value_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (COUNTER_BYTES..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(format!("a number from {COUNTER_BYTES} to {}", 1 << 20)),
    }
}

/// Parses a number of clients.
///
/// # Errors
/// Fails if the text is no number, or the number is too large.
pub fn client_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(clients) if (1..=256).contains(&clients) => Ok(clients),
        _ => Err("a number from 1 to 256".to_owned()),
    }
}

/// Adds the ratio of `braid` over the best of `peers`, and its bar if given.
pub fn over_best(
    report: &mut Report,
    braid: &str,
    peers: impl IntoIterator<Item = String>,
    bar: Option<f64>,
    judged: bool,
) {
    let median = |report: &Report, name: &str| report.subject(name).map(|found| found.rate.median);
    let peers = peers.into_iter().filter_map(|name| Some((median(report, &name)?, name)));
    let Some((_, best)) = peers.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
    let ratio = report.ratio(braid, &best);
    if let Some(limit) = bar {
        let what = format!("{braid} over the best peer, {best}");
        report.bar(what, (Side::AtLeast, limit, "×"), ratio, judged);
    }
}

/// The number of clients whose requests one thread awaits.
const REQUESTS: usize = 64;

/// Returns subjects for a number of clients, with the work from `load`: peers by threads, Braid by
/// workers and by requests.
pub fn by_clients(
    stores: &[Loaded],
    counts: &[usize],
    settings: &Settings,
    load: impl Fn(usize, usize) -> Load,
) -> Vec<Box<dyn Subject>> {
    let mut subjects = Vec::new();
    for (of, loaded) in stores.iter().enumerate() {
        if loaded.store.braid().is_some() {
            let workers = counts.iter().filter(|count| **count <= settings.workers);
            let sources = workers.filter_map(|count| procedures(loaded, load(1, of), *count));
            subjects.extend(sources);
            subjects.extend(requests(loaded, load(REQUESTS, of)));
        } else {
            subjects.extend(counts.iter().map(|count| threads(loaded, load(*count, of))));
        }
    }
    subjects
}

/// Adds the ratios of Braid with this number of workers over the best peer with as many clients,
/// and of Braid's requests over the best peer with the largest number of clients.
pub fn over_best_by_clients(
    report: &mut Report,
    stores: &[Loaded],
    counts: &[usize],
    bar: Option<f64>,
    judged: bool,
) {
    let peers = |count: usize| {
        let peers = stores.iter().filter(|loaded| loaded.store.braid().is_none());
        peers.map(|loaded| format!("{}, {}", loaded.name, clients(count))).collect::<Vec<_>>()
    };
    for count in counts {
        let plural = if *count == 1 { "" } else { "s" };
        let braid = format!("Braid, {count} worker{plural}");
        over_best(report, &braid, peers(*count), bar, judged);
    }
    if let Some(most) = counts.iter().max() {
        let braid = format!("Braid, {}", clients(REQUESTS));
        over_best(report, &braid, peers(*most), None, judged);
    }
}

/// Returns the numbers of clients: those requested, or one and one a core.
pub fn client_counts(asked: &[usize], settings: &Settings) -> Vec<usize> {
    match asked.is_empty() {
        true if settings.workers > 1 => vec![1, settings.workers],
        true => vec![1],
        false => asked.to_vec(),
    }
}

/// Returns true if a comparison ran at the scale of its bars.
pub fn is_at_scale<D: Defaults>(settings: &Settings) -> bool {
    settings.records == D::RECORDS && !settings.quick
}

/// Adds a number of bytes, in total and for each record.
pub fn bytes_a_record(report: &mut Report, what: String, bytes: u64, records: u64) {
    let each = bytes as f64 / records as f64;
    let each_text = number::three_digits(each);
    report.fact(what, each, format!("{each_text} bytes a record ({})", number::bytes(bytes)));
}
