//! Exit codes; `braid --help` lists them.

use std::process::ExitCode;

/// A key that was asked for is not there.
pub fn not_found() -> ExitCode {
    ExitCode::from(1)
}

/// Something failed; standard error says what. (Code 2, wrong usage, is the argument parser's.)
pub fn failure() -> ExitCode {
    ExitCode::from(3)
}

/// Rows of an import were rejected.
pub fn rejected() -> ExitCode {
    ExitCode::from(4)
}
