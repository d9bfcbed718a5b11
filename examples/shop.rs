//! Writes tables of structs, enums and tuples, which the command `braid` then reads without this
//! program:
//!
//!     cargo run -p braid-examples --example shop shop.db
//!     braid scan orders --db shop.db --where 'state.Paid.cents > 1000'

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use braiddb::{Database, Error, Options, Postcard, Schema, Table};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    articles: Vec<(String, u32)>,
    state: State,
    notes: BTreeMap<String, Option<f64>>,
}

#[derive(Serialize, Deserialize)]
enum State {
    Open,
    Paid { cents: u64 },
    Sent(String),
}

impl Schema for Order {
    const NAME: &'static str = "order";
}

async fn fill(path: &Path) -> Result<u64, Error> {
    let db = Database::open(path, Options::default())?;
    let orders: Table<u64, Postcard<Order>> = db.open_or_create_table("orders").await?;
    let sold: Table<(String, u64), Postcard<(u32, bool)>> = db.open_or_create_table("sold").await?;
    let states = [State::Open, State::Paid { cents: 1250 }, State::Sent("DHL 7".to_owned())];
    for (id, state) in (1..).zip(states) {
        let articles = vec![("nails".to_owned(), 100 * id as u32)];
        let notes = [("weight".to_owned(), Some(0.5)), ("discount".to_owned(), None)].into();
        let order = Order { customer: "ada".to_owned(), articles, state, notes };
        db.put(&orders, &id, &order).await?;
        db.put(&sold, &("nails".to_owned(), id), &(100, id > 1)).await?;
    }
    let count = db.len(&orders).await?;
    db.close()?;
    Ok(count)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("shop.db"), PathBuf::from);
    let orders = fill(&path).await?;
    println!("{orders} orders; read them with: braid scan orders --db {}", path.display());
    Ok(())
}

#[cfg(test)]
#[path = "../crates/braiddb/tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn tables_are_filled() {
        with_limit(PART_SECONDS, |_| {
            let directory = tempfile::tempdir().unwrap();
            let runtime = Runtime::new().unwrap();
            for _ in 0..2 {
                assert_eq!(runtime.block_on(fill(directory.path())).unwrap(), 3);
            }
        });
    }
}
