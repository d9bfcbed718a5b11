//! A table that a closure borrows but must own: a clone costs a reference count.

use braiddb::{Database, Error, Table};

async fn count(db: &Database, names: &Table<str, u64>) -> Result<u64, Error> {
    db.run(async move |tx| tx.count(names, ..).await).await
}

fn main() {}
