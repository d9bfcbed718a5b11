//! A table of references to text, in place of text.

use braiddb::{Database, Error, Table};

async fn open(db: &Database) -> Result<(), Error> {
    let _names: Table<u64, &'static str> = db.open_or_create_table("names").await?;
    Ok(())
}

fn main() {}
