//! Tables: keys and values, options, expiry, creation and drop.

#[path = "../common/abort.rs"]
mod abort;
mod borrowed_keys;
#[path = "../common/mod.rs"]
mod common;
mod contents;
mod derived_keys;
mod drop_attack;
mod drop_table;
mod expired_tables;
#[path = "../common/expiring.rs"]
mod expiring;
mod expiry;
mod options;
#[path = "../common/polls.rs"]
mod polls;
mod staged_tables;
#[path = "../common/table_kind.rs"]
mod table_kind;
mod table_model;
