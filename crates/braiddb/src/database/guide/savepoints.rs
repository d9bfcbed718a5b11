//! Undoing a part of a transaction.
//!
//! A savepoint is a point to which a transaction can return: later writes are undone, earlier ones
//! stay. It lets a transaction try something that may be refused, and continue without it.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let seats: Table<u64, str> = db.create_table("seats").await?;
//!         db.put(&seats, &3, "taken").await?;
//!
//!         // Reserves all seats of a group or none, and goes on with the next group.
//!         let groups = [vec![1, 2], vec![3, 4], vec![5]];
//!         let reserved = db
//!             .run_on(&seats, async move |tx, seats| {
//!                 let mut reserved = Vec::new();
//!                 for group in &groups {
//!                     let before = tx.savepoint();
//!                     let mut refused = false;
//!                     for seat in group {
//!                         match tx.insert(seats, seat, "reserved").await {
//!                             Ok(()) => {}
//!                             Err(Error::KeyExists(_)) => refused = true,
//!                             Err(error) => return Err(error),
//!                         }
//!                     }
//!                     match refused {
//!                         true => tx.rollback_to(&before).await?,
//!                         false => reserved.extend(group.iter().copied()),
//!                     }
//!                 }
//!                 Ok(reserved)
//!             })
//!             .await?;
//!         assert_eq!(reserved, [1, 2, 5]);
//!         assert_eq!(db.get(&seats, &4).await?, None);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! - Savepoints nest and need no release. Returning to one ends the later ones; it stays valid itself.
//! - Reads are not undone: a serializable transaction is validated for everything that it read.
//! - After [`Error::Conflict`](crate::Error::Conflict), returning to a savepoint does not help. The
//!   closure returns the error, and runs again.
//! - [Interactive transactions](super::sessions) have savepoints, too.
