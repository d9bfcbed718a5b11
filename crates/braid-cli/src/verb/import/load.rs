//! Loads runs of rows into a table.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use braiddb::{Database, Error, StagedTable, Table, TableOptions, Transaction};
use pollster::block_on;

use super::encode::RowTypes;
use super::index::IndexBytes;
use super::merge::Gathered;
use super::rows::{Rejections, Rows};
use super::{Run, Shares};
use crate::any_table::AnyTable;
use crate::arguments::{Format, Import};
use crate::codec::KeyType;
use crate::store::once_free;
use crate::store::{self, StoreArguments};

/// After a rollback or an import of more rows than this, the command frees or checkpoints their
/// log.
const MANY_ROWS: u64 = 100_000;

/// Loads runs into a table. Their rows become visible in `finish`.
pub struct Loader<'i> {
    import: &'i Import,
    store: &'i StoreArguments,
    format: Format,
    shares: Shares,
    /// Known once the first run is loaded.
    types: Option<RowTypes>,
    pub rejections: Rejections,
    imported: u64,
    /// Estimate for the loaded rows.
    index: IndexBytes,
    target: Target,
}

/// Destination of the rows.
enum Target {
    /// Not opened yet.
    None,
    /// A new staged table, and the sorted runs for it.
    Staged { db: Database, table: StagedTable<[u8], [u8]>, gathered: Gathered, paged: bool },
    /// An existing paged table, and the sorted runs for it.
    Paged(Database, AnyTable, Gathered),
    /// Any other existing table, and the rows for it.
    Existing(Database, AnyTable, Rows),
}

impl<'i> Loader<'i> {
    pub fn new(
        import: &'i Import,
        store: &'i StoreArguments,
        format: Format,
        shares: Shares,
    ) -> Self {
        Self {
            import,
            store,
            format,
            shares,
            types: None,
            rejections: Rejections::default(),
            imported: 0,
            index: IndexBytes::default(),
            target: Target::None,
        }
    }

    /// Returns the type of the keys of a new table.
    pub fn new_key_type(&self) -> Option<&str> {
        let types = self.types.as_ref().filter(|_| matches!(self.target, Target::Staged { .. }))?;
        Some(&types.key_name)
    }

    /// Loads a run if it is wanted, and if rejected rows do not cancel the import. Returns the
    /// memory of a run that can be filled again.
    pub fn load(&mut self, run: Run) -> Result<Option<Rows>> {
        let Run { rows: mut run, is_wanted, key_types } = run;
        run.sort(&mut self.rejections);
        if is_wanted && self.is_wanted() {
            if let Target::None = self.target {
                let (target, types) = self.open(&key_types, &run)?;
                (self.target, self.types) = (target, Some(types));
            }
            let types = self.types.as_ref().expect("the target is open");
            run = types.encode(run, self.is_paged(), &mut self.rejections);
            self.index.add(&run);
            match &mut self.target {
                Target::None => unreachable!("the target is open"),
                Target::Staged { gathered, .. } | Target::Paged(.., gathered) => {
                    // The order of encoded keys may differ from that of their text, for example for
                    // numbers.
                    run.sort(&mut self.rejections);
                    match gathered.add(run, &self.store.db)? {
                        Some(before) => run = before,
                        None => return Ok(None),
                    }
                }
                Target::Existing(db, _, rows) => {
                    rows.append(&run);
                    let max_bytes = db.stats().memory.budget.map_or(u64::MAX, |budget| budget / 4);
                    if rows.bytes() as u64 > max_bytes {
                        bail!(too_many(&self.import.table, max_bytes));
                    }
                }
            }
        }
        run.clear();
        Ok(Some(run))
    }

    /// Returns whether the import continues after the rejections so far.
    fn is_wanted(&self) -> bool {
        self.rejections.count == 0 || self.import.skip_rejected
    }

    /// Returns whether the table is paged.
    fn is_paged(&self) -> bool {
        match &self.target {
            Target::Existing(..) => false,
            Target::Paged(..) => true,
            Target::None => self.import.paged,
            Target::Staged { paged, .. } => *paged,
        }
    }

