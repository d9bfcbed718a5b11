//! Moves the rows of an SQLite table to Braid. The guide page `moving` shows this program. It works
//! in the current folder.
//!
//!     cargo run --manifest-path lab/Cargo.toml -p braid-peers --example move_from_sqlite

use std::error::Error;
use std::path::Path;

use braiddb::{Database, Options, Postcard, Schema, block_on};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct City {
    name: String,
    people: i64,
}

impl Schema for City {
    const NAME: &'static str = "city";
}

fn main() -> Result<(), Box<dyn Error>> {
    if !Path::new("cities.sqlite").exists() {
        create_source()?;
    }
    let source = Connection::open("cities.sqlite")?;
    let db = Database::open("cities.braid", Options::default())?;

    let mut select = source.prepare("SELECT id, name, people FROM cities ORDER BY id")?;
    let cities = select.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?, City { name: row.get(1)?, people: row.get(2)? }))
    })?;
    // A row that cannot be read ends the iterator, and its error ends the program.
    let mut failed = None;
    let rows = cities.map_while(|row| match row {
        Ok(row) => Some(row),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let staged = block_on(db.stage_table::<i64, Postcard<City>>("cities"))?;
    let moved = block_on(staged.load(rows, |_| {}))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let cities = block_on(staged.publish())?;

    assert_eq!(block_on(db.len(&cities))?, moved);
    println!("moved {moved} rows from SQLite");
    db.close()?;
    Ok(())
}

/// Creates a table of a thousand rows, so that this program can be tried.
fn create_source() -> rusqlite::Result<()> {
    let mut source = Connection::open("cities.sqlite")?;
    let tx = source.transaction()?;
    tx.execute("CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT, people INTEGER)", [])?;
    for id in 0..1000_i64 {
        tx.execute("INSERT INTO cities VALUES (?1, ?2, ?3)", (id, format!("city {id}"), id * 100))?;
    }
    tx.commit()
}
