//! A table with `&str` as the key type instead of `str`.

use braiddb::{Database, Error, Table};

async fn open(db: &Database) -> Result<(), Error> {
    let _names: Table<&str, u64> = db.open_or_create_table("names").await?;
    Ok(())
}

fn main() {}
