//! The `braid-lab` command: benchmarks Braid, runs crash tests, and checks isolation.

#[path = "../../../crates/braid-cli/src/negative_numbers.rs"]
mod negative_numbers;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use negative_numbers::with_negative_numbers;
use tracing::level_filters::LevelFilter;

/// Benchmarks, crash campaigns, simulations and isolation checks of Braid.
#[derive(Debug, Parser)]
#[command(name = "braid-lab", version, max_term_width = 100)]
struct Arguments {
    /// Print results as JSON, one document on each line.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure the engine on this machine.
    #[cfg(not(braid_simulation))]
    Bench(braid_workloads::bench::Command),
    /// Kill a database under load repeatedly, and check that it loses nothing.
    #[cfg(not(braid_simulation))]
    Torture(braid_workloads::torture::Command),
    /// Check the isolation of many concurrent transactions with an independent checker.
    #[cfg(not(braid_simulation))]
    Histories(braid_workloads::histories::Command),
    /// Crash a simulated disk at its operations, and check the recovered state.
    #[cfg(braid_simulation)]
    Simulate(braid_workloads::simulate::Command),
}

fn main() -> ExitCode {
    let mut command = with_negative_numbers(Arguments::command());
    let arguments = Arguments::from_arg_matches(&command.get_matches_mut())
        .unwrap_or_else(|error| error.format(&mut command).exit());
    // Simulated disks fail often, and the engine logs each failure.
    let level = if cfg!(braid_simulation) { LevelFilter::OFF } else { LevelFilter::WARN };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(level)
        .without_time()
        .with_target(false)
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("braid-lab: {}", message(&error));
            ExitCode::from(3)
        }
    }
}

/// Joins an error and its causes; a cause that the message already ends with is left out.
fn message(error: &anyhow::Error) -> String {
    let message = error.chain().map(ToString::to_string).reduce(|message, cause| {
        if message.ends_with(&cause) { message } else { format!("{message}: {cause}") }
    });
    message.expect("the chain begins with the error")
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.verb {
        #[cfg(not(braid_simulation))]
        Verb::Bench(bench) => Ok(bench.run(arguments.json)?),
        #[cfg(not(braid_simulation))]
        Verb::Torture(torture) => Ok(torture.run(arguments.json)?),
        #[cfg(not(braid_simulation))]
        Verb::Histories(histories) => Ok(histories.run(arguments.json)?),
        #[cfg(braid_simulation)]
        Verb::Simulate(simulate) => Ok(simulate.run(arguments.json)?),
    }
}
