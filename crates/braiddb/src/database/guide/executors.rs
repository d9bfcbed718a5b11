//! Tokio and other executors; cancellation and deadlines.
//!
//! # Tokio and other executors
//!
//! Futures of Braid need no runtime: any executor can poll them. A closure may await something of
//! tokio (a timer, a channel, a client). Braid polls the closure inside the tokio runtime that
//! called `run`.
//!
//! A closure that waits for an external event keeps its transaction open, and its writes stay
//! locked against other writers. If possible, wait before or after the transaction.
//!
//! This program needs `cargo add tokio --features macros,rt,time`:
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
//!     // Many tokio tasks run transactions concurrently. Waiting for a commit blocks no thread.
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
//!     // Features of tokio work inside a transaction too.
//!     let count = db
//!         .run(async move |tx| {
//!             tokio::time::sleep(Duration::from_millis(1)).await;
//!             tx.get(&visits, "home").await
//!         })
//!         .await?;
//!     assert_eq!(count, Some(10));
//!     // Waits for running transactions, so call it outside of tokio's worker threads.
//!     tokio::task::spawn_blocking(move || db.close()).await.expect("it does not panic")
//! }
//! ```
//!
//! A closure that *blocks* (`std::thread::sleep`, a blocking client, a long computation) stops its
//! worker and every transaction on that worker. Do such work before the transaction, or on a
//! separate thread. Another worker takes over the transactions that were queued there but not
//! started, within about 20 ms ([`WorkerStats::taken_over`](crate::stats::WorkerStats)). The worker's
//! longest uninterrupted stall is in its statistics
//! ([`WorkerStats::longest_stretch`](crate::stats::WorkerStats)). `tracing` logs one warning if a stall
//! exceeds half a second.
//!
//! A closure may await every future of the database, also within `join!`, `select!` or
//! `FuturesUnordered`. It must not block on one (`block_on`), because only the blocked worker might
//! produce the result: the future then fails with [`Misuse::WouldBlock`](crate::Misuse), as if it was
//! dropped while it waited. Braid recognises a blocking executor by its polls: more than 1024 of the
//! same future before the closure returns to its worker. So a loop that polls an executor without
//! waiting (`try_tick`, `run_until_stalled`) must leave it at an `.await` from time to time.
//!
//! # Cancellation and deadlines
//!
//! Dropping a future of [`Database::run`](crate::Database::run), or of a single operation, before it
//! is ready aborts its transaction, with these limits:
//!
//! - The worker checks for the drop when it resumes the closure, before each operation of the
//!   closure, and immediately before the commit. An operation that has begun continues to its next
//!   wait, and code of the closure continues to its next `.await`.
//! - Once the commit has begun, it is not cancelled: the transaction commits, and only its result is
//!   lost. The caller cannot find out which of the two happened.
//! - Steps and the commit of an interactive transaction, checkpoints, compactions and changes of
//!   tables and indexes continue once they were polled.
//!
//! For a deadline, use
//! `tokio::time::timeout(limit, db.run(...))`. If the caller must know the result, write a record
//! in the same transaction (for example under a request number) and look for it later.
//!
//! This program needs `cargo add tokio --features macros,rt,time`:
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
//!     /// The requests that were executed, by request number.
//!     paid: Table<u64, u64>,
//! }
//!
//! impl Bank {
//!     /// Pays in once per request number. Returns `false` if the request was executed before.
//!     async fn pay_in(&self, request: u64, account: u64, cents: u64) -> Result<bool, Error> {
//!         let bank = self.clone();
//!         self.db
//!             .run(async move |tx| {
//!                 match tx.insert(&bank.paid, &request, &cents).await {
//!                     Err(Error::KeyExists(_)) => return Ok(false),
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
//!     // The first attempt may have met its deadline or not; the second one finds out.
//!     _ = timeout(Duration::from_micros(1), bank.pay_in(1, 7, 100)).await;
//!     bank.pay_in(1, 7, 100).await?;
//!     assert_eq!(bank.db.get(&bank.balances, &7).await?, Some(100));
//!
//!     // A transaction dropped before it ends has no effect.
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
