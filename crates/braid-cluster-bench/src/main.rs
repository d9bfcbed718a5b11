//! The program behind `braid-lab bench cluster`: measures clusters of processes on one machine.
//!
//! The program starts itself once for each node. A node has its own directory, commits with
//! `Durability::Group`, and talks to the others by gRPC on loopback. The clients of a node run in
//! its process, as in a service.

mod catch_up;
mod counting;
mod failover;
mod figures;
mod goals;
mod histogram;
mod load;
mod nodes;
mod order;
mod process;
mod progress;
mod report;
mod usage;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// Measures clusters of processes on this machine, in one run.
///
/// In each round, every subject runs once, in turn; the figures are medians over the rounds. All
/// nodes and clients share the processors and the disk of this machine.
#[derive(Debug, Parser)]
#[command(name = "braid-lab bench cluster", max_term_width = 100)]
pub struct Arguments {
    /// Print the results as JSON, one document on each line.
    #[arg(long)]
    json: bool,

    /// Measure only these figures. The default is all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Figure>,

    /// Create the databases in this directory. The system's temporary directory may be memory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Run each load for this time.
    #[arg(short, long, default_value_t = 5.0)]
    seconds: f64,

    /// Measure each subject this often.
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Transactions that all nodes together run at the same time.
    #[arg(short, long, value_delimiter = ',', default_values_t = [64, 1024, 4096],
          value_parser = clap::value_parser!(u64).range(1..))]
    clients: Vec<u64>,

    /// Records of the table that the clients read and change.
    #[arg(short = 'n', long, default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,

    /// Largest number of nodes of the write figures.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=7))]
    nodes: u64,

    /// Times that the leader is killed.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,

    /// Interval of the heartbeats in milliseconds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    heartbeat: u64,

    /// Megabytes that a node lacks when it returns.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    megabytes: u64,

    /// Also measure the nodes of other builds of this program, in turn with this one.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',')]
    against: Vec<PathBuf>,
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Durable transactions a second, their latency, and their bytes on the disk and the network.
    Writes,
    /// Reads a second by consistency.
    Reads,
    /// Conflicts by the skew of the keys.
    Conflicts,
    /// Time from the death of the leader to a write that another node acknowledges.
    Failover,
    /// Rate at which a node that was down copies what it lacks.
    CatchUp,
}

fn main() -> Result<()> {
    let first: Option<OsString> = std::env::args_os().nth(1);
    if first.is_some_and(|argument| argument == process::CHILD) {
        return process::serve();
    }
    figures::run(&Arguments::parse())
}
