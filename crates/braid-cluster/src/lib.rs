//! Braid on several machines: three to seven nodes, each an ordinary Braid database inside a
//! service, kept identical by Raft.

mod applier;
mod command;
mod log_store;
mod raft;
mod received;
mod replica;
mod snapshot;
mod state_machine;
mod storage;

#[cfg(test)]
mod storage_tests;
