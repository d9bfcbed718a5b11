//! Moves the records of a fjall database to Braid. The guide page `moving` shows this program. It
//! works in the current folder.
//!
//!     cargo run --manifest-path lab/Cargo.toml -p braid-peers --example move_from_fjall

use std::error::Error;
use std::path::Path;

use braiddb::{Database, Options, block_on};
use fjall::{KeyspaceCreateOptions, PersistMode};

fn main() -> Result<(), Box<dyn Error>> {
    if !Path::new("records.fjall").exists() {
        create_source()?;
    }
    let source = fjall::Database::builder("records.fjall").open()?;
    let keyspace = source.keyspace("records", KeyspaceCreateOptions::default)?;
    let db = Database::open("records.braid", Options::default())?;

    // A row that cannot be read ends the iterator, and its error ends the program.
    let mut failed = None;
    let rows = keyspace.iter().map_while(|row| match decode(row) {
        Ok(row) => Some(row),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let staged = block_on(db.stage_table::<u64, [u8]>("records"))?;
    let moved = block_on(staged.load(rows, |_| {}))?;
    if let Some(error) = failed {
        return Err(error);
    }
    let records = block_on(staged.publish())?;

    assert_eq!(block_on(db.len(&records))?, moved);
    println!("moved {moved} records from fjall");
    db.close()?;
    Ok(())
}

/// Decodes a key that was stored as a big-endian number. Braid orders numbers without that.
fn decode(row: fjall::Guard) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    let (key, value) = row.into_inner()?;
    Ok((u64::from_be_bytes(key[..].try_into()?), value.to_vec()))
}

/// Creates a database of a thousand records, so that this program can be tried.
fn create_source() -> Result<(), Box<dyn Error>> {
    let source = fjall::Database::builder("records.fjall").open()?;
    let keyspace = source.keyspace("records", KeyspaceCreateOptions::default)?;
    for key in 0..1000_u64 {
        keyspace.insert(key.to_be_bytes(), format!("record {key}"))?;
    }
    source.persist(PersistMode::SyncAll)?;
    Ok(())
}
