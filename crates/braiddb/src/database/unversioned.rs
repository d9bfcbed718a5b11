//! Loading rows onto the pages of a paged table, to measure the cost of a load without
//! transactions, versions and log.

use std::borrow::Borrow;

use super::encode::encode_checked;
use super::error::{Error, Misuse, Result};
use super::handle::Database;
use super::table::Table;
use crate::transaction::OperationError;
use crate::types::{Key, Value};

/// Writes rows to the pages of a paged table, without a transaction, versions, log or counters. For
/// measurements only: discard the database afterwards.
///
/// # Errors
/// [`Misuse::NotPaged`](crate::Misuse); [`Error::Closed`]; the errors of a put of these keys and values; an error
/// if no page is available.
pub async fn load_onto_pages<K, V, R, ValueOf>(
    database: &Database,
    table: &Table<K, V>,
    rows: R,
) -> Result<()>
where
    K: Key,
    V: Value + ?Sized,
    R: IntoIterator<Item = (K, ValueOf)> + Send + 'static,
    ValueOf: Borrow<V::Input>,
{
    let (records, name) = (table.core.clone(), table.name.clone());
    let Some(records) = records.into_paged() else {
        return Err(Error::Misuse(Misuse::NotPaged(name.to_string())));
    };
    let done = database.shared.workers.start(move || async move {
        for (key, value) in rows {
            let (key, value) = (encode_checked(&key)?, V::encode(value.borrow())?);
            records.pages().replay(&key, Some(&value)).await.map_err(OperationError::from)?;
        }
        Ok(())
    })?;
    done.await.map_err(|_| database.ended())?
}
