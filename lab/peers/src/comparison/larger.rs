//! `larger`: data four times as large as the memory of a store. Each store runs in a separate
//! process and control group, which includes its page cache. Commits do not wait for the disk.

use std::path::PathBuf;

use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::latency::Latencies;
use braid_workloads::harness::number;
use braid_workloads::harness::process::OthersMeter;
use braid_workloads::harness::report::{Report, Setting};
use braid_workloads::harness::rounds::{Effort, Sample, repeat_in_turn};
use braid_workloads::scale::arguments::{Defaults, Scale, Settings};
use clap::Args;

use super::{Field, FieldArguments, Terms, client_count, is_at_scale, over_best, value_bytes};
use crate::call::Work;
use crate::files;
use crate::inside::{Job, Task, no_group};
use crate::store::Kind;

/// The required ratio of Braid over the best peer.
const OVER_BEST: f64 = 3.0;
/// The data size as a multiple of memory.
const TIMES_MEMORY: u64 = 4;
/// The minimum budget that every store can use.
const MIN_BUDGET: u64 = 192 << 20;

#[derive(Clone, Debug)]
pub struct LargerDefaults;

impl Defaults for LargerDefaults {
    const RECORDS: u64 = 2_000_000;
    const QUICK_RECORDS: u64 = 1_000;
    const SECONDS: f64 = 5.0;
    const ROUNDS: usize = 3;
}

/// Arguments of `braid-peers larger`.
#[derive(Args, Clone, Debug)]
pub struct LargerArguments {
    #[command(flatten)]
    scale: Scale<LargerDefaults>,

    #[command(flatten)]
    field: FieldArguments,

    /// Clients of each peer. Braid runs stored procedures on all of its workers.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = client_count)]
    clients: usize,

    /// Percent of transactions that read 10 records; the others modify 10.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "100,50",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: Vec<u8>,

    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "1000", value_parser = value_bytes)]
    value_bytes: usize,
}

/// The name of a store, and the function that runs one round of it.
type Named<'a> = (&'a str, &'a mut dyn FnMut() -> Result<Sample, Error>);

/// One closed store.
struct Subject<'a> {
    arguments: &'a LargerArguments,
    program: PathBuf,
    kind: Kind,
    job: Job,
    work: Work,
    round: u64,
    modifications: u64,
    settings: String,
}

impl Subject<'_> {
    fn round(&mut self, settings: &Settings) -> Result<Sample, Error> {
        self.round += 1;
        let seconds = match settings.effort {
            Effort::Seconds(seconds) => seconds,
            Effort::Transactions(_) => LargerDefaults::SECONDS,
        };
        let directory = &self.job.setup.directory;
        files::forget(directory).map_err(Error::file(directory))?;
        let task = Task::Measure {
            work: self.work,
            clients: self.arguments.clients,
            seed: settings.seed + self.round,
            // Long enough to fill the memory.
            warm_up: seconds,
            seconds,
        };
        let done = Job { task, ..self.job.clone() }.send(&self.program)?;
        self.modifications += done.modifications;
        self.settings = done.settings.clone();
        let mut sample = Sample::plain(done.transactions, done.elapsed(), Latencies::one_in(1));
        sample.conflicts = done.conflicts;
        Ok(sample)
    }
}

