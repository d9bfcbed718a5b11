//! `try_run` with a closure that nothing says the error of: there is only `?` in it, and only `?` behind it.

use braiddb::{Database, Table};

async fn pay(db: &Database, cents: Table<u64, u64>) -> Result<(), Box<dyn std::error::Error>> {
    db.try_run(async move |tx| {
        tx.put(&cents, &1, &100).await?;
        Ok(())
    })
    .await?;
    Ok(())
}

fn main() {}
