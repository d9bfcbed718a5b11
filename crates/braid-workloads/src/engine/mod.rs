//! Databases under test, and how transactions are driven through them.

pub(crate) mod bed;
pub mod drive;
pub(crate) mod load;
