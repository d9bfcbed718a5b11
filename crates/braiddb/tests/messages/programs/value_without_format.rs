//! A struct as a value without a storage format.

use braiddb::{Database, Error, Table};

struct User {
    name: String,
}

async fn open(db: &Database) -> Result<(), Error> {
    let _users: Table<u64, User> = db.open_or_create_table("users").await?;
    Ok(())
}

fn main() {}
