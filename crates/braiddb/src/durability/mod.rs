//! Recovery: from the log on disk to tables in memory.

mod replay;

pub(crate) use replay::{ReplayError, replay};
