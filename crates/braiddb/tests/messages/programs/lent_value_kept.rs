//! A borrowed value that leaves its transaction.

use braiddb::{Database, Error, Table};

async fn name(db: &Database, table: Table<u64, str>) -> Result<(), Error> {
    let _name = db.run(async move |tx| tx.get(&table, &1).await).await?;
    Ok(())
}

fn main() {}
