//! `tables` and `stats`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::{Database, Stats};
use comfy_table::{Table, presets};

use crate::output::Output;

/// Lists the tables, and then their secondary indexes.
pub fn tables(db: &Database, output: &Output) -> Result<ExitCode> {
    let tables = pollster::block_on(db.tables())?;
    let indexes = pollster::block_on(db.indexes())?;
    if output.json {
        for table in &tables {
            output.document(table)?;
        }
        for index in &indexes {
            output.document(index)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = plain(["table", "keys", "values"]);
    for table in tables {
        shown.add_row([table.name, table.key_type, table.value_type]);
    }
    output.line(&shown.to_string())?;
    if indexes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = plain(["index", "of table", "keys", "unique", "version", "stage"]);
    for index in indexes {
        let unique = if index.unique { "yes" } else { "no" };
        let stage = format!("{:?}", index.stage).to_lowercase();
        let (version, unique) = (index.version.to_string(), unique.to_owned());
        shown.add_row([index.name, index.table, index.key_type, unique, version, stage]);
    }
    output.line(&shown.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the statistics.
pub fn stats(db: &Database, output: &Output) -> Result<ExitCode> {
    let stats = db.stats();
    if output.json {
        output.document(&stats)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = plain(["statistic", "value"]);
    for (name, value) in rows(&stats)? {
        shown.add_row([name, value]);
    }
    output.line(&shown.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Every figure of a snapshot under its dotted name.
fn rows(stats: &Stats) -> Result<Vec<(String, String)>> {
    fn flatten(name: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
        let join =
            |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        match value {
            serde_json::Value::Object(fields) => {
                fields.iter().for_each(|(part, value)| flatten(&join(part), value, rows));
            }
            serde_json::Value::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(place, value)| flatten(&join(&place.to_string()), value, rows));
            }
            other => rows.push((name.to_owned(), other.to_string())),
        }
    }
    let mut rows = Vec::new();
    flatten("", &serde_json::to_value(stats)?, &mut rows);
    Ok(rows)
}

fn plain<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}
