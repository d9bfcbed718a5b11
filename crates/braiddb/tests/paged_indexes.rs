//! Secondary indexes of paged tables: the tests of `indexes`, with such tables.

/// Whether the tables are paged.
const PAGED: bool = true;

#[path = "indexes/beside_writers.rs"]
mod beside_writers;
mod common;
#[path = "indexes/creating.rs"]
mod creating;
#[path = "indexes/finding.rs"]
mod finding;
#[path = "indexes/numbers.rs"]
mod numbers;
#[path = "indexes/refusing.rs"]
mod refusing;
#[path = "indexes/writing.rs"]
mod writing;
