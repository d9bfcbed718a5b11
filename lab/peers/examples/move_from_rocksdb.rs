//! Moves the records of a RocksDB database to Braid. The guide page `moving` shows this program. It
//! works in the current folder, and needs a C++ compiler and libclang.
//!
//!     cargo run --manifest-path lab/Cargo.toml -p braid-peers --features rocksdb --example move_from_rocksdb

use std::error::Error;
use std::path::Path;

use braiddb::{Database, Options, block_on};
use rocksdb::{DB, IteratorMode};

fn main() -> Result<(), Box<dyn Error>> {
    if !Path::new("records.rocksdb").exists() {
        create_source()?;
    }
    let source = DB::open_for_read_only(&rocksdb::Options::default(), "records.rocksdb", false)?;
    let db = Database::open("records.braid", Options::default())?;

    // A row that cannot be read ends the iterator, and its error ends the program.
    let mut failed = None;
    let rows = source.iterator(IteratorMode::Start).map_while(|row| match decode(row) {
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
    println!("moved {moved} records from RocksDB");
    db.close()?;
    Ok(())
}

type Row = (Box<[u8]>, Box<[u8]>);

/// Decodes a key that was stored as a big-endian number. Braid orders numbers without that.
fn decode(row: Result<Row, rocksdb::Error>) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    let (key, value) = row?;
    Ok((u64::from_be_bytes(key[..].try_into()?), value.into_vec()))
}

/// Creates a database of a thousand records, so that this program can be tried.
fn create_source() -> Result<(), Box<dyn Error>> {
    let source = DB::open_default("records.rocksdb")?;
    for key in 0..1000_u64 {
        source.put(key.to_be_bytes(), format!("record {key}"))?;
    }
    source.flush()?;
    Ok(())
}
