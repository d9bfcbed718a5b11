//! Transactions as callers run them: what each operation does, who is let in, and what dropped futures, panics and
//! other executors leave behind.

mod admission;
mod blocked_worker;
#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod interactive_limits;
mod lent;
mod nested_executors;
mod operations;
mod panics;
mod requests;
mod savepoints;
mod sources;
mod streams;
#[path = "../common/table_kind.rs"]
mod table_kind;
