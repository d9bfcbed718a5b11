//! Savepoints: points in a transaction to which it can be rolled back.

use super::error::Result;
use super::interactive::InteractiveTransaction;
use super::transaction::Transaction;
use crate::sched::{engine_call, engine_code};
use crate::transaction;

/// A point in a transaction to which it can be rolled back: see [`Transaction::savepoint`].
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let table = names.clone();
///         db.run(async move |tx| {
///             tx.put(&table, &1, "ada").await?;
///             let savepoint = tx.savepoint();
///             for name in ["bob", "bobby"] {
///                 tx.insert(&table, &2, name).await?;
///                 tx.rollback_to(&savepoint).await?;
///             }
///             Ok(())
///         })
///         .await?;
///         assert_eq!(db.len(&names).await?, 1);
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Savepoint(transaction::WriteSavepoint);

impl Transaction {
    /// Creates a savepoint, to which [`Transaction::rollback_to`] can undo later writes. Savepoints
    /// can be nested, need no release, and have no cost unless something is written.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, u64> = block_on(db.create_table("orders"))?;
    ///     let kept = db.run_blocking(async move |tx| {
    ///         tx.put(&table, &1, &10).await?;
    ///         let savepoint = tx.savepoint();
    ///         tx.put(&table, &1, &11).await?;
    ///         tx.insert(&table, &2, &20).await?;
    ///         tx.rollback_to(&savepoint).await?;
    ///         assert_eq!(tx.get(&table, &2).await?, None);
    ///         tx.get(&table, &1).await
    ///     })?;
    ///     assert_eq!(kept, Some(10));
    ///     Ok(())
    /// }
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(engine_call(|| self.core.savepoint()))
    }

    /// Undoes everything the transaction wrote after a savepoint, including tables that it created.
    /// Later savepoints become invalid; this savepoint stays valid. References to values that were
    /// undone also stay valid. An open scan continues after the record that it returned last.
    ///
    /// Reads are not undone: a serializable transaction is still validated for everything it read,
    /// also for reads that were part of the undone writes. A transaction that met a conflict must
    /// still abort.
    ///
    /// Operations of the transaction that run at the same time find some of the writes undone. Of two
    /// rollbacks at the same time, the one to the earlier savepoint undoes everything, and the other
    /// fails with [`Misuse::SavepointEnded`](crate::Misuse). If the future is dropped or leaked before
    /// it is ready, the transaction can no longer commit.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let orders: Table<u64, u64> = db.create_table("orders").await?;
    ///         let kept = db.run_on(&orders, async |tx, orders| {
    ///             tx.put(orders, &1, &10).await?;
    ///             let first = tx.savepoint();
    ///             tx.put(orders, &2, &20).await?;
    ///             tx.rollback_to(&first).await?;
    ///             // The savepoint stays valid.
    ///             tx.put(orders, &3, &30).await?;
    ///             tx.rollback_to(&first).await?;
    ///             tx.count(orders, ..).await
    ///         });
    ///         assert_eq!(kept.await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::SavepointEnded`](crate::Misuse) if the savepoint belongs to another
    /// transaction, or the transaction was rolled back to an earlier savepoint since.
    pub async fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        Ok(engine_code(self.core.rollback_to(savepoint.0)).await?)
    }
}

impl InteractiveTransaction {
    /// See [`Transaction::savepoint`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         let savepoint = transaction.savepoint().await?;
    ///         transaction.put(&names, &2, "bob").await?;
    ///         transaction.rollback_to(&savepoint).await?;
    ///         transaction.commit().await?;
    ///         assert_eq!(db.len(&names).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`InteractiveTransaction::step`].
    pub async fn savepoint(&self) -> Result<Savepoint> {
        self.step(async |tx: &Transaction| Ok(tx.savepoint())).await
    }

    /// See [`Transaction::rollback_to`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         let before = transaction.savepoint().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         transaction.rollback_to(&before).await?;
    ///         assert_eq!(transaction.get(&names, &1).await?, None);
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::rollback_to`] and [`InteractiveTransaction::step`].
    pub async fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        let savepoint = *savepoint;
        self.step(async move |tx: &Transaction| tx.rollback_to(&savepoint).await).await
    }
}
