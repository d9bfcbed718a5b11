//! Tables of both kinds, for tests that are of either.

use braiddb::{Database, Key, Table, TableOptions, Value};

/// Makes a table, on pages or not.
pub fn create_table<K, V>(db: &Database, name: &'static str, paged: bool) -> Table<K, V>
where
    K: Key + ?Sized + 'static,
    V: Value + ?Sized + 'static,
{
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    db.run_blocking(async move |tx| tx.create_table_with(name, options).await).unwrap()
}
