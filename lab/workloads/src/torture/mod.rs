//! `braid torture`: a child process under load is killed without warning, over and over, and what
//! it had acknowledged is held against what the database recovers.
//!
//! The parent reads acknowledgements from the child's pipe, so it knows, for each of the child's
//! writers, which transactions had returned before the kill. After each kill it opens the database
//! itself and checks: everything acknowledged is there, nothing is there by halves, and no
//! writer's transactions are out of order. The next child goes on from there.

mod child;
mod disk;
mod flips;
mod full;
mod ledger;
mod tpcc;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Durability, Options};
use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;

use disk::{Faults, Faulty, text};
use ledger::Ledger;

use crate::scale::whole::within;

pub use disk::Disk;

/// What takes months is a mistake.
const MAX_TIMES: u64 = 10_000_000;

/// Kill a database under load over and over, and check that it loses nothing.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// How often to kill, or to bring a fault about.
    #[arg(long, default_value_t = 200, value_parser = within::<u32>(1..=MAX_TIMES))]
    rounds: u32,
    /// Concurrent writers in the child, up to 1000.
    #[arg(long, default_value_t = 16, value_parser = within::<u64>(1..=1000))]
    writers: u64,
    /// Worker threads of the database in the child, up to 256.
    #[arg(long, default_value_t = 2, value_parser = within::<usize>(1..=256))]
    workers: usize,
    /// Longest life of a child, in milliseconds.
    #[arg(long, default_value_t = 400, value_parser = within::<u64>(1..=3_600_000))]
    life_ms: u64,
    /// Kills after which the next child starts with an empty directory.
    #[arg(long, default_value_t = 20, value_parser = within::<u32>(1..=MAX_TIMES))]
    fresh_every: u32,
    /// Seed of the children's lives and loads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the kills are to hit; default: whatever is going on.
    #[arg(long, value_enum)]
    during: Option<During>,
    /// Instead of kills, faults of a small disk that is made for it; needs root and ext4.
    #[arg(long, value_enum, conflicts_with_all = ["during", "fresh_every"])]
    disk: Option<Disk>,
    /// Instead of kills, damage so many bits in files of a closed database, one at a time.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["during", "fresh_every", "disk"],
          value_parser = within::<u64>(1..=MAX_TIMES))]
    flips: Option<u64>,
    /// Damage only files whose names end so: `zone` for pages, `seg` for the log.
    #[arg(long, value_name = "ENDING", requires = "flips")]
    kind: Option<String>,
    /// Let the children run TPC-C on two small warehouses, and check its consistency conditions.
    #[arg(long, conflicts_with_all = ["during", "disk", "flips"])]
    tpcc: bool,
    /// Keep all records on pages.
    #[arg(long, conflicts_with_all = ["disk", "flips"])]
    paged: bool,
    /// Where the database is kept; default: a temporary directory, removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run as the child; for the parent's use.
    #[arg(long, hide = true)]
    child: bool,
}

/// What a child is kept busy with, so that kills fall into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum During {
    /// Commits alone: no checkpoint is ever written.
    Load,
    /// One checkpoint after another.
    Checkpoint,
    /// One compaction after another.
    Compaction,
    /// Opening what an earlier kill left.
    Recovery,
}

/// Longest life of a child that is to be killed while it opens the database.
const OPENING_MS: u64 = 40;

/// What a run of rounds found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Kills.
    pub rounds: u32,
    /// Transactions acknowledged before a kill, and found after it.
    pub acknowledged: u64,
    /// Transactions found that had not been acknowledged: committed, their answer cut off.
    pub unacknowledged_found: u64,
    /// Kills that hit the child before its first acknowledgement.
    pub empty_rounds: u32,
    /// Kills while a database was being opened.
    pub killed_in_recovery: u32,
    /// Longest recovery, in milliseconds.
    pub slowest_open_ms: u64,
}

