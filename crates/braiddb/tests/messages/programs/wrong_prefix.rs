//! A prefix that does not match the table's key type.

use braiddb::{Database, Error, Table};

async fn first(db: &Database, orders: Table<u64, str>) -> Result<bool, Error> {
    db.run(async move |tx| {
        let mut scan = tx.scan_prefix(&orders, "eu")?;
        Ok(scan.next().await?.is_some())
    })
    .await
}

fn main() {}
