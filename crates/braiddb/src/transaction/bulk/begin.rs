//! How a bulk operation begins: what it waits for, and the gates that it closes.
//!
//! Nobody waits in a circle: gates are closed in the order of tables, those of an index's entries with its table's; writers
//! are refused, and wait for nothing while they hold anything. Who waits for writers, or for another operation, gives all
//! gates back if it takes long, and begins anew: so nobody is kept out for long by an operation that does not begin.

use std::rc::Rc;
use std::sync::Arc;

use super::{BulkLog, BulkTable, BulkWrites};
use crate::log::LogError;
use crate::record::{ChangingIndexes, Records};
use crate::rid::TableId;
use crate::sched::{self, Cause};
use crate::sync::{self, clock};
use crate::transaction::context::Transaction;
use crate::transaction::isolation::Mode;
use crate::transaction::worker::{NoContext, WorkerTransactions};

/// Looks between which others run, and after how many of them gates are given back that writers do not leave.
const MAX_LOOKS: u32 = if cfg!(braid_simulation) { 64 } else { 1 << 10 };

/// Closed gates, and the right that nobody changes the tables' indexes; both given back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct BulkGates {
    /// Tables and the entries of their indexes, whose gates are closed.
    closed: Vec<Arc<Records>>,
    rights: Vec<ChangingIndexes>,
}

/// Why a bulk operation does not begin.
#[derive(Debug)]
pub(crate) enum CannotBegin {
    /// An index of this table is created or dropped, or the table is dropped.
    IndexBusy(Arc<str>),
    /// This table was dropped, or never came to be.
    Gone(Arc<str>),
    Log(Arc<LogError>),
    Closing,
}

impl Drop for BulkGates {
    fn drop(&mut self) {
        // First: who closes a gate next finds the right there.
        self.rights.clear();
        for table in &self.closed {
            table.paged().expect("a paged table").bulk().gate.open();
        }
    }
}

impl WorkerTransactions {
    /// Closes the gates of paged tables and of their indexes, and waits until nobody writes them, and all see what
    /// the last bulk operations on them did.
    ///
    /// # Errors
    /// Why the operation does not begin.
    pub(crate) async fn close_gates(
        &self,
        mut tables: Vec<Arc<Records>>,
    ) -> Result<BulkGates, CannotBegin> {
        tables.sort_unstable_by_key(|table| table.id);
        tables.dedup_by_key(|table| table.id);
        loop {
            // Before any gate is closed: a reader that is open for long keeps no writer out.
            for table in &tables {
                self.wait_until(|| is_settled(table) && !gate(table).is_closed(), u32::MAX).await?;
            }
            let mut gates = BulkGates::default();
            if self.close_all(&tables, &mut gates).await? {
                let closed = gates.closed.clone();
                let is_left =
                    || closed.iter().all(|table| gate(table).is_empty() && is_settled(table));
                if self.wait_until(is_left, MAX_LOOKS).await? {
                    return Ok(gates);
                }
            }
            // Somebody has written, or has a gate, and does not come to an end.
            drop(gates);
            self.wait_until(|| false, MAX_LOOKS).await?;
        }
    }

    /// Closes the gates of tables and of their indexes; `false` if another operation has one for long.
    async fn close_all(
        &self,
        tables: &[Arc<Records>],
        gates: &mut BulkGates,
    ) -> Result<bool, CannotBegin> {
        for table in tables {
            if !self.close_gate(table, gates).await? {
                return Ok(false);
            }
            let Some(right) = ChangingIndexes::begin(table) else {
                return Err(CannotBegin::IndexBusy(table.name()));
            };
            gates.rights.push(right);
            if table.is_gone() {
                return Err(CannotBegin::Gone(table.name()));
            }
            for index in table.secondaries().iter() {
                if !index.is_built() {
                    return Err(CannotBegin::IndexBusy(table.name()));
                }
                if !self.close_gate(index.entries(), gates).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn close_gate(
        &self,
        table: &Arc<Records>,
        gates: &mut BulkGates,
    ) -> Result<bool, CannotBegin> {
        let is_closed = self.wait_until(|| gate(table).close(), MAX_LOOKS).await?;
        if is_closed {
            gates.closed.push(table.clone());
        }
        Ok(is_closed)
    }

    /// Waits until `is_so`; `false` if that is not so after some looks.
    ///
    /// # Errors
    /// When the database closes, or its log has failed.
    async fn wait_until(
        &self,
        mut is_so: impl FnMut() -> bool,
        most_looks: u32,
    ) -> Result<bool, CannotBegin> {
        /// From this look on the thread is given to others in between.
        const RESTS_FROM: u32 = 32;
        let engine = self.engine();
        for look in 0.. {
            if is_so() {
                return Ok(true);
            }
            if look >= most_looks {
                break;
            }
            if let Some(error) = engine.log.poisoned() {
                return Err(CannotBegin::Log(error));
            }
            if engine.checkpoints.stopping() {
                return Err(CannotBegin::Closing);
            }
            // What happens in a simulation must not depend on time, unless that is the schedule's.
            if look < RESTS_FROM || cfg!(braid_simulation) && !sync::takes_part() {
                sched::yield_now(Cause::Undecided).await;
                continue;
            }
            let until = clock::now() + std::time::Duration::from_millis(1);
            let timer = self.timers.set(until, sched::current_waiter().await);
            while !timer.is_over() {
                sched::park(Cause::BackOff).await;
            }
        }
        Ok(false)
    }

    /// Waits until a table's gate is open, for a while: a transaction was refused by it, and has nothing that others wait for.
    pub(crate) async fn wait_for_gate(&self, table: TableId) {
        let table = self.engine().table(table);
        let is_open = || table.paged().is_none_or(|paged| !paged.bulk().gate.is_closed());
        // When the database closes, the next attempt says so.
        _ = self.wait_until(is_open, MAX_LOOKS).await;
    }

    /// Begins the transaction of a bulk operation, whose gates are closed.
    ///
    /// # Errors
    /// When every context is in use.
    pub(crate) fn begin_bulk(
        self: &Rc<Self>,
        mode: Mode,
        gates: BulkGates,
    ) -> Result<Transaction, NoContext> {
        // After the gates were closed: so all that was written to the tables is before it.
        let transaction = self.begin_as(mode)?;
        let name = transaction.name();
        let each = gates.closed.iter().map(|table| BulkTable {
            table: table.clone(),
            epoch: table.paged().expect("a paged table").bulk().epochs.begin(name),
            is_written: false,
            covers: false,
            more: 0,
        });
        let tables: Vec<_> = each.collect();
        let epochs = tables.iter().map(|one: &BulkTable| (one.table.id, one.epoch));
        transaction.bulk_epochs().borrow_mut().extend(epochs);
        transaction.writes().borrow_mut().bulk = Some(Box::new(BulkWrites {
            tables,
            log: BulkLog::default(),
            is_busy: false,
            written: 0,
            deletes_only: true,
            _gates: gates,
        }));
        Ok(transaction)
    }
}

fn gate(table: &Records) -> &crate::page::Gate {
    &table.paged().expect("a paged table").bulk().gate
}

/// Whether all see what the last bulk operation on a table did, or nothing is left of it.
fn is_settled(table: &Records) -> bool {
    table.paged().expect("a paged table").bulk().epochs.newest().is_none()
}
