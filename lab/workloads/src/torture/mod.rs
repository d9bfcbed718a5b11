//! `braid-lab torture`: repeatedly kills a child process under load without warning and compares
//! the recovered database with the transactions that the child acknowledged.
//!
//! The parent reads acknowledgements from the child's pipe. It therefore knows, for each writer of
//! the child, which transactions had returned before the kill. After each kill it opens the
//! database and checks that every acknowledged transaction is present, that no transaction is
//! partial, and that the transactions of each writer are in order. The next child continues with
//! this database.

mod child;
mod cycles;
mod disk;
mod flips;
mod full;
mod ledger;
mod overwrites;
mod soak;
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

use crate::bounds::{DiskUse, Load};
use crate::scale::whole::within;

pub use disk::Disk;

/// The largest segments of a child's log.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A limit for arguments: larger values would take months.
const MAX_TIMES: u64 = 10_000_000;

/// Kill a database under load repeatedly, and check that it loses nothing.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Number of kills or of injected faults.
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
    /// Activity that the kills must hit; default: any activity.
    #[arg(long, value_enum)]
    during: Option<During>,
    /// Inject faults of a small disk instead of kills; needs root and ext4.
    #[arg(long, value_enum, conflicts_with_all = ["during", "fresh_every"])]
    disk: Option<Disk>,
    /// Damage this many bits in files of a closed database instead of kills, one at a time.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["during", "fresh_every", "disk"],
          value_parser = within::<u64>(1..=MAX_TIMES))]
    flips: Option<u64>,
    /// Damage only files with this name ending: `zone` for pages, `seg` for the log.
    #[arg(long, value_name = "ENDING", requires = "flips")]
    kind: Option<String>,
    /// Run TPC-C on two small warehouses in the children, and check its consistency conditions.
    #[arg(long, conflicts_with_all = ["during", "disk", "flips"])]
    tpcc: bool,
    /// Keep all records on pages.
    #[arg(long, conflicts_with_all = ["disk", "flips"])]
    paged: bool,
    /// Run a mix of loads for this many seconds instead of kills, and report each quantity that
    /// grows, over time.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["during", "disk", "flips", "tpcc", "paged"],
          value_parser = within::<u64>(1..=MAX_TIMES))]
    soak: Option<u64>,
    /// Overwrite records for this many seconds with each of several loads instead of kills, and
    /// report the disk space of the database.
    #[arg(long, value_name = "SECONDS", group = "named_loads",
          conflicts_with_all = ["during", "disk", "flips", "tpcc", "paged", "soak"],
          value_parser = within::<u64>(1..=MAX_TIMES))]
    overwrites: Option<u64>,
    /// Run only the overwrites or cycles whose names contain this text, such as `paged, relaxed` or
    /// `disk of 96`.
    #[arg(long, value_name = "TEXT", requires = "named_loads", default_value = "")]
    load: String,
    /// Fill disks of 96 to 512 MiB, kill the process, and empty its database, this number of times
    /// each, with both kinds of tables; needs root and ext4.
    #[arg(long, value_name = "COUNT", group = "named_loads",
          conflicts_with_all = ["during", "disk", "flips", "tpcc", "soak", "overwrites"],
          value_parser = within::<u64>(1..=MAX_TIMES))]
    cycles: Option<u64>,
    /// Draw the quantities of a soak as charts (SVG) into this directory.
    #[arg(long, value_name = "DIRECTORY", requires = "soak")]
    out: Option<PathBuf>,
    /// Directory of the database; default: a temporary directory, removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run as the child; for internal use.
    #[arg(long, hide = true)]
    child: bool,
}

/// The activity of a child that kills must hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum During {
    /// Commits only: no checkpoint is ever written.
    Load,
    /// One checkpoint after another.
    Checkpoint,
    /// One compaction after another.
    Compaction,
    /// Opening the database that an earlier kill left.
    Recovery,
}

/// The maximum life of a child that should be killed while it opens the database.
const OPENING_MS: u64 = 40;

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Kills.
    pub rounds: u32,
    /// Transactions acknowledged before a kill and found after it.
    pub acknowledged: u64,
    /// Transactions found although they were not acknowledged: the kill cut off the answer.
    pub unacknowledged_found: u64,
    /// Kills before the child's first acknowledgement.
    pub empty_rounds: u32,
    /// Kills while the child opened its database.
    pub killed_in_recovery: u32,
    /// The longest recovery, in milliseconds.
    pub slowest_open_ms: u64,
}