    /// Merges the loaded runs, rejects keys that occur in several runs, and writes the rows of a
    /// staged table, which stay invisible until `finish`.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub fn end(&mut self) -> Result<()> {
        let (wanted, run) = (self.is_wanted(), self.shares.run);
        if wanted && !self.is_paged() && self.store.memory_bytes().is_some() {
            self.respect_memory()?;
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
                // Finds all rejected rows before the first write.
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
                        // Searches the rest for more rejected rows.
                        continue;
                    }
                    self.imported += rows.len() as u64;
                    insert(table, &rows)?;
                }
            }
        }
        Ok(())
    }

    /// Replaces an empty new table by a paged one if its index would exceed the memory. Prints a
    /// warning if the index exceeds the memory and the table cannot be paged.
    fn respect_memory(&mut self) -> Result<()> {
        let (Target::Staged { db, .. } | Target::Existing(db, ..)) = &self.target else {
            return Ok(());
        };
        let Some(found) = self.index.too_large(db) else { return Ok(()) };
        match std::mem::replace(&mut self.target, Target::None) {
            Target::Staged { db, table, gathered, .. } if found.may_be_paged() => {
                block_on(table.discard())?;
                let types = self.types.as_ref().expect("the target was open");
                let table = stage(&db, &self.import.table, &types.key_name, true)?;
                self.target = Target::Staged { db, table, gathered, paged: true };
                eprintln!("braid: {}", found.paged_message(&self.import.table));
            }
            other => {
                self.target = other;
                eprintln!("braid: {found}");
            }
        }
        Ok(())
    }

    /// Opens the table, or begins a new one, whose key type the first rows decide.
    fn open(&self, key_types: &[Option<KeyType>], first: &Rows) -> Result<(Target, RowTypes)> {
        let db = self.store.open_for_load(self.shares.database)?;
        let (import, name) = (self.import, &self.import.table);
        match store::existing_table(&db, name) {
            Ok(table) => {
                let types = RowTypes::of_table(import, self.format, &table)?;
                let target = match table.paged {
                    true => Target::Paged(db, table, Gathered::default()),
                    false => Target::Existing(db, table, Rows::default()),
                };
                Ok((target, types))
            }
            Err(Error::TableNotFound(_)) => {
                let types = RowTypes::of_new_table(import, self.format, key_types, first);
                let (paged, gathered) = (import.paged, Gathered::default());
                let table = stage(&db, name, &types.key_name, paged)?;
                Ok((Target::Staged { db, table, gathered, paged }, types))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the rows visible and durable. Returns their number.
    pub fn finish(mut self) -> Result<u64> {
        let rolled_back = "the import was rolled back";
        match std::mem::replace(&mut self.target, Target::None) {
            Target::None => unreachable!("at least an empty run was loaded"),
            Target::Staged { db, table, .. } => {
                block_on(table.publish()).context(rolled_back)?;
                close(&db, self.imported)?;
            }
            Target::Paged(db, table, gathered) => {
                let written = put_in_bulk(&db, table, gathered, self.shares.run);
                self.imported = written.context(rolled_back)?;
                close(&db, self.imported)?;
            }
            Target::Existing(db, table, rows) => {
                self.imported = rows.len() as u64;
                let (rows, table) = (Arc::new(rows), table.records);
                let body = async move |tx: &Transaction| put_rows(tx, &table, &rows).await;
                db.run_blocking(body).context(rolled_back)?;
                db.close()?;
            }
        }
        Ok(self.imported)
    }

    /// Deletes the loaded rows.
    pub fn roll_back(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.target, Target::None) {
            Target::None => Ok(()),
            Target::Staged { db, table, .. } => {
                block_on(table.discard())?;
                if self.imported > MANY_ROWS {
                    once_free(|| block_on(db.compact()))?;
                }
                Ok(db.close()?)
            }
            Target::Paged(db, ..) | Target::Existing(db, ..) => Ok(db.close()?),
        }
    }
}

/// Creates a staged table with values of text.
fn stage(
    db: &Database,
    name: &str,
    key_type: &str,
    paged: bool,
) -> Result<StagedTable<[u8], [u8]>> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    Ok(block_on(db.stage_encoded_table(name, key_type, "str", options))?)
}

fn too_many(table: &str, max_bytes: u64) -> String {
    format!(
        "nothing was imported: table {table:?} exists and is not paged, so one transaction writes \
         all rows, and they take more than {} MiB, a quarter of the memory for records; import \
         into a new or paged table, import fewer rows at a time, or raise --memory",
        max_bytes >> 20
    )
}

/// Closes the database after an import.
fn close(db: &Database, imported: u64) -> Result<()> {
    // Without a checkpoint the next opening, and every opening for reading, replays all the rows.
    if imported > MANY_ROWS {
        once_free(|| block_on(db.checkpoint()))
            .context("the rows are imported, but the checkpoint failed")?;
    }
    Ok(db.close()?)
}

/// Writes rows to an existing table.
async fn put_rows(tx: &Transaction, table: &Table<[u8], [u8]>, rows: &Rows) -> Result<(), Error> {
    for row in 0..rows.len() {
        let (_, key, value) = rows.get(row);
        tx.put(table, key, value).await?;
    }
    Ok(())
}

/// Writes rows to an existing paged table in one bulk operation, which needs no memory for
/// versions. Merges about `bytes` of rows at a time. Returns the number of rows.
fn put_in_bulk(db: &Database, table: AnyTable, mut gathered: Gathered, bytes: u64) -> Result<u64> {
    let table = table.records;
    let written = table.clone();
    let body = async move |tx: &Transaction| {
        let (mut rows, mut merge) = gathered.rows(bytes)?;
        put_rows(tx, &written, &rows).await?;
        let (mut count, mut more) = (rows.len() as u64, merge.is_some());
        while let Some(merge) = merge.as_mut().filter(|_| more) {
            rows.clear();
            // These rejections were reported before.
            more = merge.fill(&mut rows, bytes, &mut Rejections::default())?;
            put_rows(tx, &written, &rows).await?;
            count += rows.len() as u64;
        }
        anyhow::Ok(count)
    };
    Ok(block_on(db.transaction().try_run_bulk(&table, body))?.value)
}

/// Inserts sorted rows into a staged table.
fn insert(table: &StagedTable<[u8], [u8]>, rows: &Rows) -> Result<()> {
    let pair = |row| {
        let (_, key, value) = rows.get(row);
        (key, value)
    };
    block_on(table.load((0..rows.len()).map(pair), |_| {}))?;
    Ok(())
}
