//! Following what is committed.
//!
//! [`Database::changes`](crate::Database::changes) is a stream of whole transactions, in the order of their commits: for an index
//! elsewhere, a cache that is to be emptied, a queue. Its tokens say where to go on after a restart, and a slot keeps the log until
//! then ([`Database::create_change_slot`](crate::Database::create_change_slot)).
