//! Transactions on borrowed tables: clones the handles for the closure, which runs on another
//! thread.

use super::error::Result;
use super::handle::Database;
use super::index::Index;
use super::table::Table;
use super::transaction::Transaction;

/// Tables and indexes for [`Database::run_on`]: a reference, a tuple of up to eight references, or an
/// array of any length. Tuples and arrays may contain tuples and arrays. For more tables, put clones
/// into a struct, and call [`Database::run`].
#[diagnostic::on_unimplemented(
    message = "`run_on` cannot pass `{Self}` to a closure",
    label = "not a reference to a table or an index",
    note = "pass references: `&table`, or `(&a, &b)` for several; `run_on` clones the handles and passes references to the closure"
)]
pub trait Handles: sealed::Cloned {}

impl<T: sealed::Cloned> Handles for T {}

mod sealed {
    use super::{Index, Table};

    /// Clones the handles for a closure. The compiler names this trait if an element of a tuple or
    /// array does not implement it, so the message is the same.
    #[diagnostic::on_unimplemented(
        message = "`run_on` cannot pass `{Self}` to a closure",
        label = "not a reference to a table or an index",
        note = "pass references: `&table`, or `(&a, &b)` for several; `run_on` clones the handles and passes references to the closure"
    )]
    pub trait Cloned {
        #[doc(hidden)]
        type Owned: Send + 'static;

        #[doc(hidden)]
        fn cloned(self) -> Self::Owned;
    }

    impl<K: ?Sized + 'static, V: ?Sized + 'static> Cloned for &Table<K, V> {
        type Owned = Table<K, V>;

        fn cloned(self) -> Self::Owned {
            self.clone()
        }
    }

    impl<S, K, V> Cloned for &Index<S, K, V>
    where
        S: ?Sized + 'static,
        K: ?Sized + 'static,
        V: ?Sized + 'static,
    {
        type Owned = Index<S, K, V>;

        fn cloned(self) -> Self::Owned {
            self.clone()
        }
    }

    impl<T: Cloned, const N: usize> Cloned for [T; N] {
        type Owned = [T::Owned; N];

        fn cloned(self) -> Self::Owned {
            self.map(T::cloned)
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            impl<$($name: Cloned),+> Cloned for ($($name,)+) {
                type Owned = ($($name::Owned,)+);

                #[expect(non_snake_case, reason = "each is called as its type")]
                fn cloned(self) -> Self::Owned {
                    let ($($name,)+) = self;
                    ($($name.cloned(),)+)
                }
            }
        };
    }

    tuples! { A }
    tuples! { A B }
    tuples! { A B C }
    tuples! { A B C D }
    tuples! { A B C D E }
    tuples! { A B C D E F }
    tuples! { A B C D E F G }
    tuples! { A B C D E F G H }
}

impl Database {
    /// Runs `body` like [`Database::run`] and passes it the tables and indexes in `tables`.
    ///
    /// The closure runs on another thread, so it cannot borrow from the caller. `run_on` clones the
    /// handles for it, which is cheap.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let accounts: Table<u64, u64> = db.create_table("accounts").await?;
    ///         let journal: Table<u64, str> = db.create_table("journal").await?;
    ///         db.run_on((&accounts, &journal), async |tx, (accounts, journal)| {
    ///             tx.put(accounts, &1, &100).await?;
    ///             tx.put(journal, &1, "opened").await
    ///         })
    ///         .await?;
    ///         assert_eq!(db.get(&accounts, &1).await?, Some(100));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn run_on<H, T, F>(
        &self,
        tables: H,
        body: F,
    ) -> impl Future<Output = Result<T>> + Send + use<H, T, F>
    where
        H: Handles,
        F: AsyncFn(&Transaction, &H::Owned) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let tables = tables.cloned();
        self.run(async move |tx| body(tx, &tables).await)
    }
}
