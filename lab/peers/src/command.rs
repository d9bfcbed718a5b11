//! The command: selects the comparison, the scale and the form of the output.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use braid_workloads::Stage;
use braid_workloads::error::Error;
use braid_workloads::harness::machine::Machine;
use braid_workloads::harness::report::{Document, Report};
use braid_workloads::harness::{chart, rows, table};
use clap::{Parser, Subcommand};

use crate::comparison::{commit, larger, memory, opening, space, tpcc};
use crate::inside::Job;

/// Compare Braid with other embedded databases on this machine.
///
/// A comparison runs its subjects in one run of several rounds. In each round every subject runs
/// once, in turn; the results are medians over the rounds. Before, all stores must return the same
/// answers to the same calls. Afterwards, all committed transactions must be present.
#[derive(Parser, Clone, Debug)]
#[command(version)]
pub struct Program {
    #[command(subcommand)]
    comparison: Comparison,

    /// Also draw charts (SVG) and write the figures (CSV) into this directory.
    #[arg(long, value_name = "DIR", global = true)]
    out: Option<PathBuf>,

    /// Write one JSON document instead of tables.
    #[arg(long, global = true)]
    json: bool,

    /// Exit with a failure if a bar is missed.
    #[arg(long, global = true)]
    check: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum Comparison {
    /// Reads, read-modify-writes, both, and scans, of data in memory.
    #[command(after_help = "Example: braid-peers memory --dir DIR --workloads reads,scan -n 1M")]
    Memory(memory::MemoryArguments),
    /// Durable commits of 1 to 64 clients.
    #[command(
        after_help = "Give --dir to choose the disk; the system's temporary directory may be memory."
    )]
    Commit(commit::CommitArguments),
    /// TPC-C in memory, reduced to access by key.
    Tpcc(tpcc::TpccArguments),
    /// Data four times as large as memory.
    #[command(
        after_help = "Needs the right to make control groups (root), for equal memory, and 20 GB of disk; give --dir to choose it."
    )]
    Larger(larger::LargerArguments),
    /// The time to open a store.
    Open(opening::OpenArguments),
    /// Bytes of disk and memory for a record.
    Space(space::SpaceArguments),
    /// An internal job of this program.
    #[command(hide = true)]
    Inside {
        /// As JSON.
        job: String,
    },
}

impl Program {
    /// Runs the comparison and writes its reports to standard output. Progress is written to
    /// standard error if that is a terminal.
    ///
    /// # Errors
    /// Fails if a store fails or answers wrongly, or a file cannot be written; and, under
    /// `--check`, if bars were missed.
    pub fn run(self) -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        if let Comparison::Inside { job } = &self.comparison {
            let job: Job = serde_json::from_str(job).context("the job cannot be understood")?;
            let done = job.run().map_err(anyhow::Error::from_boxed)?;
            serde_json::to_writer(&mut out, &done)?;
            return Ok(out.flush()?);
        }
        let program = std::env::current_exe().context("this program cannot be found")?;
        let document = self.measure(&program)?;
        if self.json {
            serde_json::to_writer(&mut out, &document)?;
            writeln!(out)?;
        } else {
            table::write(&mut out, &document)?;
        }
        out.flush()?;
        match document.missed() {
            missed if self.check && missed > 0 => Err(Error::BarsMissed(missed).into()),
            _ => Ok(()),
        }
    }

    fn measure(&self, program: &Path) -> Result<Document, Error> {
        let stage = &mut Stage::default();
        let mut reports: Vec<Report> = match &self.comparison {
            Comparison::Memory(arguments) => arguments.run(stage)?,
            Comparison::Commit(arguments) => arguments.run(stage)?,
            Comparison::Tpcc(arguments) => arguments.run(stage)?,
            Comparison::Larger(arguments) => arguments.run(stage, program)?,
            Comparison::Open(arguments) => arguments.run(stage)?,
            Comparison::Space(arguments) => arguments.run(stage, program)?,
            Comparison::Inside { .. } => Vec::new(),
        };
        if let Some(directory) = &self.out {
            for report in &mut reports {
                chart::draw(report, directory)?;
                rows::write(report, directory)?;
            }
        }
        Ok(Document { machine: Machine::here(), reports })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_arguments_are_sound() {
        use clap::CommandFactory;
        Program::command().debug_assert();
    }
}
