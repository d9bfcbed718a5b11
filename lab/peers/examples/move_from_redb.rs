//! Moves the records of a redb database to Braid. The guide page `moving` shows this program. It
//! works in the current folder.
//!
//!     cargo run --manifest-path lab/Cargo.toml -p braid-peers --example move_from_redb

use std::error::Error;
use std::path::Path;

use braiddb::{Database, Options, block_on};
use redb::{ReadableDatabase, TableDefinition};

const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

fn main() -> Result<(), Box<dyn Error>> {
    if !Path::new("records.redb").exists() {
        create_source()?;
    }
    let source = redb::Database::open("records.redb")?;
    let db = Database::open("records.braid", Options::default())?;

    let table = source.begin_read()?.open_table(RECORDS)?;
    // A row that cannot be read ends the iterator, and its error ends the program.
    let mut failed = None;
    let rows = table.range::<u64>(..)?.map_while(|row| match row {
        Ok((key, value)) => Some((key.value(), value.value().to_vec())),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let staged = block_on(db.stage_table::<u64, [u8]>("records"))?;
    let moved = block_on(staged.load(rows, |_| {}))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let records = block_on(staged.publish())?;

    assert_eq!(block_on(db.len(&records))?, moved);
    println!("moved {moved} records from redb");
    db.close()?;
    Ok(())
}

/// Creates a database of a thousand records, so that this program can be tried.
fn create_source() -> Result<(), Box<dyn Error>> {
    let source = redb::Database::create("records.redb")?;
    let tx = source.begin_write()?;
    {
        let mut table = tx.open_table(RECORDS)?;
        for key in 0..1000 {
            table.insert(key, format!("record {key}").as_bytes())?;
        }
    }
    tx.commit()?;
    Ok(())
}
