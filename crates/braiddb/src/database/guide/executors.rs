//! tokio, and other executors; cancellation.
//!
//! # tokio, and other executors
//!
//! Futures of Braid need no runtime: any executor polls them. Where a closure awaits something of tokio's (a
//! timer, a channel, a client), Braid enters the runtime that called `run` while it polls the closure. A
//! closure that waits for something outside keeps its transaction open, and what it wrote locked against other
//! writers: wait before the transaction, or after it, where you can.
//!
//! ```
//! use std::time::Duration;
//!
//! use braiddb::{Database, Error, Options, Table};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let visits: Table<str, u64> = db.create_table("visits").await?;
//!     // Many at once, from tasks of tokio's; each awaits its own commit, and holds no thread meanwhile.
//!     let mut tasks = tokio::task::JoinSet::new();
//!     for _ in 0..10 {
//!         let (db, visits) = (db.clone(), visits.clone());
//!         tasks.spawn(async move {
//!             let more = |count: Option<u64>| Some(count.unwrap_or(0) + 1);
//!             db.fetch_update(&visits, "home", more).await
//!         });
//!     }
//!     while let Some(done) = tasks.join_next().await {
//!         done.expect("it does not panic")?;
//!     }
//!     // What is of tokio's works within a transaction too.
//!     let count = db
//!         .run(async move |tx| {
//!             tokio::time::sleep(Duration::from_millis(1)).await;
//!             tx.get(&visits, "home").await
//!         })
//!         .await?;
//!     assert_eq!(count, Some(10));
//!     // Waits for what is under way: off the threads on which tokio runs its tasks.
//!     tokio::task::spawn_blocking(move || db.close()).await.expect("it does not panic")
//! }
//! ```
//!
//! A closure that *blocks* (`std::thread::sleep`, a blocking client, long computation) stops its worker, and
//! everything that worker has begun. Do that before the transaction, or on a thread for it. What was sent to the worker
//! and has not begun is taken over by another one within some 20 ms ([`WorkerStats::taken_over`](crate::stats::WorkerStats)).
//! The longest time for which a worker did nothing else is in its statistics
//! ([`WorkerStats::longest_stretch`](crate::stats::WorkerStats)), and `tracing` warns of half a second, once.
//!
//! # Cancellation
//!
//! A future that is dropped before it is ready aborts its transaction, unless the commit was decided already: the
//! caller who no longer waits cannot know which. `tokio::time::timeout(limit, db.run(...))` is how a request gets a
//! deadline; whoever must know what became of it writes a record of its own in the transaction (a request's number, say),
//! and looks for it.
//!
//! ```
//! use std::time::Duration;
//!
//! use braiddb::{Database, Error, Options, Table};
//! use tokio::time::timeout;
//!
//! #[derive(Clone)]
//! struct Bank {
//!     db: Database,
//!     balances: Table<u64, u64>,
//!     /// The requests that were carried out, by their numbers.
//!     paid: Table<u64, u64>,
//! }
//!
//! impl Bank {
//!     /// Pays in, once, however often a request is sent; `false` if it was carried out before.
//!     async fn pay_in(&self, request: u64, account: u64, cents: u64) -> Result<bool, Error> {
//!         let bank = self.clone();
//!         self.db
//!             .run(async move |tx| {
//!                 match tx.insert(&bank.paid, &request, &cents).await {
//!                     Err(Error::KeyExists) => return Ok(false),
//!                     inserted => inserted?,
//!                 }
//!                 let more = |there: Option<u64>| Some(there.unwrap_or(0) + cents);
//!                 tx.fetch_update(&bank.balances, &account, more).await?;
//!                 Ok(true)
//!             })
//!             .await
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let balances = db.create_table("balances").await?;
//!     let bank = Bank { paid: db.create_table("paid").await?, balances, db };
//!     // Whether this one was in time or not, the next one knows.
//!     _ = timeout(Duration::from_micros(1), bank.pay_in(1, 7, 100)).await;
//!     bank.pay_in(1, 7, 100).await?;
//!     assert_eq!(bank.db.get(&bank.balances, &7).await?, Some(100));
//!
//!     // What is given up before it ends has not happened.
//!     let within = bank.clone();
//!     let given_up = bank.db.run(async move |tx| {
//!         tx.put(&within.balances, &7, &0).await?;
//!         std::future::pending::<Result<(), Error>>().await
//!     });
//!     assert!(timeout(Duration::from_millis(1), given_up).await.is_err());
//!     assert_eq!(bank.db.get(&bank.balances, &7).await?, Some(100));
//!     Ok(())
//! }
//! ```
