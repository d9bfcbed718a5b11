//! Databases under test, and the code that runs transactions on them.

pub mod drive;
pub(crate) mod fixture;
pub(crate) mod load;
