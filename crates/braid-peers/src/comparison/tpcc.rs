//! `tpcc`: TPC-C's five transactions by keys alone, in memory; nobody waits for the disk.

use std::sync::atomic::Ordering;

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::report::Report;
use braid_workloads::scale::arguments::{Defaults, Scale, Settings};
use clap::Args;

use super::{FieldArguments, Terms, client_count, is_at_scale, over_best};
use crate::agree::{agree_on_trades, fill_with_trades, trades_are_complete};
use crate::call::Work;
use crate::drive::{Load, Loaded, clients, procedures, requests, threads};
use crate::tpcc;

/// Clients whose requests are awaited together.
const REQUESTS: usize = 64;
/// What a row takes, about.
const ROW_BYTES: usize = 300;
/// Transactions whose answers are compared before anything is measured.
const COMPARED: u64 = 300;

#[derive(Clone, Debug)]
pub struct TpccDefaults;

impl Defaults for TpccDefaults {
    const RECORDS: u64 = 1_040_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-peers tpcc`. Of the records, 130 000 make a warehouse.
#[derive(Args, Clone, Debug)]
pub struct TpccArguments {
    #[command(flatten)]
    scale: Scale<TpccDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Clients of each peer, and workers of Braid, as far as it has so many [default: 1 and one a core].
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = client_count)]
    clients: Vec<usize>,
}

impl TpccArguments {
    /// Runs it.
    ///
    /// # Errors
    /// When a store fails, answers wrongly, or has rows in the end that do not fit one another.
    pub fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        agree_on_trades(&field.kinds, &field.place.join("trades"), COMPARED)?;
        let counts = match self.clients.is_empty() {
            true if settings.workers > 1 => vec![1, settings.workers],
            true => vec![1],
            false => self.clients.clone(),
        };
        let most = counts.iter().copied().max().unwrap_or(1);
        let terms = Terms { value_bytes: ROW_BYTES, synced: false, budget: None, clients: most };
        let mut stores = Vec::new();
        for kind in &field.kinds {
            stage.progress.doing(format!("filling {}", kind.name()));
            let failed = |source| Error::Subject { name: kind.name().to_owned(), source };
            let store = kind.open(&field.setup(*kind, terms, &settings)).map_err(failed)?;
            let loaded = Loaded::new(kind.name(), store, settings.records);
            fill_with_trades(&loaded).map_err(failed)?;
            stores.push(loaded);
        }
        let mut report = compare(stage, &settings, &stores, &counts)?;
        report.notes.push(format!("warehouses: {}", tpcc::Scale::of(settings.records).warehouses));
        field.describe(&mut report, &stores);
        for loaded in &stores {
            stage.progress.doing(format!("checking {}", loaded.name));
            // Relaxed: those who added to it have been waited for.
            let wrote = loaded.modifications.load(Ordering::Relaxed);
            trades_are_complete(loaded, wrote)?;
            loaded.store.close().map_err(|failure| loaded.failed(failure))?;
        }
        Ok(vec![report])
    }
}

fn compare(
    stage: &mut Stage,
    settings: &Settings,
    stores: &[Loaded],
    counts: &[usize],
) -> Result<Report, Error> {
    let load = |clients, of: usize| Load {
        work: Work::Trades,
        clients,
        seed: settings.seed + of as u64,
        pin: settings.pin,
        timed_one_in: 1,
    };
    let mut subjects = Vec::new();
    for (of, loaded) in stores.iter().enumerate() {
        if loaded.store.braid().is_some() {
            let workers = counts.iter().filter(|count| **count <= settings.workers);
            subjects.extend(workers.filter_map(|count| procedures(loaded, load(1, of), *count)));
            subjects.extend(requests(loaded, load(REQUESTS, of)));
        } else {
            subjects.extend(counts.iter().map(|count| threads(loaded, load(*count, of))));
        }
    }
    let what = "TPC-C's mix by keys alone, not synced";
    let mut report = stage.measure("peers-tpcc", what, settings, subjects)?;
    let judged = is_at_scale::<TpccDefaults>(settings);
    for count in counts {
        let peers = stores.iter().filter(|loaded| loaded.store.braid().is_none());
        let peers = peers.map(|loaded| format!("{}, {}", loaded.name, clients(*count)));
        let plural = if *count == 1 { "" } else { "s" };
        let braid = format!("Braid, {count} worker{plural}");
        over_best(&mut report, &braid, peers.collect::<Vec<_>>(), None, judged);
    }
    Ok(report)
}
