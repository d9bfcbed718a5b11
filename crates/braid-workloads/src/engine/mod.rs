//! Databases under test, and how transactions are driven through them.

pub(crate) mod bed;
pub(crate) mod drive;
pub(crate) mod load;
