//! Runs of rows into a table.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use braiddb::{
    Database, Error, MAX_KEY_BYTES, MAX_PAGED_KEY_BYTES, StagedTable, Table, TableOptions,
    Transaction,
};
use pollster::block_on;

use super::Shares;
use super::index::IndexBytes;
use super::merge::Gathered;
use super::rows::{Rejected, Rejections, Rows};
use crate::arguments::Import;
use crate::codec::{KeyType, ValueType};
use crate::store::once_free;
use crate::store::{self, AnyTable, StoreArguments};

/// Rows that were taken back, beyond which their space is given back at once.
const COMPACTED: u64 = 100_000;

/// Loads runs into a table; nothing of them is there before it has finished.
pub struct Loader<'i> {
    import: &'i Import,
    store: &'i StoreArguments,
    shares: Shares,
    pub rejections: Rejections,
    imported: u64,
    /// Of the rows that were taken.
    index: IndexBytes,
    target: Target,
}

/// Where rows go.
enum Target {
    /// Nothing was opened yet.
    None,
    /// A table that nobody sees, and sorted runs that are to be written to it.
    Staged { db: Database, table: StagedTable<str, str>, gathered: Gathered, paged: bool },
    /// A paged table that is there, and sorted runs that are to be written to it.
    Paged(Database, AnyTable, Gathered),
    /// Another table that is there, and what is to be written to it.
    Existing(Database, AnyTable, Rows),
}

impl<'i> Loader<'i> {
    pub fn new(import: &'i Import, store: &'i StoreArguments, shares: Shares) -> Self {
        let (rejections, index) = (Rejections::default(), IndexBytes::default());
        Self { import, store, shares, rejections, imported: 0, index, target: Target::None }
    }

    /// Takes a run, if it is wanted and none of its rows is rejected, or these are skipped; gives memory for
    /// another one back, if it need not keep it.
    pub fn load(&mut self, mut run: Rows, wanted: bool) -> Result<Option<Rows>> {
        run.sort(&mut self.rejections);
        if wanted && self.is_wanted() {
            if let Target::None = self.target {
                self.target = self.open()?;
            }
            if let Target::Existing(_, table, _) | Target::Paged(_, table, _) = &self.target {
                run = encode(table, run, &mut self.rejections);
            }
            run = fitting(run, self.is_paged(), &mut self.rejections);
            self.index.add(&run);
            match &mut self.target {
                Target::None => unreachable!("it was opened"),
                Target::Staged { gathered, .. } | Target::Paged(.., gathered) => {
                    // Numbers, say, have another order than their texts.
                    run.sort(&mut self.rejections);
                    match gathered.add(run, &self.store.db)? {
                        Some(before) => run = before,
                        None => return Ok(None),
                    }
                }
                Target::Existing(db, _, rows) => {
                    rows.append(&run);
                    let most = db.stats().memory.budget.map_or(u64::MAX, |budget| budget / 4);
                    if rows.bytes() as u64 > most {
                        bail!(too_many(&self.import.table, most));
                    }
                }
            }
        }
        run.clear();
        Ok(Some(run))
    }

    /// Whether rows are imported, as far as is known.
    fn is_wanted(&self) -> bool {
        self.rejections.count == 0 || self.import.skip_rejected
    }

    /// Whether the table is one whose records lie on pages.
    fn is_paged(&self) -> bool {
        match &self.target {
            Target::Existing(..) => false,
            Target::Paged(..) => true,
            Target::None => self.import.paged,
            Target::Staged { paged, .. } => *paged,
        }
    }

