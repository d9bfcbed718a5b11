//! How to write what services need. Every example is compiled and run by the tests.
//!
//! | page | what it shows |
//! |---|---|
//! | [`closures`] | transactions as closures, and the tables that they use |
//! | [`errors`] | errors of your own, and those of the engine that a service handles |
//! | [`results`] | pages of results; reads and writes in one call |
//! | [`keys`] | keys of your own types |
//! | [`changing_types`] | values whose types change |
//! | [`executors`] | tokio and other executors; cancellation and deadlines |
//! | [`sessions`] | transactions that span requests |
//! | [`snapshots`] | one state of the database for reports and exports |
//! | [`read_only`] | reading a database that a service has open |
//! | [`change_feed`] | following what is committed: copies, other systems, after a restart |
//! | [`expiry`] | records that expire: sessions, caches, locks |
//! | [`bulk`] | loads, and changes to very many records |
//! | [`operation`] | watching a database, and shutting it down |

pub mod bulk;
pub mod change_feed;
pub mod changing_types;
pub mod closures;
pub mod errors;
pub mod executors;
pub mod expiry;
pub mod keys;
pub mod operation;
pub mod read_only;
pub mod results;
pub mod sessions;
pub mod snapshots;