impl Command {
    /// Runs the rounds, or one child.
    ///
    /// # Errors
    /// The first thing lost, halved or out of order, with the round that showed it; or a failure to
    /// run at all.
    pub fn run(&self, json: bool) -> Result<()> {
        if self.child {
            let dir = self.dir.as_deref().context("the parent names the directory")?;
            return if self.tpcc { tpcc::run(self, dir) } else { child::run(self, dir) };
        }
        if let Some(fault) = self.disk {
            return self.faults(fault, json);
        }
        if let Some(count) = self.flips {
            return self.damage(count, json);
        }
        let report = self.rounds()?;
        if json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
        } else {
            writeln!(
                std::io::stdout(),
                "{} kills, {} of them in recovery: {} acknowledged transactions, none lost; \
                 {} more found whole; slowest recovery {} ms",
                report.rounds,
                report.killed_in_recovery,
                report.acknowledged,
                report.unacknowledged_found,
                report.slowest_open_ms
            )?;
        }
        Ok(())
    }

    /// Runs the rounds.
    ///
    /// # Errors
    /// As [`Command::run`].
    pub fn rounds(&self) -> Result<Report> {
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let parent = self.dir.as_deref().unwrap_or(temporary.path());
        if self.tpcc {
            return tpcc::rounds(self, parent);
        }
        let mut dir = parent.join("database");
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut ledger = Ledger::new(self.writers, self.paged);
        let mut report = Report::default();
        let progress = ProgressBar::new(u64::from(self.rounds));
        for round in 0..self.rounds {
            if round > 0 && round % self.fresh_every == 0 {
                report.acknowledged += ledger.acknowledged();
                ledger = Ledger::new(self.writers, self.paged);
                remove(&dir)?;
                dir = parent.join(format!("database-{round}"));
            }
            let life = Duration::from_millis(random.u64(1..=self.life_ms));
            // Most lives count from the child's first words; the others end in its recovery too.
            let recovery = self.during == Some(During::Recovery);
            let from_ready = recovery || random.u32(0..8) > 0;
            let before = ledger.acknowledged();
            let opened = self
                .one_child(&dir, life, from_ready, random.u64(..), &mut ledger)
                .with_context(|| format!("round {round}"))?;
            report.killed_in_recovery += u32::from(!opened);
            if recovery {
                let life = Duration::from_micros(random.u64(0..OPENING_MS * 1000));
                let opened = self
                    .one_child(&dir, life, false, random.u64(..), &mut ledger)
                    .with_context(|| format!("round {round}, in recovery"))?;
                report.killed_in_recovery += u32::from(!opened);
            }
            if ledger.acknowledged() == before {
                report.empty_rounds += 1;
            }
            let start = Instant::now();
            let found = verify(&dir, &mut ledger)
                .with_context(|| format!("round {round}, seed {}, life {life:?}", self.seed))?;
            report.unacknowledged_found += found;
            let took = start.elapsed().as_millis() as u64;
            report.slowest_open_ms = report.slowest_open_ms.max(took);
            progress.inc(1);
        }
        progress.finish_and_clear();
        report.rounds = self.rounds;
        report.acknowledged += ledger.acknowledged();
        remove(&dir)?;
        ensure!(
            report.empty_rounds < self.rounds,
            "no child acknowledged anything: raise --life-ms"
        );
        Ok(report)
    }

    /// A directory of its own, removed afterwards.
    fn directory(&self) -> Result<tempfile::TempDir> {
        let made = match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        };
        made.context("making a temporary directory")
    }

    /// Damages bits, and says what came of it.
    fn damage(&self, count: u64, json: bool) -> Result<()> {
        let flips = flips::run(count, self.seed, self.kind.as_deref(), self.directory()?.path())?;
        let mut out = std::io::stdout();
        if json {
            writeln!(out, "{}", serde_json::to_string(&flips)?)?;
            return Ok(());
        }
        let kinds: Vec<_> = flips.flips.iter().map(|(kind, n)| format!("{n} in .{kind}")).collect();
        writeln!(
            out,
            "{count} bits damaged ({}): {} databases refused to open, {} said so when they were \
             read or checked, {} held what they held; no wrong contents, no panic",
            kinds.join(", "),
            flips.refused,
            flips.reported,
            flips.harmless
        )?;
        Ok(())
    }

    /// Runs rounds of a fault, and says what came of them.
    fn faults(&self, fault: Disk, json: bool) -> Result<()> {
        let mut faults = Faults::default();
        let progress = ProgressBar::new(u64::from(self.rounds));
        let mut random = fastrand::Rng::with_seed(self.seed);
        for round in 0..self.rounds {
            let life = Duration::from_millis(random.u64(1..=self.life_ms));
            self.fault(fault, life, random.u64(..), &mut faults)
                .with_context(|| format!("round {round}, seed {}, life {life:?}", self.seed))?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        faults.rounds = self.rounds;
        let mut out = std::io::stdout();
        if json {
            writeln!(out, "{}", serde_json::to_string(&faults)?)?;
            return Ok(());
        }
        let Faults { rounds, acknowledged, unacknowledged_found, .. } = faults;
        writeln!(
            out,
            "{rounds} faults: {acknowledged} acknowledged transactions, none lost; \
             {unacknowledged_found} more found whole"
        )?;
        if fault == Disk::Full {
            writeln!(
                out,
                "each was opened while the disk was full, and emptied and filled again: {} MiB in \
                 all the last times, {} commits refused on the way",
                faults.refilled_bytes >> 20,
                faults.refused
            )?;
        }
        writeln!(out, "what the database said:")?;
        faults.messages.iter().try_for_each(|message| writeln!(out, "  {message}"))?;
        Ok(())
    }

    /// One child that meets a fault after `life`, and what can be read once the disk is mended.
    fn fault(&self, fault: Disk, life: Duration, seed: u64, faults: &mut Faults) -> Result<()> {
        let temporary = self.directory()?;
        let faulty = Faulty::make(fault, temporary.path())?;
        let dir = faulty.database();
        let mut ledger = Ledger::new(self.writers, false);
        let mut child = self.child(&dir, seed)?;
        let child = child
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .context("starting a child")?;
        let ended = disk::outlive(child, fault, || {
            std::thread::sleep(life);
            faulty.inject()
        })?;
        ended.lines.iter().try_for_each(|line| ledger.acknowledge(line))?;
        faults.note(&ended.error.replace(text(temporary.path())?, "DIR"));
        if fault == Disk::Full {
            faults.unacknowledged_found += verify(&dir, &mut ledger).context("on a full disk")?;
            let full::FullDiskOutcome { refilled_bytes, refused } = full::run(&dir)?;
            faults.refilled_bytes += refilled_bytes;
            faults.refused += refused;
            verify(&dir, &mut ledger).context("after the disk was full")?;
        }
        faulty.mend()?;
        faults.unacknowledged_found += verify(&dir, &mut ledger)?;
        faults.acknowledged += ledger.acknowledged();
        Ok(())
    }

    /// A child, yet to be started.
    fn child(&self, dir: &Path, seed: u64) -> Result<Process> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut process = Process::new(program);
        process.arg("torture");
        if let Some(during) = self.during.and_then(|during| during.to_possible_value()) {
            process.args(["--during", during.get_name()]);
        }
        if let Some(disk) = self.disk.and_then(|disk| disk.to_possible_value()) {
            process.args(["--disk", disk.get_name()]);
        }
        process.args(self.tpcc.then_some("--tpcc"));
        process.args(self.paged.then_some("--paged"));
        process
            .args(["--child", "--dir"])
            .arg(dir)
            .args(["--workers", &self.workers.to_string()])
            .args(["--writers", &self.writers.to_string()])
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(process)
    }

    /// Starts a child, kills it after `life`, and takes down what it acknowledged; whether its
    /// database was open by then.
    fn one_child(
        &self,
        dir: &Path,
        life: Duration,
        from_ready: bool,
        seed: u64,
        ledger: &mut Ledger,
    ) -> Result<bool> {
        let mut child = self.child(dir, seed)?.spawn().context("starting a child")?;
        let (opened, reader) = listen(&mut child);
        if from_ready {
            opened.recv().context("the child ended before its database was open")?;
        }
        std::thread::sleep(life);
        kill(&mut child)?;
        let Heard { opened, lines } = reader.join().expect("the reader does not panic");
        lines.iter().try_for_each(|line| ledger.acknowledge(line))?;
        Ok(opened)
    }
}

