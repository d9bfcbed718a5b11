//! Records that expire.
//!
//! A table that is created with a lifetime ([`TableOptions::ttl`](crate::TableOptions::ttl)) is for sessions, caches and locks:
//! records are unseen from the moment on at which they expire, and the workers delete them later. Every write of a record gives it
//! a new moment; [`Transaction::put_with_ttl`](crate::Transaction::put_with_ttl) one of its own.
//!
//! A session that lives for half an hour after it was last used is written anew at each use:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::{Duration, UNIX_EPOCH};
//!
//! use braiddb::{Database, Error, Options, Table, TableOptions, Tuning, WallClock};
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
//!         let open = async move |tx: &braiddb::Transaction| tx.open_or_create_table_with("sessions", options).await;
//!         Ok(Self { users: db.run(open).await?, db })
//!     }
//!
//!     async fn begin(&self, session: &str, user: u64) -> Result<(), Error> {
//!         self.db.put(&self.users, session, &user).await
//!     }
//!
//!     /// Whose session it is; it lives on from now. `None` if there is none any more.
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
//! # pollster::block_on(async {
//! // A test advances its own clock and does not wait.
//! let minutes = Arc::new(AtomicU64::new(30_000_000));
//! let shown = minutes.clone();
//! let clock = WallClock::new(move || UNIX_EPOCH + Duration::from_mins(shown.load(Ordering::SeqCst)));
//! let tuning = Tuning::default().wall_clock(clock);
//! let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
//! let sessions = Sessions::open(db).await?;
//! sessions.begin("a", 7).await?;
//! minutes.fetch_add(20, Ordering::SeqCst);
//! assert_eq!(sessions.user("a").await?, Some(7));
//! minutes.fetch_add(20, Ordering::SeqCst);
//! assert_eq!(sessions.user("a").await?, Some(7), "it was used in between");
//! minutes.fetch_add(31, Ordering::SeqCst);
//! assert_eq!(sessions.user("a").await?, None);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! A lock that is not given back in time is free again by itself. Of two who try to take it at once, one has it: transactions
//! are serializable.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use braiddb::{Database, Error, Options, Table, TableOptions};
//!
//! /// Takes a lock for so long; `None` if somebody else has it, and until when it is taken otherwise.
//! async fn take(db: &Database, locks: &Table<str, u64>, name: &str, by: u64, time: Duration) -> Result<Option<SystemTime>, Error> {
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
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let locks = db.create_table_with("locks", TableOptions::default().ttl(Duration::from_mins(1))).await?;
//! assert!(take(&db, &locks, "nightly report", 1, Duration::from_hours(1)).await?.is_some());
//! assert_eq!(take(&db, &locks, "nightly report", 2, Duration::from_hours(1)).await?, None);
//! // Who has it may have it for longer, or give it back.
//! assert!(take(&db, &locks, "nightly report", 1, Duration::from_hours(2)).await?.is_some());
//! db.delete(&locks, "nightly report").await?;
//! assert!(take(&db, &locks, "nightly report", 2, Duration::from_hours(1)).await?.is_some());
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! A transaction has one time from its beginning to its end, so a record does not expire under it. A table keeps the lifetime that it
//! was created with, and one that was created without has none. Secondary indexes find no record that has expired, and a
//! unique one lets its key be taken. Records that were swept come in a change feed as deletions. Before a backup,
//! [`Database::sweep_expired`](crate::Database::sweep_expired) deletes at once what nobody can see.
