//! The `braid` command: a database on the command line.

/// Prints a message to standard error, and ignores a closed pipe. The macro of the standard library
/// panics.
macro_rules! eprintln {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($message)*);
    }};
}

mod any_table;
mod arguments;
mod codec;
mod column_type;
mod error_message;
mod exit;
mod key_column;
#[cfg(test)]
#[path = "../../braiddb/tests/common/mod.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod limit;
mod negative_numbers;
mod output;
mod query;
mod service;
mod shown;
mod store;
mod trace;
mod verb;

use std::io::IsTerminal;
use std::process::ExitCode;

use arguments::{Arguments, Verb};
use output::Output;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(LevelFilter::WARN)
        .without_time()
        .with_target(false)
        .init();
    let output = Output::new(arguments.json);
    let done = run(&arguments, &output).and_then(|code| {
        arguments.verb.store().map_or(Ok(()), |store| store.trace.write())?;
        Ok(code)
    });
    match done {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("braid: {}", error_message::of(&error));
            exit::failure()
        }
    }
}

fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<ExitCode> {
    match &arguments.verb {
        Verb::Demo(demo) => verb::demo::run(demo, output),
        Verb::Import { store, import } => verb::import::run(import, store, output),
        Verb::Export { store, export } => verb::export::run(&store.open_to_read()?, export, output),
        Verb::Get { store, record } => verb::point::get(&store.open_to_read()?, record, output),
        Verb::Put { store, record, value } => {
            verb::point::put(&store.open_or_create()?, record, value)
        }
        Verb::Delete { store, record } => verb::point::delete(&store.open_existing()?, record),
        Verb::Scan { store, scan } => verb::scan::run(&store.open_to_read()?, scan, output),
        Verb::Tables { store } => verb::overview::tables(&store.open_to_read()?, output),
        Verb::Drop { store, table } => verb::table::drop(&store.open_existing()?, table),
        Verb::Rename { store, table, to } => {
            verb::table::rename(&store.open_existing()?, table, to)
        }
        Verb::Stats { watch, from, store } => {
            verb::overview::stats(store, from.as_deref(), *watch, output)
        }
        #[cfg(feature = "top")]
        Verb::Top { top, store } => verb::top::run(top, store),
        #[cfg(not(feature = "top"))]
        Verb::Top { .. } => anyhow::bail!(
            "this build has no live screen; build it with: cargo install --path crates/braid-cli \
             --features top"
        ),
        Verb::Checkpoint { store } => verb::checkpoint::run(store, output),
        Verb::Backup { directory, store } => verb::backup::run(store, directory, output),
        Verb::Restore { backup, store } => verb::restore::run(backup, store, output),
        Verb::Completions { shell } => verb::generate::completions(*shell),
        Verb::Man { directory } => verb::generate::man(directory, output),
        Verb::Changes { changes, store } => verb::changes::run(changes, store, output),
        Verb::Log { from, limit, store } => {
            verb::log::run(&store.open_to_read()?, *from, *limit, output)
        }
        Verb::Compact { store } => verb::compact::run(store, output),
        Verb::Check { store } => verb::check::run(store, output),
        Verb::Node { arguments } => verb::external::run("node", arguments, output),
        Verb::Cluster { arguments } => verb::external::run("cluster", arguments, output),
        Verb::Shell { store } => verb::shell::run(&store.open_or_create()?, output),
    }
}
