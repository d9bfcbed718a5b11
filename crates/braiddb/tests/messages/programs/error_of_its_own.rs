//! `run` with a closure that returns a custom error type, which needs `try_run`.

use braiddb::{Database, Table};

enum Refused {
    Poor,
    Database(braiddb::Error),
}

impl From<braiddb::Error> for Refused {
    fn from(error: braiddb::Error) -> Self {
        Refused::Database(error)
    }
}

async fn pay(db: &Database, cents: Table<u64, u64>) -> Result<(), Refused> {
    db.run(async move |tx| {
        let left = tx.get(&cents, &1).await?.unwrap_or(0).checked_sub(100);
        tx.put(&cents, &1, &left.ok_or(Refused::Poor)?).await
    })
    .await?;
    Ok(())
}

fn main() {}
