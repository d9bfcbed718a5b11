//! The cost of versions: runs the mix on pages, one transaction after the other, and the same
//! statements within bulk operations, which make no versions. Umbra (§5.2) reports 27.0 and 32.8
//! thousand transactions a second with one client.
//!
//! A bulk operation saves the begin and the commit of each transaction. It has other costs: the
//! before-image of a record is stored on the same page.

use std::time::{Duration, Instant};

use braiddb::{Isolation, RunOptions, Transaction};

use super::terminal::{ROLLED_BACK, Style, Terminal};
use super::{Kept, Shape, TpccBed, account, load_all};
use crate::engine::drive::Procedure;
use crate::error::Error;
use crate::harness::latency::Latencies;
use crate::harness::place::Place;
use crate::harness::report::Report;
use crate::harness::rounds::{Effort, KindSample, Sample, Subject};
use crate::scale::arguments::Settings;
use crate::workload::bars;
use crate::workload::contenders::Contender;
use crate::workload::stage::Stage;

const UNVERSIONED: &str = "without versions";

/// The number of transactions in one bulk operation. It is low, because single reads stay in
/// memory until the operation ends. It is high enough for the unmeasured begin and end of the
/// operation to be cheap.
const AN_OPERATION: u64 = 10_000;

/// The mix within bulk operations, without New-Orders that roll back: bulk operations have no
/// savepoints.
pub(super) struct Unversioned {
    bed: TpccBed,
    terminal: Terminal,
}

/// The number of transactions in one operation by kind, and their duration.
type Ran = (Vec<u64>, Duration);

impl Unversioned {
    fn new(bed: &TpccBed, seed: u64) -> Self {
        let terminal = bed.terminals(1, Style::default())(seed);
        Self { bed: bed.clone(), terminal }
    }

    /// Runs up to this number of transactions, until the deadline.
    fn run_some(&mut self, count: u64, until: Option<Instant>) -> Result<Ran, Error> {
        let mut terminal = self.terminal.clone();
        let body = async move |tx: &Transaction| {
            let begin = Instant::now();
            let mut counts = vec![0; Terminal::KINDS.len()];
            let mut ran = 0;
            while ran < count && until.is_none_or(|until| Instant::now() < until) {
                let request = terminal.draw();
                let kind = Terminal::kind(&request);
                if Terminal::KINDS[kind] == ROLLED_BACK {
                    continue;
                }
                terminal.run(tx, &request).await?;
                counts[kind] += 1;
                ran += 1;
            }
            Ok::<_, braiddb::Error>((terminal, (counts, begin.elapsed())))
        };
        let options = RunOptions::default().isolation(Isolation::Snapshot);
        let run = self.bed.database.try_run_bulk_with(options, self.bed.written_tables(), body);
        let (terminal, ran) = pollster::block_on(run)?.value;
        self.terminal = terminal;
        Ok(ran)
    }
}

impl Subject for Unversioned {
    fn name(&self) -> &str {
        UNVERSIONED
    }

    fn round(&mut self, effort: Effort) -> Result<Sample, Error> {
        let mut counts = vec![0; Terminal::KINDS.len()];
        let (mut all, mut elapsed) = (0, Duration::ZERO);
        loop {
            let (count, left) = match effort {
                Effort::Transactions(most) => (most - all, None),
                Effort::Seconds(most) => {
                    (u64::MAX, Some(Duration::from_secs_f64(most).saturating_sub(elapsed)))
                }
            };
            if count == 0 || left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let until = left.map(|left| Instant::now() + left);
            let (ran, time) = self.run_some(count.min(AN_OPERATION), until)?;
            counts.iter_mut().zip(&ran).for_each(|(count, ran)| *count += ran);
            all += ran.iter().sum::<u64>();
            elapsed += time;
        }
        let kinds = Terminal::KINDS.iter().zip(counts);
        let kinds = kinds.map(|(name, transactions)| KindSample {
            name,
            transactions,
            unsuccessful: 0,
            conflicts: 0,
            latencies: Latencies::one_in(1),
        });
        let kinds = kinds.collect();
        Ok(Sample { kinds, ..Sample::plain(all, elapsed, Latencies::one_in(1)) })
    }
}

/// Runs the mix on one worker with versions and without, each on a separate database.
pub(super) fn measure(
    stage: &mut Stage,
    settings: &Settings,
    warehouses: u16,
    place: &Place,
) -> Result<Report, Error> {
    stage.beds.clear();
    let settings = Settings { workers: 1, ..settings.clone() };
    let shape = Shape { warehouses, kept: Kept::Paged, style: Style::default() };
    let cardinalities = shape.cardinalities(&settings);
    let settings = Settings { records: cardinalities.records(), ..settings };
    let versioned = Contender::MemorySequential;
    let load = || {
        let load = load_all(stage, &settings, (cardinalities, Kept::Paged), &[versioned], place)?;
        Ok::<_, Error>(load.into_iter().next().expect("one was asked for"))
    };
    let tested = [load()?, load()?];
    let style = Style::default();
    let subjects = vec![
        tested[0].subject(versioned, style, settings.seed),
        tested[1].counted(Unversioned::new(&tested[1].bed, settings.seed + 1)),
    ];
    let what = format!(
        "TPC-C with {warehouses} warehouses on pages, one transaction after the other, with versions and, \
         within bulk operations, without"
    );
    let mut report = stage.measure("tpcc", what, &settings, subjects)?;
    report.workload = format!("{}-versions", shape.name());
    let ratio = report.ratio(UNVERSIONED, versioned.name());
    report.bar("without versions over with", bars::TPCC_UNVERSIONED, ratio, !settings.quick);
    account(stage, &mut report, tested.into())?;
    Ok(report)
}
