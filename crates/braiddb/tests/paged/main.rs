//! Paged tables.

mod budget;
mod bulk;
mod bulk_gates;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod deep_indexes;
#[path = "../common/expiring.rs"]
mod expiring;
mod expiry;
mod holes;
mod large;
mod large_attack;
mod loads;
mod long_readers;
mod memory;
mod properties;
mod recovery;
mod scans;
#[path = "../common/table_kind.rs"]
mod table_kind;
