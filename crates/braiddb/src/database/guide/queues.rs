//! A queue of jobs that several workers take and finish.
//!
//! The key of a job is the time from which a worker may take it, and the job's number. So the first
//! record of the table is the job that is due first. A worker *leases* a job: it moves the job to the
//! time at which the lease ends. If the worker does not finish it by then, the job is due again.
//! Finishing a job and storing its result are one transaction, so each job has one result:
//!
//! ```
//! use std::time::Duration;
//!
//! use braiddb::{Database, Error, Options, Postcard, Table, block_on};
//!
//! struct Queue {
//!     db: Database,
//!     /// By due time in milliseconds and number: how often the job was leased, and its text.
//!     jobs: Table<(u64, u64), Postcard<(u64, String)>>,
//!     /// By number: results.
//!     results: Table<u64, str>,
//! }
//!
//! struct Leased {
//!     key: (u64, u64),
//!     lease: u64,
//!     text: String,
//! }
//!
//! impl Queue {
//!     /// Leases the job that is due first.
//!     async fn take(&self, now: u64, lease: Duration) -> Result<Option<Leased>, Error> {
//!         let end = now + lease.as_millis() as u64;
//!         self.db
//!             .run_on(&self.jobs, async move |tx, jobs| {
//!                 let Some(((due, number), (leases, text))) = tx.first(jobs).await? else {
//!                     return Ok(None);
//!                 };
//!                 if due > now {
//!                     return Ok(None);
//!                 }
//!                 let (key, job) = ((end, number), (leases + 1, text));
//!                 tx.delete(jobs, &(due, number)).await?;
//!                 tx.insert(jobs, &key, &job).await?;
//!                 Ok(Some(Leased { key, lease: job.0, text: job.1 }))
//!             })
//!             .await
//!     }
//!
//!     /// Stores the result. Returns `false` if another worker has taken the job since.
//!     async fn finish(&self, job: &Leased, result: &str) -> Result<bool, Error> {
//!         let (key, lease, result) = (job.key, job.lease, result.to_owned());
//!         self.db
//!             .run_on((&self.jobs, &self.results), async move |tx, (jobs, results)| {
//!                 if tx.get(jobs, &key).await?.is_none_or(|(current, _)| current != lease) {
//!                     return Ok(false);
//!                 }
//!                 tx.delete(jobs, &key).await?;
//!                 tx.insert(results, &key.1, &result).await?;
//!                 Ok(true)
//!             })
//!             .await
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let (jobs, results) =
//!             (db.create_table("jobs").await?, db.create_table("results").await?);
//!         let queue = Queue { db, jobs, results };
//!         queue.db.insert(&queue.jobs, &(0, 1), &(0, "sweep".to_owned())).await?;
//!
//!         let second = Duration::from_secs(1);
//!         let late = queue.take(0, second).await?.expect("a job is due");
//!         assert!(queue.take(999, second).await?.is_none());
//!         // The lease has ended, so another worker takes the job.
//!         let other = queue.take(1000, second).await?.expect("it is due again");
//!         assert_eq!((other.lease, &*other.text), (2, "sweep"));
//!         assert!(!queue.finish(&late, "swept late").await?);
//!         assert!(queue.finish(&other, "swept").await?);
//!         assert_eq!(queue.db.get(&queue.results, &1).await?.as_deref(), Some("swept"));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A late report finds no job under its key. The number of the lease refuses it also if the clock was
//! set back and two leases end in the same millisecond.
//!
//! All workers write the first record: of several that take a job at the same time, one commits and
//! the others run again. Many workers should choose randomly among the first few due jobs, as
//! `examples/queue.rs` does.
//!
//! A worker that finds no job can wait for the next change of the table by a
//! [change feed](super::change_feed), and otherwise until the first job is due.
