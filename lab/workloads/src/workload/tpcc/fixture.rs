//! A database with the nine tables: loading, runs and checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braiddb::{BulkTables, Database};

use super::consistency::{self, Totals};
use super::load::load;
use super::schema::{Cardinalities, Kept, Tables};
use super::terminal::{Home, Style, Terminal};
use crate::error::Error;
use crate::harness::progress::Progress;

/// A database under test. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TpccBed {
    pub(crate) database: Database,
    tables: Tables,
    cardinalities: Cardinalities,
    /// The seed of the loaded data.
    seed: u64,
    /// The number of terminals ever created, also before the database was opened.
    sessions: Arc<AtomicU32>,
}

impl TpccBed {
    /// Fills a new database with this number of workers.
    pub(crate) fn fill(
        database: Database,
        kept: Kept,
        cardinalities: Cardinalities,
        seed: u64,
        workers: usize,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let bed = Self::made(database, kept, cardinalities, seed)?;
        load(&bed.database, &bed.tables, cardinalities, seed, workers, progress)?;
        Ok(bed)
    }

    /// Returns a fixture over a database that was filled before.
    pub(crate) fn over(
        database: Database,
        cardinalities: Cardinalities,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::made(database, Kept::default(), cardinalities, seed)
    }

    /// Returns a fixture whose tables exist, or are created with this kind of storage.
    fn made(
        database: Database,
        kept: Kept,
        cardinalities: Cardinalities,
        seed: u64,
    ) -> Result<Self, Error> {
        let tables = Tables::open(&database, kept)?;
        let history = tables.history.clone();
        let last = database.run_blocking(async move |tx| {
            Ok::<_, braiddb::Error>(tx.last(&history).await?.map(|(number, _)| number))
        })?;
        let sessions = Arc::new(AtomicU32::new(last.map_or(0, |number| (number >> 32) as u32)));
        Ok(Self { database, tables, cardinalities, seed, sessions })
    }

    /// Returns a function that creates terminals from seeds, in turn for each worker.
    pub(crate) fn terminals(
        &self,
        workers: usize,
        style: Style,
    ) -> impl FnMut(u64) -> Terminal + 'static {
        let (tables, sessions) = (self.tables.clone(), self.sessions.clone());
        let (cardinalities, loaded_with) = (self.cardinalities, self.seed);
        let mut made = 0;
        move |seed| {
            let home = Home::of_worker(made % workers, workers, cardinalities.warehouses);
            made += 1;
            // Relaxed: only the number matters.
            let session = sessions.fetch_add(1, Ordering::Relaxed) + 1;
            let seeds = (seed, loaded_with);
            Terminal::new(&tables, cardinalities, home, seeds, session, style)
        }
    }

    /// Returns the tables that the standard's mix writes.
    pub(super) fn written_tables(&self) -> impl BulkTables {
        let Tables { warehouses, districts, customers, history, .. } = &self.tables;
        let Tables { new_orders, orders, order_lines, stock, .. } = &self.tables;
        (warehouses, districts, customers, history, new_orders, orders, order_lines, stock)
    }

    /// Checks the consistency conditions.
    pub(crate) fn check(&self) -> Result<Totals, Error> {
        consistency::check(&self.database, &self.tables, self.cardinalities)
    }

    /// Closes the database. Its directory stays locked as long as a handle exists.
    pub(crate) fn close(self) -> Result<(), Error> {
        Ok(self.database.close()?)
    }
}
