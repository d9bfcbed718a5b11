//! Point reads.

use super::context::Transaction;
use crate::reclaim;
use crate::record::Table;

impl Transaction {
    /// The value of `key` as the transaction sees it; valid while the transaction is active.
    pub(crate) async fn get<'a>(&'a self, table: &Table, key: &[u8]) -> Option<&'a [u8]> {
        let _operation = reclaim::enter();
        let rid = table.index.get(key).await?;
        // SAFETY: the guard above covers the call, and `self` is active for `'a`.
        let seen = unsafe { table.read::<'a>(rid, self.view()).await }?;
        self.note(&seen);
        self.remember(table, key, rid);
        Some(seen.version.payload())
    }
}
