//! Programs without async code.
//!
//! Operations of a database are futures, and need no async runtime.
//! [`block_on`](crate::block_on) waits for one, and [`run_blocking`](crate::Database::run_blocking) runs
//! a transaction; both block the calling thread. Any number of threads may do so, each with a clone of
//! the database or a reference to it. Transactions of many threads are committed by one flush.
//!
//! A transaction's closure is async, because a thread of the database runs many closures at the same
//! time. It awaits the operations of its transaction, and nothing else.
//!
//! ```
//! use std::thread;
//!
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let accounts: Table<str, u64> = block_on(db.open_or_create_table("accounts"))?;
//!     block_on(db.put(&accounts, "ada", &100))?;
//!     block_on(db.put(&accounts, "bob", &0))?;
//!
//!     thread::scope(|scope| {
//!         let transfers = [(); 4].map(|()| scope.spawn(|| transfer(&db, &accounts, 10)));
//!         transfers.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
//!     })?;
//!     assert_eq!(block_on(db.get(&accounts, "bob"))?, Some(40));
//!
//!     for (name, balance) in block_on(db.scan(&accounts, ..).limit(100))? {
//!         println!("{name} has {balance}");
//!     }
//!     db.close()
//! }
//!
//! fn transfer(db: &Database, accounts: &Table<str, u64>, sum: u64) -> Result<(), Error> {
//!     let accounts = accounts.clone();
//!     db.run_blocking(async move |tx| {
//!         for (name, change) in [("ada", sum.wrapping_neg()), ("bob", sum)] {
//!             let balance = tx.get(&accounts, name).await?.unwrap_or(0);
//!             tx.put(&accounts, name, &balance.wrapping_add(change)).await?;
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A closure with an error type of the program runs by
//! [`try_run`](crate::Database::try_run) within `block_on`. The builder's
//! [`try_run_blocking`](crate::TransactionBuilder::try_run_blocking) does the same with options, and
//! also returns the number of attempts:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! #[derive(Debug)]
//! enum Refused {
//!     Poor { missing: u64 },
//!     Database(Error),
//! }
//!
//! impl From<Error> for Refused {
//!     fn from(error: Error) -> Self {
//!         Refused::Database(error)
//!     }
//! }
//!
//! fn spend(db: &Database, accounts: &Table<str, u64>, sum: u64) -> Result<(), Refused> {
//!     let accounts = accounts.clone();
//!     block_on(db.try_run(async move |tx| {
//!         let balance = tx.get(&accounts, "ada").await?.unwrap_or(0);
//!         let left = balance.checked_sub(sum).ok_or(Refused::Poor { missing: sum - balance })?;
//!         tx.put(&accounts, "ada", &left).await?;
//!         Ok(())
//!     }))
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let accounts: Table<str, u64> = block_on(db.create_table("accounts"))?;
//!     block_on(db.put(&accounts, "ada", &100))?;
//!     assert!(matches!(spend(&db, &accounts, 130), Err(Refused::Poor { missing: 30 })));
//!     spend(&db, &accounts, 100).unwrap();
//!     Ok(())
//! }
//! ```
//!
//! | the compiler reports | remedy |
//! |---|---|
//! | "`await` is only allowed inside `async` functions and blocks" | wrap the operation in `block_on(…)` |
//! | a type mismatch with an "opaque type" or "`impl Future`" | the result is a future: wrap it in `block_on(…)` |
//! | "expected a closure, found async closure", or the closure "is not async" | write `async move \|tx\| { … }` |