    /// Is told that all runs were loaded, and brings them to their table in the order of their keys; nobody sees
    /// them yet. Those of different runs are compared with one another only now.
    ///
    /// # Errors
    /// What keeps them from being written.
    pub fn end(&mut self) -> Result<()> {
        let (wanted, run) = (self.is_wanted(), self.shares.run);
        if wanted && !self.is_paged() && self.store.memory_bytes().is_some() {
            self.heed_memory()?;
        }
        match &mut self.target {
            Target::None => {}
            Target::Existing(_, _, rows) => rows.sort(&mut self.rejections),
            Target::Staged { .. } | Target::Paged(..) if !wanted => {}
            Target::Paged(_, _, gathered) => {
                gathered.end()?;
                let (mut rows, merge) = gathered.rows(run)?;
                let Some(mut merge) = merge else {
                    *gathered = Gathered::of(rows);
                    return Ok(());
                };
                // All is written or nothing, so it is known before whether a row is rejected.
                while merge.fill(&mut rows, run, &mut self.rejections)? {
                    rows.clear();
                }
            }
            Target::Staged { table, gathered, .. } => {
                gathered.end()?;
                let (mut rows, merge) = gathered.rows(run)?;
                let Some(mut merge) = merge else {
                    self.imported = rows.len() as u64;
                    return insert(table, &rows);
                };
                let mut more = true;
                while more {
                    rows.clear();
                    more = merge.fill(&mut rows, run, &mut self.rejections)?;
                    if self.rejections.count > 0 && !self.import.skip_rejected {
                        // The rest is looked at for other rows that are rejected.
                        continue;
                    }
                    self.imported += rows.len() as u64;
                    insert(table, &rows)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a new table, into which nothing was written yet, one on pages if its index would take more memory than there
    /// is; warns of an index that takes more and has to stay.
    fn heed_memory(&mut self) -> Result<()> {
        let (Target::Staged { db, .. } | Target::Existing(db, ..)) = &self.target else {
            return Ok(());
        };
        let Some(found) = self.index.too_large(db) else { return Ok(()) };
        match std::mem::replace(&mut self.target, Target::None) {
            Target::Staged { db, table, gathered, .. } if found.may_be_paged() => {
                block_on(table.discard())?;
                let table = stage(&db, &self.import.table, true)?;
                self.target = Target::Staged { db, table, gathered, paged: true };
                eprintln!("braid: {}", found.told(&self.import.table));
            }
            other => {
                self.target = other;
                eprintln!("braid: {found}");
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<Target> {
        let db = self.store.open_for_load(self.shares.database)?;
        let name = &self.import.table;
        match store::existing_table(&db, name) {
            Ok(table) => {
                if self.import.value.is_none() && table.value != ValueType::Text {
                    bail!(
                        "the values of table {name:?} are no text, as rows are; say with --value \
                         which column holds the value"
                    );
                }
                Ok(match table.paged {
                    true => Target::Paged(db, table, Gathered::default()),
                    false => Target::Existing(db, table, Rows::default()),
                })
            }
            Err(Error::TableNotFound(_)) => {
                let (paged, gathered) = (self.import.paged, Gathered::default());
                let table = stage(&db, name, paged)?;
                Ok(Target::Staged { db, table, gathered, paged })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lets what was loaded be seen, durably; how many rows that is.
    pub fn finish(mut self) -> Result<u64> {
        let taken_back = "the import was taken back";
        match std::mem::replace(&mut self.target, Target::None) {
            Target::None => unreachable!("a run was loaded, an empty one at least"),
            Target::Staged { db, table, .. } => {
                block_on(table.publish()).context(taken_back)?;
                close(&db, self.imported)?;
            }
            Target::Paged(db, table, gathered) => {
                let written = put_in_bulk(&db, table, gathered, self.shares.run);
                self.imported = written.context(taken_back)?;
                close(&db, self.imported)?;
            }
            Target::Existing(db, table, rows) => {
                self.imported = rows.len() as u64;
                let (rows, table) = (Arc::new(rows), table.records);
                let body = async move |tx: &Transaction| put_rows(tx, &table, &rows).await;
                db.run_blocking(body).context(taken_back)?;
                db.close()?;
            }
        }
        Ok(self.imported)
    }

    /// Takes back what was loaded.
    pub fn take_back(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.target, Target::None) {
            Target::None => Ok(()),
            Target::Staged { db, table, .. } => {
                block_on(table.discard())?;
                if self.imported > COMPACTED {
                    once_free(|| block_on(db.compact()))?;
                }
                Ok(db.close()?)
            }
            Target::Paged(db, ..) | Target::Existing(db, ..) => Ok(db.close()?),
        }
    }
}

/// A new table that nobody sees.
fn stage(db: &Database, name: &str, paged: bool) -> Result<StagedTable<str, str>> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    Ok(block_on(db.stage_table_with(name, options))?)
}

fn too_many(table: &str, most: u64) -> String {
    format!(
        "table {table:?} is there already, so the rows are written in one transaction, and they take more than \
         {} MiB, a quarter of the memory that there is for records; nothing was imported: import into a \
         table of another name, or into one that is paged, or some of the rows at a time, or raise --memory",
        most >> 20
    )
}

/// Rows as a table's types encode them; those that are none of its are rejected.
fn encode(table: &AnyTable, rows: Rows, rejections: &mut Rejections) -> Rows {
    if table.key == KeyType::Text && table.value == ValueType::Text {
        return rows;
    }
    let mut encoded = Rows::default();
    for row in 0..rows.len() {
        let (line, key, value) = rows.get(row);
        let text = |bytes| std::str::from_utf8(bytes).context("it is not text in UTF-8");
        let pair = text(key).and_then(|key| table.key.encode(key));
        let pair = pair.and_then(|key| Ok((key, table.value.encode(text(value)?)?)));
        match pair {
            Ok((key, value)) => encoded.push(line, &key, &value),
            Err(error) => rejections.add(Rejected { line, reason: format!("{error:#}") }),
        }
    }
    encoded
}

/// Rows whose keys a table can have, as it encodes them; the others are rejected.
fn fitting(rows: Rows, is_paged: bool, rejections: &mut Rejections) -> Rows {
    let (most, of) = match is_paged {
        true => (MAX_PAGED_KEY_BYTES, " of a paged table"),
        false => (MAX_KEY_BYTES, ""),
    };
    if (0..rows.len()).all(|row| rows.get(row).1.len() <= most) {
        return rows;
    }
    let mut fitting = Rows::default();
    for row in 0..rows.len() {
        let (line, key, value) = rows.get(row);
        if key.len() <= most {
            fitting.push(line, key, value);
        } else {
            let reason = format!("its key has {} bytes, the limit{of} is {most}", key.len());
            rejections.add(Rejected { line, reason });
        }
    }
    fitting
}

/// Closes a database with what was imported.
fn close(db: &Database, imported: u64) -> Result<()> {
    // Else whoever opens the database next replays all that was loaded, and who only reads, each time.
    if imported > COMPACTED {
        once_free(|| block_on(db.checkpoint()))
            .context("the rows are imported, but no checkpoint could be written")?;
    }
    Ok(db.close()?)
}

/// Writes rows to a table that is there.
async fn put_rows(tx: &Transaction, table: &Table<[u8], [u8]>, rows: &Rows) -> Result<(), Error> {
    for row in 0..rows.len() {
        let (_, key, value) = rows.get(row);
        tx.put(table, key, value).await?;
    }
    Ok(())
}

/// Writes rows to a paged table that is there, all or nothing, and so many bytes of them in memory at a time: in an operation
/// that takes no memory for versions. How many rows that is.
fn put_in_bulk(db: &Database, table: AnyTable, mut gathered: Gathered, bytes: u64) -> Result<u64> {
    let table = table.records;
    let written = table.clone();
    let body = async move |tx: &Transaction| {
        let (mut rows, mut merge) = gathered.rows(bytes)?;
        put_rows(tx, &written, &rows).await?;
        let (mut count, mut more) = (rows.len() as u64, merge.is_some());
        while let Some(merge) = merge.as_mut().filter(|_| more) {
            rows.clear();
            // They were told already.
            more = merge.fill(&mut rows, bytes, &mut Rejections::default())?;
            put_rows(tx, &written, &rows).await?;
            count += rows.len() as u64;
        }
        anyhow::Ok(count)
    };
    Ok(block_on(db.transaction().try_run_bulk(&table, body))?.value)
}

/// Inserts sorted rows, texts all, into a table that nobody sees.
fn insert(table: &StagedTable<str, str>, rows: &Rows) -> Result<()> {
    let text = |bytes| std::str::from_utf8(bytes).expect("others are rejected");
    let pair = |row| {
        let (_, key, value) = rows.get(row);
        (text(key), text(value))
    };
    block_on(table.load((0..rows.len()).map(pair), |_| {}))?;
    Ok(())
}
