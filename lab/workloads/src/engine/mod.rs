//! Databases under test, and how transactions are driven through them.

pub mod drive;
pub(crate) mod fixture;
pub(crate) mod load;
