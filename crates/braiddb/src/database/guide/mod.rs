//! How-to guides for services. Each example is a whole program. The tests compile and run all of
//! them, except those of [`moving`] that use other stores: the gate runs these, without RocksDB's.
//!
//! | page | content |
//! |---|---|
//! | [`closures`] | transactions as closures, and the tables that they use |
//! | [`errors`] | errors in closures, and the engine errors that a service handles |
//! | [`results`] | pages of results; conditional writes in one call |
//! | [`keys`] | your own types as keys |
//! | [`indexes`] | finding records by other keys than their own |
//! | [`changing_types`] | changing the type of stored values |
//! | [`reading_in_place`] | rows that are read without a copy |
//! | [`synchronous`] | programs without async code |
//! | [`executors`] | tokio and other executors; cancellation and deadlines |
//! | [`savepoints`] | undoing a part of a transaction |
//! | [`sessions`] | transactions that span requests |
//! | [`snapshots`] | one consistent state of the database for reports and exports |
//! | [`read_only`] | reading a database that a service has open |
//! | [`change_feed`] | following commits: copies, other systems, resuming after a restart |
//! | [`queues`] | a queue of jobs that several workers take and finish |
//! | [`expiry`] | records that expire: sessions, caches, locks |
//! | [`bulk`] | loading tables, and changing or deleting very many records |
//! | [`operation`] | monitoring a database, and shutting it down |
//! | [`tuning`] | why a service is slow, or takes much memory or disk space |
//! | [`backup`] | backups while transactions run, and restoring one |
//! | [`testing`] | a database for each test |
//! | [`moving`] | moving from redb, fjall, RocksDB, LMDB or SQLite |

pub mod backup;
pub mod bulk;
pub mod change_feed;
pub mod changing_types;
pub mod closures;
pub mod errors;
pub mod executors;
pub mod expiry;
pub mod indexes;
pub mod keys;
pub mod moving;
pub mod operation;
pub mod queues;
pub mod read_only;
pub mod reading_in_place;
pub mod results;
pub mod savepoints;
pub mod sessions;
pub mod snapshots;
pub mod synchronous;
pub mod testing;
pub mod tuning;
