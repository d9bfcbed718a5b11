//! Transactions that are executed without commit, their encodings, their application in other
//! databases, and their certification in a given order.

mod applied;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tables of these tests have other types")]
#[path = "../common/expiring.rs"]
mod expiring;
mod world;
