//! `tables` and `stats`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use braiddb::changes::ChangeSlot;
use braiddb::stats::{TableContents, TableSize};
use braiddb::tables::TableDescription;
use braiddb::{Database, Stats};
use comfy_table::{Table, presets};
use pollster::block_on;
use serde::Serialize;

use super::statistics_file;
use crate::output::{Output, escaped};
use crate::store::StoreArguments;

/// A table and its size.
#[derive(Serialize)]
struct SizedTable {
    #[serde(flatten)]
    description: TableDescription,
    #[serde(flatten)]
    size: TableSize,
    #[serde(flatten)]
    contents: TableContents,
}

/// Lists all tables with their sizes.
fn sized_tables(db: &Database) -> Result<Vec<SizedTable>> {
    let mut tables = Vec::new();
    for description in block_on(db.tables())? {
        let name = description.name.clone();
        let opened = db.run_blocking(async move |tx| Ok(tx.open_encoded_table(&name).await?.0))?;
        let (size, contents) = (db.table_size(&opened), block_on(db.table_contents(&opened))?);
        tables.push(SizedTable { description, size, contents });
    }
    Ok(tables)
}

/// Lists the tables and their secondary indexes, for a database that was just opened.
pub fn tables(db: &Database, output: &Output) -> Result<ExitCode> {
    // Omits the share in memory, which only reflects this listing.
    list(db, output, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the tables with their shares in memory, and their secondary indexes, for a database in
/// use.
pub fn tables_in_use(db: &Database, output: &Output) -> Result<()> {
    list(db, output, true)
}

fn list(db: &Database, output: &Output, with_memory: bool) -> Result<()> {
    let tables = sized_tables(db)?;
    let indexes = block_on(db.indexes())?;
    if output.json {
        for table in &tables {
            output.document(table)?;
        }
        for index in &indexes {
            output.document(index)?;
        }
        return Ok(());
    }
    let mut header = vec!["table", "kind", "keys", "values", "expire after", "records"];
    header.extend(with_memory.then_some("in memory"));
    header.extend(["bytes, about", "index levels", "index bytes"]);
    let mut shown = plain(header);
    for SizedTable { description, size, contents } in tables {
        let TableDescription { name, key_type, value_type, options, .. } = description;
        let expire = options.ttl.map_or_else(|| "-".to_owned(), |ttl| format!("{ttl:?}"));
        let kind = if options.paged { "paged" } else { "memory" }.to_owned();
        let mut row =
            vec![name, kind, key_type, value_type, expire, contents.records().to_string()];
        // Pages are counted for all tables together; `stats` shows them.
        row.extend(with_memory.then(|| match options.paged {
            true => "-".to_owned(),
            false => format!("{:.0} %", 100.0 * contents.hot_share()),
        }));
        row.extend([contents.bytes(), size.index_height, size.index_bytes].map(|n| n.to_string()));
        shown.add_row(row.iter().map(|cell| escaped(cell)));
    }
    output.line(&shown.to_string())?;
    if indexes.is_empty() {
        return Ok(());
    }
    let mut shown = plain(["index", "of table", "keys", "unique", "version", "stage"]);
    for index in indexes {
        let unique = if index.unique { "yes" } else { "no" };
        let stage = format!("{:?}", index.stage).to_lowercase();
        let (version, unique) = (index.version.to_string(), unique.to_owned());
        let row = [index.name, index.table, index.key_type, unique, version, stage];
        shown.add_row(row.map(|cell| escaped(&cell)));
    }
    output.line(&shown.to_string())
}

/// Shows the statistics of the database, or of a program that writes them to the file `from`: once,
/// or every `watch` seconds.
pub fn stats(
    store: &StoreArguments,
    from: Option<&Path>,
    watch: Option<f64>,
    output: &Output,
) -> Result<ExitCode> {
    let every = watch.map(Duration::from_secs_f64);
    loop {
        match from {
            Some(file) => match statistics_file::read(file)? {
                Some(sample) => show(&sample.stats, output)?,
                None if every.is_some() => {}
                None => bail!("{} has no statistics yet", file.display()),
            },
            None => stats_of(&store.open_to_read()?, output)?,
        }
        let Some(every) = every else { return Ok(ExitCode::SUCCESS) };
        thread::sleep(every);
    }
}

/// Shows the statistics of an open database.
pub fn stats_of(db: &Database, output: &Output) -> Result<()> {
    show(
        &Overview { stats: db.stats(), change_slots: slots(db)?, tables: table_figures(db)? },
        output,
    )
}

/// The change slots by name, with the log that each holds.
fn slots(db: &Database) -> Result<BTreeMap<String, SlotFigures>> {
    let figures = |slot: ChangeSlot| {
        let ChangeSlot { name, behind_bytes, max_bytes, lost, .. } = slot;
        (name, SlotFigures { behind_bytes, max_bytes, lost })
    };
    Ok(block_on(db.change_slots())?.into_iter().map(figures).collect())
}

/// The statistics of the database and of each table.
#[derive(Serialize)]
struct Overview {
    #[serde(flatten)]
    stats: Stats,
    change_slots: BTreeMap<String, SlotFigures>,
    tables: BTreeMap<String, TableFigures>,
}

/// The log that a change slot holds.
#[derive(Serialize)]
struct SlotFigures {
    behind_bytes: u64,
    max_bytes: u64,
    lost: bool,
}

/// The size of a table.
#[derive(Serialize)]
struct TableFigures {
    #[serde(flatten)]
    size: TableSize,
    #[serde(flatten)]
    contents: TableContents,
}

/// The sizes of all tables by name.
fn table_figures(db: &Database) -> Result<BTreeMap<String, TableFigures>> {
    let figures = |SizedTable { description, size, contents }| {
        (description.name, TableFigures { size, contents })
    };
    Ok(sized_tables(db)?.into_iter().map(figures).collect())
}

fn show(stats: &impl Serialize, output: &Output) -> Result<()> {
    if output.json {
        return output.document(stats);
    }
    let mut shown = plain(["statistic", "value"]);
    for (name, value) in rows(stats)? {
        shown.add_row([name, value].map(|cell| escaped(&cell)));
    }
    output.line(&shown.to_string())
}

/// Flattens statistics into figures with dotted names.
fn rows(stats: &impl Serialize) -> Result<Vec<(String, String)>> {
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

fn plain(header: impl IntoIterator<Item = &'static str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.into_iter().collect::<Vec<_>>());
    table
}
