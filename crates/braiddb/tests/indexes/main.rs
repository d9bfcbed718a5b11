//! Secondary indexes: what they find, what they refuse, and that they are exactly what the table is, beside
//! writers, across aborts, panics, openings, and while they are created and dropped.

mod beside_writers;
#[path = "../common/mod.rs"]
mod common;
mod creating;
mod finding;
mod numbers;
mod refusing;
mod writing;
