//! Transactions that are executed without commit, their encodings, their application in other
//! databases, and their certification in a given order.

mod aborted;
mod applied;
mod certified;
mod certifier;
#[path = "../common/mod.rs"]
mod common;
mod encodings;
#[allow(dead_code, reason = "the tables of these tests have other types")]
#[path = "../common/expiring.rs"]
mod expiring;
#[path = "../common/polls.rs"]
mod polls;
mod tickets;
mod world;
