//! Proposals: transactions that are executed in one database and committed by applying their writes,
//! in the same database or in others.

mod apply;
mod certifier;
mod encoding;
mod execute;
mod key_set;
mod row_writes;

pub use certifier::{CertificationConflict, OrderedCertifier};
pub use encoding::{DamagedSet, KeySpace};
pub use execute::Proposal;
pub use key_set::KeySet;
pub use row_writes::{RowWrite, RowWriteKind, RowWrites};
