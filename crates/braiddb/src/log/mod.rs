//! The write-ahead log.

mod lsn;

pub(crate) use lsn::Lsn;
