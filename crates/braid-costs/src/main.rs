//! Counts the instructions and the simulated cache misses of each operation of the engine, which no noise of the
//! machine changes, and holds them against a table (`docs/costs.md`).
//!
//! `braid-costs` shows them beside the table, `--update` writes the table, `--check` fails where a count
//! is off by more than a twentieth. The program runs itself under callgrind (`valgrind`, which must be
//! installed), and must be built as the engine is for its users: `cargo run --release -p braid-costs`.

mod callgrind;
mod items;

use anyhow::Result;
use braiddb::Isolation;

fn main() -> Result<()> {
    for item in &items::ITEMS {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            item.count(isolation, &format!("{}|{isolation:?}", item.name))?;
        }
    }
    Ok(())
}
