//! The `braid-peers` command.

use braid_peers::command::Program;
use clap::Parser;

fn main() -> anyhow::Result<()> {
    Program::parse().run()
}
