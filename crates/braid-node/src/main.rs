//! The program behind `braid node` and `braid cluster`: a node of a cluster without a program of
//! the user, and its administration.

mod arguments;
mod client;
mod metrics;
mod node;
mod security;
mod status_table;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use arguments::{Arguments, Verb};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The requested key does not exist.
const NOT_FOUND: u8 = 1;
/// The command failed, and printed the error to standard error. (The argument parser exits with 2.)
const FAILURE: u8 = 3;

fn main() -> ExitCode {
    let arguments = <Arguments as clap::Parser>::parse();
    let raft = if arguments.verbose { LevelFilter::WARN } else { LevelFilter::OFF };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(LevelFilter::WARN)
        .with_target(false)
        .finish()
        // Raft reports every message that a stopped node does not answer.
        .with(Targets::new().with_default(LevelFilter::WARN).with_target("openraft", raft))
        .init();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            // Nothing can be done if standard error is closed.
            _ = writeln!(std::io::stderr(), "braid: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    match &arguments.verb {
        Verb::Node(options) => runtime.block_on(node::run(options)),
        Verb::Cluster { server, action } => {
            runtime.block_on(client::run(server, action, arguments.json))
        }
    }
}
