//! `memory`: reads, read-modify-writes, both, and scans, of data that fits into memory. Commits do
//! not wait for the disk.

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::report::Report;
use braid_workloads::scale::arguments::{Defaults, Scale, Settings};
use clap::{Args, ValueEnum};

use super::{
    FieldArguments, Terms, by_clients, check_and_close, client_count, client_counts, is_at_scale,
    over_best_by_clients, value_bytes, with_records,
};
use crate::agree::complete;
use crate::call::Work;
use crate::drive::{Load, Loaded};

/// The required ratio of Braid's reads over those of the best peer.
const READS_OVER_BEST: f64 = 5.0;

#[derive(Clone, Debug)]
pub struct MemoryDefaults;

impl Defaults for MemoryDefaults {
    const RECORDS: u64 = 2_000_000;
    const QUICK_RECORDS: u64 = 2_000;
    const SECONDS: f64 = 2.0;
    const ROUNDS: usize = 5;
}

/// A workload in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// 10 reads a transaction.
    Reads,
    /// 10 read-modify-writes a transaction.
    Rmw,
    /// 1 read-modify-write a transaction.
    Rmw1,
    /// 95 % transactions of 10 reads, 5 % of 10 read-modify-writes.
    Mixed95,
    /// Half of each.
    Mixed50,
    /// 1 read a transaction, skewed: YCSB C.
    YcsbC,
    /// 95 % reads, 5 % read-modify-writes of 1 record, skewed: YCSB B with read-modify-writes as
    /// updates.
    YcsbB,
    /// Half reads, half read-modify-writes of 1 record, skewed: YCSB F.
    YcsbF,
    /// Scans of 100 records.
    Scan,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Reads => "peers-reads",
            Self::Rmw => "peers-rmw",
            Self::Rmw1 => "peers-rmw-1",
            Self::Mixed95 => "peers-mixed-95",
            Self::Mixed50 => "peers-mixed-50",
            Self::YcsbC => "peers-ycsb-c",
            Self::YcsbB => "peers-ycsb-b",
            Self::YcsbF => "peers-ycsb-f",
            Self::Scan => "peers-scan",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Reads => "transactions of 10 uniform reads",
            Self::Rmw => "transactions of 10 read-modify-writes, not synced",
            Self::Rmw1 => "transactions of 1 read-modify-write, not synced",
            Self::Mixed95 => {
                "95 % transactions of 10 reads, 5 % of 10 read-modify-writes, not synced"
            }
            Self::Mixed50 => {
                "half transactions of 10 reads, half of 10 read-modify-writes, not synced"
            }
            Self::YcsbC => "YCSB C: transactions of 1 read, theta 0.99",
            Self::YcsbB => {
                "YCSB B: 95 % reads, 5 % read-modify-writes of 1 record, theta 0.99, not synced"
            }
            Self::YcsbF => {
                "YCSB F: half reads, half read-modify-writes of 1 record, theta 0.99, not synced"
            }
            Self::Scan => "scans of 100 records",
        }
    }

    fn work(self) -> Work {
        match self {
            Self::Reads => Work::Points { records: 10, read_percent: 100 },
            Self::Rmw => Work::Points { records: 10, read_percent: 0 },
            Self::Rmw1 => Work::Points { records: 1, read_percent: 0 },
            Self::Mixed95 => Work::Points { records: 10, read_percent: 95 },
            Self::Mixed50 => Work::Points { records: 10, read_percent: 50 },
            Self::YcsbC => Work::Skewed { read_percent: 100 },
            Self::YcsbB => Work::Skewed { read_percent: 95 },
            Self::YcsbF => Work::Skewed { read_percent: 50 },
            Self::Scan => Work::Scans { records: 100 },
        }
    }
}

/// Arguments of `braid-peers memory`.
#[derive(Args, Clone, Debug)]
pub struct MemoryArguments {
    #[command(flatten)]
    scale: Scale<MemoryDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Workloads to run [default: all, on the same stores].
    #[arg(long, value_name = "WORKLOAD", value_enum, value_delimiter = ',')]
    workloads: Vec<Workload>,

    /// Clients of each peer, and workers of Braid up to its maximum [default: 1 and one a core].
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = client_count)]
    clients: Vec<usize>,

    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = value_bytes)]
    value_bytes: usize,
}

impl MemoryArguments {
    /// Runs the comparison.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly.
    pub fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        let clients = client_counts(&self.clients, &settings);
        let most = clients.iter().copied().max().unwrap_or(1);
        let terms =
            Terms { value_bytes: self.value_bytes, synced: false, budget: None, clients: most };
        let stores = field.load(stage, terms, &settings, with_records)?;
        let workloads: &[Workload] = match self.workloads.is_empty() {
            true => Workload::value_variants(),
            false => &self.workloads,
        };
        let compare = |workload: &Workload| {
            let mut report = compare(stage, &settings, &stores, *workload, &clients)?;
            report.notes.push(format!("values of {} bytes", self.value_bytes));
            field.describe(&mut report, &stores);
            Ok(report)
        };
        let reports: Result<Vec<Report>, Error> = workloads.iter().map(compare).collect();
        let reports = reports?;
        check_and_close(stage, &stores, complete)?;
        Ok(reports)
    }
}

fn compare(
    stage: &mut Stage,
    settings: &Settings,
    stores: &[Loaded],
    workload: Workload,
    counts: &[usize],
) -> Result<Report, Error> {
    let load = |clients, of: usize| Load {
        work: workload.work(),
        clients,
        seed: settings.seed + of as u64,
        pin: settings.pin,
        timed_one_in: 16,
    };
    let subjects = by_clients(stores, counts, settings, load);
    let mut report = stage.measure(workload.name(), workload.what(), settings, subjects)?;
    let judged = is_at_scale::<MemoryDefaults>(settings);
    let bar = (workload == Workload::Reads).then_some(READS_OVER_BEST);
    over_best_by_clients(&mut report, stores, counts, bar, judged);
    Ok(report)
}
