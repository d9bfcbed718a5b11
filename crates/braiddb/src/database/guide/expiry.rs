//! Records that expire: sessions, caches and locks.
//!
//! Create a table with a lifetime ([`TableOptions::ttl`](crate::TableOptions::ttl)). An expired
//! record is invisible from the moment it expires; the workers delete it later. Every write of a
//! record restarts its lifetime. [`Transaction::put_with_ttl`](crate::Transaction::put_with_ttl)
//! sets a different lifetime for one record.
//!
//! A session that ends half an hour after its last use is rewritten at each use:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::{Duration, UNIX_EPOCH};
//!
//! use braiddb::{Database, Error, Options, Table, TableOptions, Tuning, WallClock, block_on};
//!
//! const UNUSED: Duration = Duration::from_mins(30);
//!
//! #[derive(Clone)]
//! struct Sessions {
//!     db: Database,
//!     users: Table<str, u64>,
//! }
//!
//! impl Sessions {
//!     async fn open(db: Database) -> Result<Self, Error> {
//!         let options = TableOptions::default().ttl(UNUSED);
//!         let open = async move |tx: &braiddb::Transaction| {
//!             tx.open_or_create_table_with("sessions", options).await
//!         };
//!         Ok(Self { users: db.run(open).await?, db })
//!     }
//!
//!     async fn begin(&self, session: &str, user: u64) -> Result<(), Error> {
//!         self.db.put(&self.users, session, &user).await
//!     }
//!
//!     /// Returns the user and restarts the lifetime; `None` if the session expired.
//!     async fn user(&self, session: &str) -> Result<Option<u64>, Error> {
//!         let session = session.to_owned();
//!         self.db
//!             .run_on(&self.users, async move |tx, users| {
//!                 let user = tx.get(users, &session).await?;
//!                 if let Some(user) = user {
//!                     tx.put(users, &session, &user).await?;
//!                 }
//!                 Ok(user)
//!             })
//!             .await
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         // A test advances its own clock instead of waiting.
//!         let minutes = Arc::new(AtomicU64::new(30_000_000));
//!         let shown = minutes.clone();
//!         let clock = WallClock::new(move || {
//!             UNIX_EPOCH + Duration::from_mins(shown.load(Ordering::SeqCst))
//!         });
//!         let tuning = Tuning::default().wall_clock(clock);
//!         let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
//!         let sessions = Sessions::open(db).await?;
//!         sessions.begin("a", 7).await?;
//!         minutes.fetch_add(20, Ordering::SeqCst);
//!         assert_eq!(sessions.user("a").await?, Some(7));
//!         minutes.fetch_add(20, Ordering::SeqCst);
//!         assert_eq!(sessions.user("a").await?, Some(7), "it was used in between");
//!         minutes.fetch_add(31, Ordering::SeqCst);
//!         assert_eq!(sessions.user("a").await?, None);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A lock that is not released in time expires. If two transactions try to take it at the same
//! time, only one succeeds, because transactions are serializable.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
//!
//! /// Takes a lock for the given time. Returns its end, or `None` if another owner has it.
//! async fn take(
//!     db: &Database,
//!     locks: &Table<str, u64>,
//!     name: &str,
//!     by: u64,
//!     time: Duration,
//! ) -> Result<Option<SystemTime>, Error> {
//!     let name = name.to_owned();
//!     db.run_on(locks, async move |tx, locks| {
//!         match tx.get(locks, &name).await? {
//!             Some(other) if other != by => return Ok(None),
//!             _ => tx.put_with_ttl(locks, &name, &by, time).await?,
//!         }
//!         tx.expires_at(locks, &name).await
//!     })
//!     .await
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let options = TableOptions::default().ttl(Duration::from_mins(1));
//!         let locks = db.create_table_with("locks", options).await?;
//!         let (report, hour) = ("nightly report", Duration::from_hours(1));
//!         assert!(take(&db, &locks, report, 1, hour).await?.is_some());
//!         assert_eq!(take(&db, &locks, report, 2, hour).await?, None);
//!         // The owner may extend the lock or release it.
//!         assert!(take(&db, &locks, report, 1, 2 * hour).await?.is_some());
//!         db.delete(&locks, report).await?;
//!         assert!(take(&db, &locks, report, 2, hour).await?.is_some());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Details:
//!
//! - A transaction uses one point in time from start to end, so a record does not expire while a
//!   transaction uses it.
//! - A table keeps the lifetime it was created with. A table created without a lifetime has none.
//! - Secondary indexes do not return expired records. A unique index allows the key of an expired
//!   record to be reused.
//! - A change feed reports expired records as deletions when the workers delete them.
//! - [`Database::sweep_expired`](crate::Database::sweep_expired) deletes all expired records
//!   immediately, for example before a backup.
