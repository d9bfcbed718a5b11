//! Negative numbers on the command line. The laboratory's command uses this file too.

use clap::Command;

/// Makes every argument accept a negative number as its value, so that the argument's own parser
/// reports it, and not clap as an unknown option.
pub fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(with_negative_numbers)
}
