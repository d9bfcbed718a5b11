//! Transactions that are executed without commit, their encodings, their application in other
//! databases, and their certification in a given order.

mod aborted;
mod applied;
mod certified;
mod certifier;
#[path = "../common/mod.rs"]
mod common;
mod encodings;
#[path = "../common/expiring.rs"]
mod expiring;
mod histories;
#[path = "../common/polls.rs"]
mod polls;
mod steps;
mod tickets;
mod world;
