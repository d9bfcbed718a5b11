//! The failure of a transaction that may abort on purpose.

use braiddb::Error;

#[derive(Debug, thiserror::Error)]
pub enum Abort {
    #[error("aborted on purpose")]
    OnPurpose,
    #[error(transparent)]
    Engine(#[from] Error),
}
