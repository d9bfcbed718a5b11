//! The `braid` command: a database on the command line.

mod arguments;
mod codec;
mod exit;
#[cfg(test)]
#[path = "../../braiddb/tests/common/mod.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod limit;
mod negative_numbers;
mod output;
mod store;
mod trace;
mod verb;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use arguments::{Arguments, Verb};
use braiddb::LogError;
use output::Output;
use tracing_subscriber::filter::LevelFilter;
use verb::path_error;

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
            eprintln!("braid: {}", message(&error));
            exit::failure()
        }
    }
}

/// The message of an error. Adds advice about the command line, which the engine does not know.
fn message(error: &anyhow::Error) -> String {
    let causes = error.chain().map(|cause| match cause.downcast_ref() {
        Some(braiddb::Error::TableNotFound(table)) => {
            format!("there is no table {table:?}; braid tables lists the tables")
        }
        // The engine names its own options.
        Some(braiddb::Error::Options(said)) if said.contains("memory_budget") => {
            format!("{said}; --memory sets the budget here, in MiB")
        }
        Some(braiddb::Error::Directory(log)) => match &**log {
            LogError::NotADatabase { path, reason } if is_free(path) => {
                let advice = "name its directory with --db or BRAID_DB, or create a database with \
                              braid import or braid put";
                not_a_database(path, reason, advice)
            }
            LogError::NotADatabase { path, reason }
                if reason.ends_with(path_error::IDENTITY_FILE) =>
            {
                let advice = "name the directory of the database with --db or BRAID_DB";
                not_a_database(path, reason, advice)
            }
            log => log.to_string(),
        },
        _ => cause.to_string(),
    });
    // Some errors repeat their cause.
    let message = causes.reduce(|message, cause| match message.ends_with(&cause) {
        true => message,
        false => format!("{message}: {cause}"),
    });
    message.expect("the chain begins with the error")
}

/// Message of [`LogError::NotADatabase`] with the remedy for a command.
fn not_a_database(path: &Path, reason: &str, advice: &str) -> String {
    format!("{} does not hold a database: {reason}; {advice}", path.display())
}

/// Returns whether a database can be created at this path: it does not exist, or is an empty
/// directory.
fn is_free(path: &Path) -> bool {
    !path.exists() || path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<ExitCode> {
    match &arguments.verb {
        Verb::Demo(demo) => verb::demo::run(demo, output),
        Verb::Import { store, import } => verb::import::run(import, store, output),
        Verb::Export { store, export } => verb::export::run(&store.open_to_read()?, export, output),
        Verb::Get { store, table, key } => {
            verb::point::get(&store.open_to_read()?, table, key, output)
        }
        Verb::Put { store, table, key, value } => {
            verb::point::put(&store.open_or_create()?, table, key, value)
        }
        Verb::Delete { store, table, key } => {
            verb::point::delete(&store.open_existing()?, table, key)
        }
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
        Verb::Checkpoint { store } => verb::checkpoint::run(&store.open_existing()?, output),
        Verb::Backup { directory, store } => {
            verb::backup::run(&store.open_existing()?, directory, output)
        }
        Verb::Restore { backup, store } => verb::restore::run(backup, store, output),
        Verb::Completions { shell } => verb::generate::completions(*shell),
        Verb::Man { directory } => verb::generate::man(directory, output),
        Verb::Log { from, limit, store } => {
            verb::log::run(&store.open_to_read()?, *from, *limit, output)
        }
        Verb::Compact { store } => verb::compact::run(&store.open_existing()?, output),
        Verb::Check { store } => verb::check::run(store, output),
        Verb::Shell { store } => verb::shell::run(&store.open_or_create()?, output),
    }
}
