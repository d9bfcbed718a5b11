//! Transactions from the caller's view: their operations, admission, and the effects of dropped
//! futures, panics and other executors.

mod admission;
mod blocked_worker;
mod blocking_executors;
mod cancellation;
#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod guests;
mod interactive_limits;
mod lent;
mod nested_executors;
mod operations;
mod panics;
mod requests;
mod rollbacks;
mod savepoints;
mod sources;
mod streams;
#[path = "../common/table_kind.rs"]
mod table_kind;