impl Command {
    /// Runs the rounds, or one child.
    ///
    /// # Errors
    /// Returns the first lost, partial or misordered transaction, with its round, or the failure to
    /// run.
    pub fn run(&self, json: bool) -> Result<()> {
        if self.child {
            let dir = self.dir.as_deref().context("the parent names the directory")?;
            return match self.cycles {
                Some(_) => cycles::child(self, dir),
                None if self.tpcc => tpcc::run(self, dir),
                None => child::run(self, dir),
            };
        }
        if let Some(count) = self.cycles {
            return cycles::run(self, count, json);
        }
        if let Some(seconds) = self.soak {
            return soak::run(self, seconds, json);
        }
        if let Some(seconds) = self.overwrites {
            return overwrites::run(self, seconds, json);
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
    /// The same errors as [`Command::run`].
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
            // Most lives begin with the child's first output line. The others begin with its start,
            // so that they can end during recovery.
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
            let found = verify(&dir, &mut ledger, self.during)
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

    /// Creates a new directory, which is removed afterwards.
    fn directory(&self) -> Result<tempfile::TempDir> {
        let made = match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        };
        made.context("making a temporary directory")
    }

    /// Damages bits and reports the results.
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

    /// Runs rounds of a fault and reports the results.
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
        writeln!(out, "messages of the database:")?;
        faults.messages.iter().try_for_each(|message| writeln!(out, "  {message}"))?;
        Ok(())
    }

    /// Runs one child that meets a fault after `life`. Checks the database after the disk is
    /// repaired.
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
            faults.unacknowledged_found +=
                verify(&dir, &mut ledger, None).context("on a full disk")?;
            let full::FullDiskOutcome { refilled_bytes, refused } = full::run(&dir)?;
            faults.refilled_bytes += refilled_bytes;
            faults.refused += refused;
            verify(&dir, &mut ledger, None).context("after the disk was full")?;
        }
        faulty.mend()?;
        faults.unacknowledged_found += verify(&dir, &mut ledger, None)?;
        faults.acknowledged += ledger.acknowledged();
        Ok(())
    }

    /// Returns the command that starts a child.
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

    /// Starts a child, kills it after `life`, and records its acknowledgements. Returns true if its
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

/// The standard output of a child.
struct Heard {
    /// True if the child reported that its database is open.
    opened: bool,
    /// The lines after that.
    lines: Vec<String>,
}

/// Reads the child's output until the child ends. Notifies the receiver when its database is open.
fn listen(child: &mut Child) -> (Receiver<()>, JoinHandle<Heard>) {
    let pipe = child.stdout.take().expect("every child's output is piped");
    let (ready, opened) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe).lines().map_while(std::io::Result::ok);
        let opened = lines.next().is_some();
        if opened {
            // The parent may no longer wait for it.
            _ = ready.send(());
        }
        Heard { opened, lines: lines.collect() }
    });
    (opened, reader)
}

/// Removes a database after its check.
fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}

fn kill(child: &mut Child) -> Result<()> {
    if let Some(status) = child.try_wait().context("looking after the child")? {
        anyhow::bail!("the child ended without a kill: {status}");
    }
    child.kill().context("killing the child")?;
    child.wait().context("waiting for the child's end")?;
    Ok(())
}

/// Opens the database that the child left and checks it. Returns the number of transactions found
/// although they were not acknowledged. Checks the bounds of a database at rest.
fn verify(dir: &Path, ledger: &mut Ledger, during: Option<During>) -> Result<u64> {
    if !dir.exists() && ledger.acknowledged() == 0 {
        return Ok(0);
    }
    let options = Options::default().workers(2).durability(Durability::Group);
    let db = Database::open(dir, options).context("recovering")?;
    let found = ledger.check(&db)?;
    let problems = db.check().context("checking")?.problems;
    ensure!(problems.is_empty(), "the check found: {}", problems.join("; "));
    // Without checkpoints, nothing of the log is freed.
    if during != Some(During::Load) {
        let live_bytes = ledger.live_bytes();
        let load = Load { live_bytes, segment_bytes: SEGMENT_BYTES, clients: 0 };
        let disk = DiskUse::of_directory(dir).context("reading the directory")?;
        load.check(&db.stats(), &disk).context("a bound is exceeded")?;
    }
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
    fn impossible_numbers_are_rejected() {
        for (argument, most) in [
            ("--rounds", 10_000_000),
            ("--writers", 1000),
            ("--workers", 256),
            ("--life-ms", 3_600_000),
            ("--fresh-every", 10_000_000),
            ("--flips", 10_000_000),
            ("--soak", 10_000_000),
            ("--overwrites", 10_000_000),
            ("--cycles", 10_000_000),
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