/// What a child said on standard output.
struct Heard {
    /// It said that its database is open.
    opened: bool,
    /// What it said afterwards.
    lines: Vec<String>,
}

/// Reads what a child says, until it ends; the receiver is told when its database is open.
fn listen(child: &mut Child) -> (Receiver<()>, JoinHandle<Heard>) {
    let pipe = child.stdout.take().expect("every child's output is piped");
    let (ready, opened) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe).lines().map_while(std::io::Result::ok);
        let opened = lines.next().is_some();
        if opened {
            // The parent may have stopped waiting for it.
            _ = ready.send(());
        }
        Heard { opened, lines: lines.collect() }
    });
    (opened, reader)
}

/// Removes a database that has been checked.
fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}

fn kill(child: &mut Child) -> Result<()> {
    if let Some(status) = child.try_wait().context("looking after the child")? {
        anyhow::bail!("the child ended by itself: {status}");
    }
    child.kill().context("killing the child")?;
    child.wait().context("waiting for the child's end")?;
    Ok(())
}

/// Opens what the child left, checks it, and returns how many transactions it found beyond those
/// acknowledged.
fn verify(dir: &Path, ledger: &mut Ledger) -> Result<u64> {
    if !dir.exists() && ledger.acknowledged() == 0 {
        return Ok(0);
    }
    let options = Options::default().workers(2).durability(Durability::Group);
    let db = Database::open(dir, options).context("recovering")?;
    let found = ledger.check(&db)?;
    let problems = db.check().context("checking")?.problems;
    ensure!(problems.is_empty(), "the check found: {}", problems.join("; "));
    db.close().context("closing")?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        _command: super::Command,
    }

    #[test]
    fn numbers_are_refused_that_no_run_can_have() {
        for (argument, most) in [
            ("--rounds", 10_000_000),
            ("--writers", 1000),
            ("--workers", 256),
            ("--life-ms", 3_600_000),
            ("--fresh-every", 10_000_000),
            ("--flips", 10_000_000),
        ] {
            let parse = |number: u64| {
                Program::try_parse_from(["torture", argument, &number.to_string()])
                    .map_err(|refused| refused.to_string())
            };
            for number in [1, most] {
                assert!(parse(number).is_ok(), "{argument} {number}");
            }
            for number in [0, most + 1, u64::MAX] {
                let refused = parse(number).unwrap_err();
                let said = format!("give a whole number from 1 to {most}");
                assert!(refused.contains(&said), "{refused}");
            }
        }
    }
}
