//! Verbs of another program. Users of the engine do not build consensus, so `braid node` and
//! `braid cluster` run the program `braid-node`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};

use crate::output::Output;

const PROGRAM: &str = "braid-node";

/// Replaces this process by the program, which is in the same directory or in PATH.
pub fn run(verb: &str, arguments: &[OsString], output: &Output) -> Result<ExitCode> {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(PROGRAM));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PROGRAM.into());
    let mut command = Command::new(&program);
    // Its help names this command.
    command.arg0("braid").arg(verb).args(output.json.then_some("--json")).args(arguments);
    let error = command.exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "braid {verb} needs the program {PROGRAM}, which is neither beside braid nor in PATH; \
             install it with: cargo install --path crates/braid-node"
        ),
        _ => anyhow!("{} cannot be started: {error}", program.display()),
    })
}
