//! An embedded cache. Each entry has a time to live and becomes invisible when it expires. The
//! database sweeps expired entries.
//!
//!     cargo run -p braid-examples --example cache

use std::time::Duration;

use braiddb::{Database, Durability, Error, Options, Table, TableOptions, Transaction};

/// The default time to live.
const TTL: Duration = Duration::from_mins(10);

/// A cache that maps text to bytes.
#[derive(Clone)]
struct Cache {
    db: Database,
    entries: Table<str, [u8]>,
}

impl Cache {
    async fn open(options: Options, directory: &std::path::Path) -> Result<Self, Error> {
        // A cache may lose entries, so no call waits for the disk.
        let db = Database::open(directory, options.durability(Durability::Relaxed))?;
        let expiring = TableOptions::default().ttl(TTL);
        let open =
            async move |tx: &Transaction| tx.open_or_create_table_with("entries", expiring).await;
        let entries = db.run(open).await?;
        Ok(Self { db, entries })
    }

    async fn set(&self, key: &str, value: Vec<u8>) -> Result<(), Error> {
        self.db.put(&self.entries, key, &value).await
    }

    async fn set_for(&self, key: &str, value: Vec<u8>, live: Duration) -> Result<(), Error> {
        let (entries, key) = (self.entries.clone(), key.to_owned());
        let put = async move |tx: &Transaction| tx.put_with_ttl(&entries, &key, &value, live).await;
        self.db.run(put).await
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.db.get(&self.entries, key).await
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let cache = Cache::open(Options::default(), directory.path()).await?;
    for number in 0..2000_u64 {
        let (key, value) = (format!("page {number}"), vec![0; 1000]);
        match number % 2 {
            0 => cache.set_for(&key, value, Duration::from_millis(50)).await?,
            _ => cache.set(&key, value).await?,
        }
    }
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (even, odd) = (cache.get("page 4").await?, cache.get("page 5").await?);
    println!("page 4 is {}, page 5 is {}", told(&even), told(&odd));
    // The workers also sweep, a little later.
    println!("{} entries were swept", cache.db.sweep_expired().await?);
    cache.db.close()?;
    Ok(())
}

fn told(found: &Option<Vec<u8>>) -> &'static str {
    if found.is_some() { "cached" } else { "not cached" }
}

#[cfg(test)]
#[path = "../crates/braiddb/tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::UNIX_EPOCH;

    use braiddb::{Tuning, WallClock};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::common::{PART_SECONDS, with_limit, working_on};

    #[test]
    fn what_expires_is_unseen_at_once_and_swept() {
        with_limit(PART_SECONDS, |_| {
            Runtime::new().unwrap().block_on(async {
                let directory = tempfile::tempdir().unwrap();
                let time = Arc::new(AtomicU64::new(1_000_000));
                let now = time.clone();
                let clock = WallClock::new(move || {
                    UNIX_EPOCH + Duration::from_millis(now.load(Ordering::SeqCst))
                });
                let options =
                    Options::default().workers(2).tuning(Tuning::default().wall_clock(clock));
                let cache = Cache::open(options, directory.path()).await.unwrap();
                working_on(&cache.db);
                for number in 1..2000_u64 {
                    let live = Duration::from_millis(number);
                    let value = number.to_le_bytes().to_vec();
                    cache.set_for(&number.to_string(), value, live).await.unwrap();
                }
                // Writing an entry again extends its life.
                cache.set("7", vec![7]).await.unwrap();
                time.fetch_add(1500, Ordering::SeqCst);
                assert_eq!(cache.get("1500").await.unwrap(), None);
                assert_eq!(cache.get("1501").await.unwrap(), Some(1501_u64.to_le_bytes().to_vec()));
                // The workers may have swept some entries already.
                cache.db.sweep_expired().await.unwrap();
                while cache.db.stats().expired_swept < 1499 {
                    cache.db.sweep_expired().await.unwrap();
                }
                assert_eq!(cache.db.stats().expired_swept, 1499);
                assert_eq!(cache.get("7").await.unwrap(), Some(vec![7]));
                assert_eq!(cache.db.len(&cache.entries).await.unwrap(), 500);
                cache.db.close().unwrap();
            });
        });
    }
}
