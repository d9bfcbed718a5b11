//! Visibility between transactions: snapshots, certification, and transactions that must not
//! commit.

#[path = "../common/mod.rs"]
mod common;
mod doomed_transactions;
mod extension;
mod hermitage;
#[path = "../common/one_table.rs"]
mod one_table;
mod safety_net;
mod serializable;
mod snapshot_model;
mod snapshots;
mod starvation_guard;
#[path = "../common/table_kind.rs"]
mod table_kind;
