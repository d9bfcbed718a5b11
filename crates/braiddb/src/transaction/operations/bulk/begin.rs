//! Start of a bulk operation: waits for writers, and closes the gates of its tables.
//!
//! Deadlock freedom: gates are closed in table order, and those of an index's entries together with
//! its table's. Writers are refused; they never wait while they hold anything. An operation that
//! waits long for writers or for another operation releases all its gates and starts over. So an
//! operation that cannot begin does not block others for long.

use std::rc::Rc;
use std::sync::Arc;

use crate::log::LogError;
use crate::record::{ChangingIndexes, PagedRecords};
use crate::rid::TableId;
use crate::sched::{self, WaitCause, compiled_here};
use crate::sync::{self, clock};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::isolation::TransactionMode;
use crate::transaction::context::worker::{NoContext, WorkerTransactions};
use crate::transaction::sets::bulk_log::BulkLog;
use crate::transaction::sets::bulk_writes::{BulkGates, BulkTable, BulkWrites};

/// Number of polls before gates are released because writers do not finish. Other tasks run between
/// polls.
const MAX_POLLS: u32 = if cfg!(braid_simulation) { 64 } else { 1 << 10 };

/// Reasons why a bulk operation does not begin.
#[derive(Debug)]
pub(crate) enum CannotBegin {
    /// An index of this table is being created or dropped, or the table is being dropped.
    IndexBusy(Arc<str>),
    /// This table was dropped, or its creation was rolled back.
    Gone(Arc<str>),
    Log(Arc<LogError>),
    Closing,
}

impl WorkerTransactions {
    /// Closes the gates of paged tables and their indexes. Waits until no transaction writes them
    /// and every snapshot sees the effect of the last bulk operations on them.
    ///
    /// # Errors
    /// The reason why the operation does not begin.
    pub(crate) fn close_gates(
        &self,
        mut tables: Vec<Arc<PagedRecords>>,
    ) -> impl Future<Output = Result<BulkGates, CannotBegin>> {
        compiled_here(async move {
            tables.sort_unstable_by_key(|table| table.id);
            tables.dedup_by_key(|table| table.id);
            loop {
                // Before any gate is closed: a long-running reader must not block writers.
                for table in &tables {
                    self.wait_until(|| is_settled(table) && !gate(table).is_closed(), u32::MAX)
                        .await?;
                }
                let mut gates = BulkGates::default();
                if self.close_all(&tables, &mut gates).await? {
                    let closed = gates.closed.clone();
                    let is_left =
                        || closed.iter().all(|table| gate(table).is_empty() && is_settled(table));
                    if self.wait_until(is_left, MAX_POLLS).await? {
                        return Ok(gates);
                    }
                }
                // A writer or another operation holds a table for too long.
                drop(gates);
                self.wait_until(|| false, MAX_POLLS).await?;
            }
        })
    }

    /// Closes the gates of tables and their indexes; `false` if another operation keeps one closed
    /// for long.
    async fn close_all(
        &self,
        tables: &[Arc<PagedRecords>],
        gates: &mut BulkGates,
    ) -> Result<bool, CannotBegin> {
        for table in tables {
            if !self.close_gate(table, gates).await? {
                return Ok(false);
            }
            let Some(right) = ChangingIndexes::begin(&table.clone().into_any()) else {
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
                let entries = index.entries().clone().into_paged();
                let entries = entries.expect("the entries are paged if the table is");
                if !self.close_gate(&entries, gates).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn close_gate(
        &self,
        table: &Arc<PagedRecords>,
        gates: &mut BulkGates,
    ) -> Result<bool, CannotBegin> {
        let is_closed = self.wait_until(|| gate(table).close(), MAX_POLLS).await?;
        if is_closed {
            gates.closed.push(table.clone());
        }
        Ok(is_closed)
    }

    /// Waits until `is_so` holds; `false` if it does not after `max_looks` polls.
    ///
    /// # Errors
    /// Fails if the database closes or its log has failed.
    async fn wait_until(
        &self,
        mut is_so: impl FnMut() -> bool,
        max_looks: u32,
    ) -> Result<bool, CannotBegin> {
        /// From this poll on, the task sleeps between polls.
        const RESTS_FROM: u32 = 32;
        let engine = self.engine();
        for look in 0.. {
            if is_so() {
                return Ok(true);
            }
            if look >= max_looks {
                break;
            }
            if let Some(error) = engine.log.poisoned() {
                return Err(CannotBegin::Log(error));
            }
            if engine.checkpoints.stopping() {
                return Err(CannotBegin::Closing);
            }
            // A simulation must not depend on time, unless the schedule controls time.
            if look < RESTS_FROM || cfg!(braid_simulation) && !sync::takes_part() {
                sched::yield_now(WaitCause::Undecided).await;
                continue;
            }
            let until = clock::now() + std::time::Duration::from_millis(1);
            let timer = self.timers.set(until, sched::current_waiter().await);
            while !timer.is_over() {
                sched::park(WaitCause::BackOff).await;
            }
        }
        Ok(false)
    }

    /// Waits a limited time until a table's gate opens. The gate refused the transaction, which
    /// holds nothing that others wait for.
    pub(crate) async fn wait_for_gate(&self, table: TableId) {
        let table = self.engine().table(table);
        let is_open = || table.paged().is_none_or(|table| !gate(table).is_closed());
        // If the database closes, the next attempt reports it.
        _ = self.wait_until(is_open, MAX_POLLS).await;
    }

    /// Begins the transaction of a bulk operation after its gates were closed.
    ///
    /// # Errors
    /// Fails if every context is in use.
    pub(crate) fn begin_bulk(
        self: &Rc<Self>,
        mode: TransactionMode,
        gates: BulkGates,
    ) -> Result<ActiveTransaction, NoContext> {
        // After the gates were closed, so every earlier write to the tables precedes this snapshot.
        let transaction = self.begin_as(mode)?;
        let name = transaction.name();
        let each = gates.closed.iter().map(|table| BulkTable {
            table: table.clone(),
            epoch: table.pages().bulk().epochs.begin(name),
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

fn gate(table: &PagedRecords) -> &crate::page::BulkGate {
    &table.pages().bulk().gate
}

/// Returns whether every snapshot sees the last bulk operation on a table, or nothing remains of
/// it.
fn is_settled(table: &PagedRecords) -> bool {
    table.pages().bulk().epochs.newest().is_none()
}
