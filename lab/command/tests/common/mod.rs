//! Runs the command.

use std::time::Duration;

use assert_cmd::Command;

/// Several times the duration of a test's commands, even on a loaded machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the program, which is killed after the time limit.
pub fn program() -> Command {
    let mut command = Command::cargo_bin("braid-lab").unwrap();
    command.timeout(LIMIT);
    command
}
