//! Owned tables as arguments of `run_on`, which needs references.

use braiddb::{Database, Error, Table};

async fn count(db: &Database, names: Table<str, u64>) -> Result<u64, Error> {
    db.run_on(names, async |tx, names| tx.count(names, ..).await).await
}

async fn count_both(db: &Database, a: &Table<u64, u64>, b: Table<u64, u64>) -> Result<u64, Error> {
    db.run_on((a, b), async |tx, (a, b)| Ok(tx.count(a, ..).await? + tx.count(b, ..).await?)).await
}

fn main() {}
