//! Point reads.

use super::context::Transaction;
use crate::reclaim;
use crate::record::Table;
use crate::sched::Interleaved;
use crate::types::KeyBuffer;

impl Transaction {
    /// The value of `key` as the transaction sees it; valid while the transaction is active.
    pub(crate) async fn get<'a>(&'a self, table: &Table, key: &[u8]) -> Option<&'a [u8]> {
        let _operation = reclaim::enter();
        let rid = table.index.get(key).await?;
        // SAFETY: the guard above covers the call, and `self` is active for `'a`.
        let seen = unsafe { table.read(rid, self.view()).await }?;
        self.note(&seen);
        self.remember(table, key, rid);
        Some(seen.version.payload())
    }

    /// The values of many keys, in their order, looked up side by side.
    pub(crate) async fn multi_get<'a>(
        &'a self,
        table: &Table,
        keys: &[KeyBuffer],
    ) -> Vec<Option<&'a [u8]>> {
        /// Look-ups in flight at a time: more would push each other's lines out of the cache.
        const WIDTH: usize = 32;
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(WIDTH) {
            values.extend(Interleaved::new(some.iter().map(|key| self.get(table, key))).await);
        }
        values
    }
}
