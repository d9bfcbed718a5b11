//! `space`: the disk space and memory of a record. Each store runs in a separate process. It is
//! loaded in key order, compacted or checkpointed, and scanned once.

use std::path::Path;

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::report::{Report, Setting};
use braid_workloads::harness::rounds::Effort;
use braid_workloads::scale::arguments::{Defaults, Scale};
use clap::Args;

use super::{FieldArguments, Terms, bytes_a_record, value_bytes};
use crate::inside::{Job, Task};

#[derive(Clone, Debug)]
pub struct SpaceDefaults;

impl Defaults for SpaceDefaults {
    const RECORDS: u64 = 2_000_000;
    const QUICK_RECORDS: u64 = 1_000;
    const ROUNDS: usize = 1;
}

/// Arguments of `braid-peers space`. Each store is loaded once; --seconds, --transactions and
/// --rounds have no effect.
#[derive(Args, Clone, Debug)]
pub struct SpaceArguments {
    #[command(flatten)]
    scale: Scale<SpaceDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = value_bytes)]
    value_bytes: usize,
}

impl SpaceArguments {
    /// Runs the comparison. `program` is the path of this program, which is started for each store.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly.
    pub fn run(&self, stage: &mut Stage, program: &Path) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        let terms =
            Terms { value_bytes: self.value_bytes, synced: false, budget: None, clients: 1 };
        let what =
            format!("what a record of {} + {} bytes takes", super::KEY_BYTES, self.value_bytes);
        let mut report = Report::new("peers-space", what);
        let records = settings.records;
        report.setting =
            Some(Setting { records, effort: Effort::Transactions(records), rounds: 1 });
        for kind in &field.kinds {
            stage.progress.doing(format!("loading {}", kind.name()));
            let setup = field.setup(*kind, terms, &settings);
            let job = Job { kind: *kind, setup, records, task: Task::Weigh, entrance: None };
            let done = job.send(program)?;
            let name = kind.name();
            bytes_a_record(&mut report, format!("{name}, on disk"), done.disk_bytes, records);
            bytes_a_record(
                &mut report,
                format!("{name}, memory of the process"),
                done.anonymous_bytes,
                records,
            );
            bytes_a_record(
                &mut report,
                format!("{name}, page cache of its files"),
                done.cached_bytes,
                records,
            );
            report.notes.push(format!("{name}: {}", done.settings));
        }
        report.notes.push(field.place.describe());
        Ok(vec![report])
    }
}
