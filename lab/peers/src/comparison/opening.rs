//! `open`: the time from opening a cleanly closed store to its first answer. Its files are dropped
//! from the page cache before.

use std::time::Instant;

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::latency::Latencies;
use braid_workloads::harness::number;
use braid_workloads::harness::report::Report;
use braid_workloads::harness::rounds::{Effort, Sample, Subject};
use braid_workloads::scale::arguments::{Defaults, Scale};
use clap::Args;

use super::{FieldArguments, Terms, over_best, value_bytes};
use crate::answer::Failure;
use crate::call::{Calls, Work};
use crate::files;
use crate::store::{Kind, Setup};

#[derive(Clone, Debug)]
pub struct OpenDefaults;

impl Defaults for OpenDefaults {
    const RECORDS: u64 = 2_000_000;
    const QUICK_RECORDS: u64 = 1_000;
    const ROUNDS: usize = 5;
}

/// Arguments of `braid-peers open`. A round opens each store once; --seconds and --transactions
/// have no effect.
#[derive(Args, Clone, Debug)]
pub struct OpenArguments {
    #[command(flatten)]
    scale: Scale<OpenDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = value_bytes)]
    value_bytes: usize,
}

/// A closed store.
struct Closed {
    kind: Kind,
    setup: Setup,
    calls: Calls,
}

impl Closed {
    fn open(&mut self) -> Result<f64, Failure> {
        files::forget(&self.setup.directory)?;
        let begin = Instant::now();
        let store = self.kind.open(&self.setup)?;
        let reply = store.client()?.run(&self.calls.draw())?;
        let seconds = begin.elapsed().as_secs_f64();
        std::hint::black_box(reply);
        store.close()?;
        Ok(seconds)
    }
}

impl Subject for Closed {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn round(&mut self, _: Effort) -> Result<Sample, Error> {
        let name = self.kind.name();
        let failed = |source| Error::Subject { name: name.to_owned(), source };
        let seconds = self.open().map_err(failed)?;
        let elapsed = std::time::Duration::from_secs_f64(seconds);
        Ok(Sample::plain(1, elapsed, Latencies::one_in(1)))
    }
}

impl OpenArguments {
    /// Runs the comparison.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly.
    pub fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let mut settings = self.scale.settings();
        settings.effort = Effort::Transactions(1);
        let field = self.field.make(stage)?;
        let terms = Terms { value_bytes: self.value_bytes, synced: true, budget: None, clients: 1 };
        let mut notes = Vec::new();
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        for kind in &field.kinds {
            stage.progress.doing(format!("loading {}", kind.name()));
            let setup = field.setup(*kind, terms, &settings);
            let mut load = || {
                let store = kind.open(&setup)?;
                store.load(settings.records)?;
                notes.push(format!("{}: {}", kind.name(), store.settings()));
                store.close()
            };
            load().map_err(|source| Error::Subject { name: kind.name().to_owned(), source })?;
            let work = Work::Points { records: 1, read_percent: 100 };
            let calls = Calls::new(work, settings.records, settings.seed);
            subjects.push(Box::new(Closed { kind: *kind, setup, calls }));
        }
        let what =
            "openings up to the first answer, of a store that was closed, with a cold page cache";
        let mut report = stage.measure("peers-open", what, &settings, subjects)?;
        report.unit = "openings";
        for measured in report.measured.clone() {
            let nanoseconds = 1e9 / measured.rate.median;
            let text = number::nanoseconds(nanoseconds as u64);
            report.fact(format!("{}, opened in", measured.name), nanoseconds / 1e9, text);
        }
        let peers = field.kinds.iter().filter(|kind| **kind != Kind::Braid);
        let peers: Vec<String> = peers.map(|kind| kind.name().to_owned()).collect();
        over_best(&mut report, Kind::Braid.name(), peers, None, false);
        report.notes.push(field.place.describe());
        report.notes.extend(notes);
        Ok(vec![report])
    }
}
