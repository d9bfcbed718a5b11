//! `tpcc`: TPC-C's five transactions, reduced to access by key, in memory. Commits do not wait for
//! the disk.

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::report::Report;
use braid_workloads::scale::arguments::{Defaults, Scale, Settings};
use clap::Args;

use super::{
    FieldArguments, Terms, by_clients, check_and_close, client_count, client_counts, is_at_scale,
    over_best_by_clients,
};
use crate::agree::{agree_on_trades, fill_with_trades, trades_are_complete};
use crate::call::Work;
use crate::drive::{Load, Loaded};
use crate::tpcc;

/// The approximate size of a row.
const ROW_BYTES: usize = 300;
/// The number of transactions whose answers are compared before the measurement.
const COMPARED: u64 = 300;

#[derive(Clone, Debug)]
pub struct TpccDefaults;

impl Defaults for TpccDefaults {
    const RECORDS: u64 = 1_040_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-peers tpcc`. 130 000 records make one warehouse.
#[derive(Args, Clone, Debug)]
pub struct TpccArguments {
    #[command(flatten)]
    scale: Scale<TpccDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Clients of each peer, and workers of Braid up to its maximum [default: 1 and one a core].
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = client_count)]
    clients: Vec<usize>,
}

impl TpccArguments {
    /// Runs the comparison.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly, or if its final rows are inconsistent.
    pub fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        agree_on_trades(&field.kinds, &field.place.join("trades"), COMPARED)?;
        let counts = client_counts(&self.clients, &settings);
        let most = counts.iter().copied().max().unwrap_or(1);
        let terms = Terms { value_bytes: ROW_BYTES, synced: false, budget: None, clients: most };
        let stores = field.load(stage, terms, &settings, fill_with_trades)?;
        let mut report = compare(stage, &settings, &stores, &counts)?;
        report.notes.push(format!("warehouses: {}", tpcc::Scale::of(settings.records).warehouses));
        field.describe(&mut report, &stores);
        check_and_close(stage, &stores, trades_are_complete)?;
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
    let subjects = by_clients(stores, counts, settings, load);
    let what = "TPC-C's mix by keys alone, not synced";
    let mut report = stage.measure("peers-tpcc", what, settings, subjects)?;
    let judged = is_at_scale::<TpccDefaults>(settings);
    over_best_by_clients(&mut report, stores, counts, None, judged);
    Ok(report)
}
