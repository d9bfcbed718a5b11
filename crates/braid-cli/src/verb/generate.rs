//! `completions` and `man`, generated from the definition of the command line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::output::{self, Output};

/// Prints a completion script for a shell.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "braid", &mut script);
    output::stdout()?.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for the command and for each verb.
pub fn man(directory: &Path, output: &Output) -> Result<ExitCode> {
    let failed = || format!("cannot write to {}", directory.display());
    if directory.is_file() {
        bail!("{} is a file; name a directory", directory.display());
    }
    fs::create_dir_all(directory).with_context(failed)?;
    clap_mangen::generate_to(Arguments::command(), directory).with_context(failed)?;
    let path = directory.join("braid.1");
    output.line(&format!("man {} shows the first page", path.display()))?;
    Ok(ExitCode::SUCCESS)
}
