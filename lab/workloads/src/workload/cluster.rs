//! `cluster`: Braid on several machines. Consensus and transport are not a part of the laboratory,
//! so this builds and runs the program `braid-cluster-bench` of their workspace.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use super::stage::Stage;
use crate::error::Error;
use crate::harness::report::Report;

const MANIFEST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/braid-cluster-bench/Cargo.toml");

/// Arguments of `braid-lab bench cluster`, for the program.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct ClusterArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ClusterArguments {
    /// Replaces this process by the program. Returns only if that fails.
    pub(crate) fn run(&self, stage: &Stage) -> Result<Report, Error> {
        let mut cargo = Command::new("cargo");
        cargo.args(["run", "--release", "--manifest-path", MANIFEST]);
        // Progress of the build is for people.
        cargo.args((!std::io::stderr().is_terminal()).then_some("--quiet")).arg("--");
        cargo.args(stage.json.then_some("--json")).args(&self.arguments);
        Err(Error::file("cargo")(cargo.exec()))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_is_in_the_repository() {
        assert!(std::path::Path::new(super::MANIFEST).exists());
    }
}
