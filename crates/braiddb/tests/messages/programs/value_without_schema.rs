//! A type that serde supports but Braid's catalog does not.

use braiddb::{Database, Error, Postcard, Table};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
}

async fn open(db: &Database) -> Result<(), Error> {
    let _users: Table<u64, Postcard<User>> = db.open_or_create_table("users").await?;
    Ok(())
}

fn main() {}
