//! A table of `&str` values instead of `str`.

use braiddb::{Database, Error, Table};

async fn open(db: &Database) -> Result<(), Error> {
    let _names: Table<u64, &'static str> = db.open_or_create_table("names").await?;
    Ok(())
}

fn main() {}
