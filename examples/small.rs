//! A minimal program: opens a database, moves money, reads a range, and counts. `docs/compared.md`
//! has the same program with other stores.
//!
//!     cargo run -p braid-examples --example small

use std::path::Path;

use braiddb::{Database, Error, Options, Table};

async fn bank(path: &Path) -> Result<(Vec<(u64, u64)>, u64), Error> {
    let db = Database::open(path, Options::default())?;
    let accounts: Table<u64, u64> = db.open_or_create_table("accounts").await?;
    for id in 1..=9 {
        db.put(&accounts, &id, &100).await?;
    }
    db.run_on(&accounts, async |tx, accounts| {
        tx.update_with(accounts, &1, |cents| cents - 30).await?;
        tx.update_with(accounts, &2, |cents| cents + 30).await
    })
    .await?;
    Ok((db.scan(&accounts, 1..=3).await?, db.len(&accounts).await?))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (first, accounts) = bank(directory.path()).await?;
    println!("{first:?}, {accounts} accounts");
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
    fn money_moves() {
        with_limit(PART_SECONDS, |_| {
            Runtime::new().unwrap().block_on(async {
                let directory = tempfile::tempdir().unwrap();
                let (first, accounts) = bank(directory.path()).await.unwrap();
                assert_eq!((first, accounts), (vec![(1, 70), (2, 130), (3, 100)], 9));
            });
        });
    }
}
