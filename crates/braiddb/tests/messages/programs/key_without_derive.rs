//! An enum as a key that does not derive `Key`.

use braiddb::{Database, Error, Table};

enum Job {
    Urgent,
    Normal,
}

async fn open(db: &Database) -> Result<(), Error> {
    let _jobs: Table<Job, str> = db.open_or_create_table("jobs").await?;
    Ok(())
}

fn main() {}
