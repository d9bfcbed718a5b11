//! Point reads.

use super::context::Transaction;
use super::error::OperationError;
use crate::reclaim;
use crate::record::{Far, Located, Table};
use crate::rid::Rid;
use crate::sched::{self, Cause, Interleaved};
use crate::types::KeyBuffer;
use crate::version::Address;

impl Transaction {
    /// The value of `key` as the transaction sees it; valid while the transaction is active.
    ///
    /// # Errors
    /// The log's, if the value is there and cannot be read; `Overloaded`.
    pub(crate) async fn get<'a>(
        &'a self,
        table: &Table,
        key: &[u8],
    ) -> Result<Option<&'a [u8]>, OperationError> {
        let operation = reclaim::enter();
        sched::count_steps(1).await;
        let Some(rid) = table.index.get(key, &operation).await else { return Ok(None) };
        // SAFETY: the guard above covers the call, and `self` is active for `'a`.
        let seen = match unsafe { table.find(rid, self.view()).await } {
            Ok(seen) => seen,
            Err(address) => {
                self.may_read()?;
                // SAFETY: as above.
                let fetched = unsafe { table.fetch(rid, address, self.copies()).await };
                Some(fetched.map_err(OperationError::Storage)?)
            }
        };
        let value = self.note(seen);
        if value.is_some() {
            self.remember(table, key, rid);
        }
        Ok(value)
    }

    /// Whether storage may be read now.
    ///
    /// # Errors
    /// `Overloaded` if too many of the worker's transactions do, and those beyond are to fail.
    pub(super) fn may_read(&self) -> Result<(), OperationError> {
        match self.engine().shed_beyond {
            Some(most) if sched::transfers() >= most => Err(OperationError::Overloaded),
            _ => Ok(()),
        }
    }

    /// Where in the log the version of a record is that the transaction sees; `None` if it sees
    /// none. The caller holds an operation guard.
    ///
    /// # Errors
    /// `Unlogged` if the log does not have it.
    pub(crate) async fn locate(
        &self,
        table: &Table,
        rid: Rid,
    ) -> Result<Option<Address>, OperationError> {
        loop {
            // SAFETY: the caller's guard, and `self` is active.
            match unsafe { table.locate(rid, self.view()) } {
                Ok(None) => return Ok(None),
                Ok(Some(Located::At(address))) => {
                    self.note_lsn(address.lsn());
                    return Ok(Some(address));
                }
                Ok(Some(Located::Unlogged)) => return Err(OperationError::Unlogged),
                Err(Far) => sched::yield_now(Cause::Undecided).await,
            }
        }
    }

    /// The values of many keys, in their order, looked up side by side.
    pub(crate) async fn multi_get<'a>(
        &'a self,
        table: &Table,
        keys: &[KeyBuffer],
    ) -> Result<Vec<Option<&'a [u8]>>, OperationError> {
        /// Look-ups in flight at a time: more would push each other's lines out of the cache.
        const WIDTH: usize = 32;
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(WIDTH) {
            for value in Interleaved::new(some.iter().map(|key| self.get(table, key))).await {
                values.push(value?);
            }
        }
        Ok(values)
    }
}
