//! Exit codes. `braid --help` lists them.

use std::process::ExitCode;

/// The requested key does not exist.
pub fn not_found() -> ExitCode {
    ExitCode::from(1)
}

/// The command failed, and printed the error to standard error. (The argument parser exits with 2.)
pub fn failure() -> ExitCode {
    ExitCode::from(3)
}

/// An import rejected rows.
pub fn rejected() -> ExitCode {
    ExitCode::from(4)
}
