//! A value that is not `Send` in a closure that runs on a worker.

use std::rc::Rc;

use braiddb::{Database, Error, Table};

async fn count(db: &Database, table: Table<u64, u64>) -> Result<(), Error> {
    let count = Rc::new(1);
    db.run(async move |tx| tx.put(&table, &1, &count).await).await
}

fn main() {}
