//! A staged table with borrowed keys; they must be owned.

use braiddb::{Database, Error};

async fn stage(db: &Database) -> Result<(), Error> {
    let _staged = db.stage_table::<(&str, u64), u64>("names").await?;
    Ok(())
}

fn main() {}
