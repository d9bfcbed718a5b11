//! The `braid` command: a database on the command line.

mod arguments;
mod exit;
mod output;
mod store;
mod verb;

use std::process::ExitCode;

use arguments::{Arguments, Verb};
use clap::Parser;
use output::Output;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .without_time()
        .with_target(false)
        .init();
    let output = Output::new(arguments.json);
    match run(arguments, &output) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("braid: {error:#}");
            exit::failure()
        }
    }
}

fn run(arguments: Arguments, output: &Output) -> anyhow::Result<ExitCode> {
    let store = &arguments.store;
    match arguments.verb {
        Verb::Import(import) => verb::import::run(&import, store, output),
        Verb::Get { table, key } => verb::point::get(&store.open_existing()?, &table, &key, output),
        Verb::Put { table, key, value } => {
            verb::point::put(&store.open_or_create()?, &table, &key, &value)
        }
        Verb::Delete { table, key } => verb::point::delete(&store.open_existing()?, &table, &key),
        Verb::Scan(scan) => verb::scan::run(&store.open_existing()?, &scan, output),
        Verb::Tables => verb::overview::tables(&store.open_existing()?, output),
        Verb::Stats => verb::overview::stats(&store.open_existing()?, output),
        Verb::Shell => verb::shell::run(&store.open_or_create()?, output),
        Verb::Bench(bench) => {
            bench.run(arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Torture(torture) => {
            torture.run(arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