impl LargerArguments {
    /// Runs the comparison. `program` is the path of this program, which is started for each round
    /// of each store.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly.
    pub fn run(&self, stage: &mut Stage, program: &std::path::Path) -> Result<Vec<Report>, Error> {
        let settings = self.scale.settings();
        let field = self.field.make(stage)?;
        let data = Terms {
            value_bytes: self.value_bytes,
            synced: false,
            budget: None,
            clients: self.clients,
        }
        .data_bytes(settings.records);
        let budget = (data / TIMES_MEMORY).max(MIN_BUDGET);
        let mut subjects = self.load(&field, stage, &settings, budget, program)?;
        let mut reports = Vec::new();
        for percent in &self.read_percent {
            for subject in &mut subjects {
                subject.work = Work::Points { records: 10, read_percent: *percent };
            }
            reports.push(self.compare(stage, &settings, &mut subjects, *percent)?);
        }
        for subject in subjects {
            stage.progress.doing(format!("checking {}", subject.kind.name()));
            let task = Task::Check { modifications: subject.modifications };
            Job { task, ..subject.job }.send(program)?;
        }
        for report in &mut reports {
            report.notes.push(field.place.describe());
            report.notes.push(match no_group() {
                None => "each process with its page cache is in a control group with that limit".to_owned(),
                Some(why) => format!(
                    "NOT EQUAL: no control group bounds the page cache, which LMDB and others live in ({why})"
                ),
            });
            let data =
                format!("{} of data, {} of memory", number::bytes(data), number::bytes(budget));
            report.notes.push(data);
        }
        Ok(reports)
    }

    fn load(
        &self,
        field: &Field,
        stage: &Stage,
        settings: &Settings,
        budget: u64,
        program: &std::path::Path,
    ) -> Result<Vec<Subject<'_>>, Error> {
        let terms = Terms {
            value_bytes: self.value_bytes,
            synced: false,
            budget: Some(budget),
            clients: self.clients,
        };
        let load = |kind: &Kind| {
            stage.progress.doing(format!("loading {}", kind.name()));
            let setup = field.setup(*kind, terms, settings);
            let job = Job {
                kind: *kind,
                setup,
                records: settings.records,
                task: Task::Load,
                entrance: None,
            };
            job.clone().send(program)?;
            Ok(Subject {
                arguments: self,
                program: program.to_owned(),
                kind: *kind,
                job,
                work: Work::Everything,
                round: 0,
                modifications: 0,
                settings: String::new(),
            })
        };
        field.kinds.iter().map(load).collect()
    }

    fn compare(
        &self,
        stage: &Stage,
        settings: &Settings,
        subjects: &mut [Subject<'_>],
        percent: u8,
    ) -> Result<Report, Error> {
        let what = match percent {
            100 => "transactions of 10 uniform reads, of data four times the memory".to_owned(),
            _ => format!(
                "{percent} % transactions of 10 reads, the others of 10 read-modify-writes, of data four times the memory"
            ),
        };
        let mut report = Report::new(&format!("peers-larger-{percent}"), what);
        let (records, rounds) = (settings.records, settings.rounds);
        report.setting = Some(Setting { records, effort: settings.effort, rounds });
        let names: Vec<&'static str> = subjects.iter().map(|subject| subject.kind.name()).collect();
        let others = OthersMeter::start();
        report.measured = {
            let mut rounds: Vec<_> =
                subjects.iter_mut().map(|subject| move || subject.round(settings)).collect();
            let mut named: Vec<Named<'_>> = Vec::new();
            for (name, round) in names.iter().zip(&mut rounds) {
                named.push((*name, round));
            }
            repeat_in_turn(&mut named, settings.rounds, &stage.progress)?
        };
        // The stores' own processes count as others too, so a note explains the figure.
        if let Some(percent) = others.and_then(|others| others.percent()) {
            report.fact(
                "processor time, of both the stores and others",
                percent,
                format!("{percent:.0} %"),
            );
        }
        let peers =
            names.iter().filter(|name| **name != Kind::Braid.name()).map(|name| (*name).to_owned());
        let judged = is_at_scale::<LargerDefaults>(settings);
        over_best(
            &mut report,
            Kind::Braid.name(),
            peers.collect::<Vec<_>>(),
            Some(OVER_BEST),
            judged,
        );
        let notes =
            subjects.iter().map(|subject| format!("{}: {}", subject.kind.name(), subject.settings));
        report.notes.extend(notes);
        report.notes.push(format!(
            "{} threads call each peer; Braid's stored procedures are called by its workers; values of {} bytes",
            self.clients, self.value_bytes
        ));
        Ok(report)
    }
}
