//! `log`.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;
use braiddb::maintenance::{LogBlock, LogWrites};
use pollster::block_on;
use serde::Serialize;

use crate::output::{Output, counted, escaped};

/// Maximum number of blocks per read.
const MAX_BLOCKS: usize = 1000;

/// A block, and the names of the tables that it writes.
#[derive(Serialize)]
struct NamedBlock<'b> {
    #[serde(flatten)]
    block: &'b LogBlock,
    /// For each of the writes, the name of its table.
    tables: Vec<String>,
}

/// Prints the blocks of the log from an LSN on.
pub fn run(db: &Database, from: u64, limit: u64, output: &Output) -> Result<ExitCode> {
    let names = table_names(db)?;
    let (mut at, mut left) = (from, limit);
    while left > 0 {
        let (blocks, end) =
            db.log_blocks(at, MAX_BLOCKS.min(usize::try_from(left).unwrap_or(MAX_BLOCKS)))?;
        if blocks.is_empty() {
            break;
        }
        (at, left) = (end, left - blocks.len() as u64);
        for block in &blocks {
            let tables = block.writes.iter().map(|writes| name(&names, writes.table)).collect();
            print(&NamedBlock { block, tables }, output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of the current tables and indexes, by their numbers.
fn table_names(db: &Database) -> Result<HashMap<u32, String>> {
    let tables = block_on(db.tables())?.into_iter().map(|table| (table.id, table.name));
    let indexes = block_on(db.indexes())?.into_iter();
    let indexes =
        indexes.map(|index| (index.id, format!("index {} of {}", index.name, index.table)));
    let catalog = (0, "catalog".to_owned());
    Ok(tables.chain(indexes).chain([catalog]).collect())
}

/// The name of a table. A dropped table has only a number.
fn name(names: &HashMap<u32, String>, table: u32) -> String {
    names.get(&table).cloned().unwrap_or_else(|| format!("table {table}"))
}

fn print(named: &NamedBlock<'_>, output: &Output) -> Result<()> {
    if output.json {
        return output.document(named);
    }
    let LogBlock { lsn, kind, bytes, writes, .. } = named.block;
    let writes: Vec<String> = named.tables.iter().zip(writes).map(of_table).collect();
    let line = format!("{lsn:>16} {kind:<6} {bytes:>9} bytes  {}", writes.join("; "));
    output.line(line.trim_end())
}

/// The writes to a table: `users: 2 inserts, 1 delete`.
fn of_table((table, writes): (&String, &LogWrites)) -> String {
    let LogWrites { inserted, updated, put, deleted, .. } = writes;
    let counts = [(inserted, "insert"), (updated, "update"), (put, "put"), (deleted, "delete")];
    let counts = counts.iter().filter(|(count, _)| **count > 0);
    let counts: Vec<String> = counts.map(|(count, one)| counted(**count, one)).collect();
    format!("{}: {}", escaped(table), counts.join(", "))
}
