//! Kills during TPC-C: after each kill its consistency conditions hold, and every acknowledged
//! order and payment is present.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Options, Transaction};
use futures_util::stream::{FuturesUnordered, StreamExt};
use indicatif::ProgressBar;

use super::child::{self, READY};
use super::{Command, Heard, Report, kill, listen, remove};
use crate::engine::drive::Procedure;
use crate::harness::progress::Progress;
use crate::workload::tpcc::{Cardinalities, Kept, Request, Style, Totals, TpccBed};

/// Few warehouses, so that transactions conflict and all tables can be checked after each kill.
const WAREHOUSES: u16 = 2;
/// The seed of the loaded data.
const LOADED_WITH: u64 = 1;
/// The output of a child for each acknowledged order and payment.
const ORDER: &str = "order";
const PAYMENT: &str = "payment";

/// Kills a child repeatedly.
pub(super) fn rounds(command: &Command, parent: &Path) -> Result<Report> {
    let mut random = fastrand::Rng::with_seed(command.seed);
    let mut report = Report::default();
    let progress = ProgressBar::new(u64::from(command.rounds));
    let (mut dir, mut found) = (parent.join("database"), Totals::default());
    for round in 0..command.rounds {
        if round % command.fresh_every == 0 {
            remove(&dir)?;
            dir = parent.join(format!("database-{round}"));
            found = Totals::default();
            fill(command, &dir).context("loading the tables")?;
        }
        let mut child = command.child(&dir, random.u64(..))?.spawn().context("starting a child")?;
        let (opened, reader) = listen(&mut child);
        opened.recv().context("the child ended before its database was open")?;
        let life = Duration::from_millis(random.u64(1..=command.life_ms));
        std::thread::sleep(life);
        kill(&mut child)?;
        let Heard { lines, .. } = reader.join().expect("the reader does not panic");
        let count = |what: &str| lines.iter().filter(|line| *line == what).count() as u64;
        let acknowledged = Totals { orders: count(ORDER), payments: count(PAYMENT) };
        let start = Instant::now();
        let now = verify(command, &dir, found, acknowledged)
            .with_context(|| format!("round {round}, seed {}, life {life:?}", command.seed))?;
        let added = now.orders + now.payments - found.orders - found.payments;
        let all = acknowledged.orders + acknowledged.payments;
        report.acknowledged += all;
        report.unacknowledged_found += added - all;
        report.empty_rounds += u32::from(all == 0);
        report.slowest_open_ms = report.slowest_open_ms.max(start.elapsed().as_millis() as u64);
        found = now;
        progress.inc(1);
    }
    progress.finish_and_clear();
    report.rounds = command.rounds;
    remove(&dir)?;
    ensure!(
        report.empty_rounds < command.rounds,
        "no child acknowledged anything: raise --life-ms"
    );
    Ok(report)
}

fn fill(command: &Command, dir: &Path) -> Result<()> {
    let database = Database::open(dir, child::options(command))?;
    let (size, workers) = (Cardinalities::tiny(WAREHOUSES), command.workers);
    TpccBed::fill(
        database,
        Kept::paged(command.paged),
        size,
        LOADED_WITH,
        workers,
        &Progress::of(0),
    )?
    .close()?;
    Ok(())
}

fn reopen(options: Options, dir: &Path) -> Result<TpccBed> {
    let database = Database::open(dir, options).context("opening the database")?;
    Ok(TpccBed::over(database, Cardinalities::tiny(WAREHOUSES), LOADED_WITH)?)
}

/// Checks the database of a child that began with `before` and acknowledged `acknowledged`.
fn verify(command: &Command, dir: &Path, before: Totals, acknowledged: Totals) -> Result<Totals> {
    // No automatic checkpoint, because it would prevent the check of the files.
    let bed =
        reopen(child::options(command).tune(|tuning| tuning.checkpoint_bytes(u64::MAX)), dir)?;
    let found = bed.check()?;
    let least = Totals {
        orders: before.orders + acknowledged.orders,
        payments: before.payments + acknowledged.payments,
    };
    ensure!(
        found.orders >= least.orders && found.payments >= least.payments,
        "{least:?} were acknowledged, but only {found:?} were recovered"
    );
    let problems = bed.database.check().context("checking")?.problems;
    ensure!(problems.is_empty(), "the check found: {}", problems.join("; "));
    bed.close()?;
    Ok(found)
}

/// The child: runs terminals without end and prints the acknowledged orders and payments.
pub(super) fn run(command: &Command, dir: &Path) -> Result<()> {
    let bed = reopen(child::options(command), dir)?;
    let mut terminals = bed.terminals(command.workers, Style::default());
    println!("{READY}");
    let terminals = (0..command.writers).map(|number| terminals(command.seed ^ number));
    let mut running: FuturesUnordered<_> = terminals
        .map(async |mut terminal| {
            loop {
                let request = terminal.draw();
                let acknowledged = match &request {
                    Request::NewOrder(order) if !order.is_invalid() => Some(ORDER),
                    Request::Payment(_) => Some(PAYMENT),
                    _ => None,
                };
                let runner = terminal.clone();
                // All terminals use few warehouses, and each transaction must finally commit.
                let body = async move |tx: &Transaction| runner.run(tx, &request).await;
                bed.database.transaction().max_attempts(u32::MAX).run(body).await?;
                if let Some(acknowledged) = acknowledged {
                    // One write call for each line, so that a kill leaves whole lines in the pipe.
                    std::io::stdout().write_all(format!("{acknowledged}\n").as_bytes())?;
                }
            }
        })
        .collect();
    while let Some(result) = pollster::block_on(running.next()) {
        let result: Result<()> = result;
        result?;
    }
    Ok(())
}
