//! `commit`: durable commits. Each client runs one transaction with one read-modify-write after the
//! other. Each returns only when it is on disk.

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::report::{Line, LineChart, Report};
use braid_workloads::scale::arguments::{Defaults, Scale, Settings};
use clap::Args;

use super::{
    FieldArguments, Terms, check_and_close, client_count, is_at_scale, over_best, value_bytes,
    with_records,
};
use crate::agree::complete;
use crate::call::Work;
use crate::drive::{Load, Loaded, clients, procedures, requests, threads};

/// The required ratio of Braid's durable commits over those of the best peer, with this number of
/// clients.
const OVER_BEST: f64 = 10.0;
const JUDGED_CLIENTS: usize = 64;

#[derive(Clone, Debug)]
pub struct CommitDefaults;

impl Defaults for CommitDefaults {
    const RECORDS: u64 = 1_000_000;
    const QUICK_RECORDS: u64 = 1_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-peers commit`.
#[derive(Args, Clone, Debug)]
pub struct CommitArguments {
    #[command(flatten)]
    scale: Scale<CommitDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Clients that commit at the same time.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,4,16,64", value_parser = client_count)]
    clients: Vec<usize>,

    /// Records that a transaction modifies.
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10))]
    modifies: usize,

    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = value_bytes)]
    value_bytes: usize,
}

impl CommitArguments {
    /// Runs the comparison.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly.
    pub fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        let most = self.clients.iter().copied().max().unwrap_or(1);
        let terms =
            Terms { value_bytes: self.value_bytes, synced: true, budget: None, clients: most };
        let stores = field.load(stage, terms, &settings, with_records)?;
        let mut report = self.compare(stage, &settings, &stores)?;
        report.notes.push(format!("values of {} bytes", self.value_bytes));
        field.describe(&mut report, &stores);
        check_and_close(stage, &stores, complete)?;
        Ok(vec![report])
    }

    fn compare(
        &self,
        stage: &mut Stage,
        settings: &Settings,
        stores: &[Loaded],
    ) -> Result<Report, Error> {
        let load = |clients, of: usize| Load {
            work: Work::Points { records: self.modifies, read_percent: 0 },
            clients,
            seed: settings.seed + of as u64,
            pin: settings.pin,
            timed_one_in: 1,
        };
        let mut subjects = Vec::new();
        for (of, loaded) in stores.iter().enumerate() {
            for count in &self.clients {
                let requests = requests(loaded, load(*count, of));
                subjects.push(requests.unwrap_or_else(|| threads(loaded, load(*count, of))));
            }
            let sources = Load { timed_one_in: 16, ..load(1, of) };
            subjects.extend(procedures(loaded, sources, settings.workers));
        }
        let plural = if self.modifies == 1 { "" } else { "s" };
        let what = format!(
            "transactions of {} read-modify-write{plural}, each on disk before it returns",
            self.modifies
        );
        let mut report = stage.measure("peers-commit", what, settings, subjects)?;
        for count in &self.clients {
            let name = |loaded: &Loaded| format!("{}, {}", loaded.name, clients(*count));
            let peers = stores.iter().filter(|loaded| loaded.store.braid().is_none()).map(name);
            let bar = (*count == JUDGED_CLIENTS).then_some(OVER_BEST);
            let judged = is_at_scale::<CommitDefaults>(settings);
            let braid = format!("Braid, {}", clients(*count));
            over_best(&mut report, &braid, peers.collect::<Vec<_>>(), bar, judged);
        }
        report.lines.push(self.by_clients(&report, stores));
        Ok(report)
    }

    fn by_clients(&self, report: &Report, stores: &[Loaded]) -> LineChart {
        let line = |loaded: &Loaded| {
            let point = |count: &usize| {
                let name = format!("{}, {}", loaded.name, clients(*count));
                Some((*count as f64, report.subject(&name)?.rate.median))
            };
            let points = self.clients.iter().filter_map(point).collect();
            Line { name: loaded.name.to_owned(), points }
        };
        LineChart {
            name: "peers-commit-clients".to_owned(),
            title: "durable commits a second by clients".to_owned(),
            x: "clients".to_owned(),
            y: "commits a second".to_owned(),
            lines: stores.iter().map(line).collect(),
        }
    }
}
