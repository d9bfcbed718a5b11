//! An embedded cache: entries live for a time of their own, are unseen as soon as that is over, and are swept
//! with the help of an index.
//!
//!     cargo run -p braid-examples --example cache

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braiddb::{
    Database, Durability, Error, Index, IndexKeys, IndexOptions, Options, Postcard, Schema, Table,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Milliseconds of the clock.
    expires: u64,
    value: Vec<u8>,
}

impl Schema for Entry {
    const NAME: &'static str = "cache entry";
}

/// A cache of bytes under texts.
#[derive(Clone)]
struct Cache {
    db: Database,
    entries: Table<str, Postcard<Entry>>,
    by_expiry: Index<u64, str, Postcard<Entry>>,
    /// Milliseconds, of whatever clock.
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Cache {
    async fn open(
        options: Options,
        directory: &std::path::Path,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // What is cached may be lost: no answer waits for the disk.
        let db = Database::open(directory, options.durability(Durability::Relaxed))?;
        let entries = db.open_or_create_table("entries").await?;
        let expiry = |entry: Entry, keys: &mut IndexKeys<'_, u64>| keys.push(&entry.expires);
        let by_expiry = db.index(&entries, "by_expiry", IndexOptions::default(), expiry).await?;
        Ok(Self { db, entries, by_expiry, now: Arc::new(now) })
    }

    async fn set(&self, key: &str, value: Vec<u8>, live: Duration) -> Result<(), Error> {
        let expires = (self.now)() + live.as_millis() as u64;
        self.db.put(&self.entries, key, &Entry { expires, value }).await
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let entry = self.db.get(&self.entries, key).await?;
        Ok(entry.filter(|entry| entry.expires > (self.now)()).map(|entry| entry.value))
    }

    /// Deletes what has expired, a few hundred entries in a transaction; how many they were.
    async fn sweep(&self) -> Result<u64, Error> {
        const AT_ONCE: u64 = 500;
        let (mut swept, now) = (0, (self.now)());
        loop {
            let cache = self.clone();
            let some = self.db.run(async move |tx| {
                let mut expired = tx.entries_by(&cache.by_expiry, ..=now)?.limit(AT_ONCE);
                let mut keys = Vec::new();
                while let Some((_, key)) = expired.next().await? {
                    keys.push(key);
                }
                for key in &keys {
                    tx.delete(&cache.entries, key).await?;
                }
                Ok(keys.len() as u64)
            });
            let some = some.await?;
            swept += some;
            if some < AT_ONCE {
                return Ok(swept);
            }
        }
    }
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let cache = Cache::open(Options::default(), directory.path(), clock).await?;
    for number in 0..2000_u64 {
        let live = Duration::from_millis(if number % 2 == 0 { 50 } else { 60_000 });
        cache.set(&format!("page {number}"), vec![0; 1000], live).await?;
    }
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (even, odd) = (cache.get("page 4").await?, cache.get("page 5").await?);
    println!("page 4 is {}, page 5 is {}", told(&even), told(&odd));
    println!("{} entries were swept", cache.sweep().await?);
    cache.db.close()?;
    Ok(())
}

fn told(found: &Option<Vec<u8>>) -> &'static str {
    if found.is_some() { "cached" } else { "not cached" }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_expires_is_unseen_at_once_and_swept() {
        let directory = tempfile::tempdir().unwrap();
        let time = Arc::new(AtomicU64::new(0));
        let now = time.clone();
        let options = Options::default().workers(2);
        let cache = Cache::open(options, directory.path(), move || now.load(Ordering::SeqCst));
        let cache = cache.await.unwrap();
        for number in 0..2000_u64 {
            let live = Duration::from_millis(number);
            cache.set(&number.to_string(), number.to_le_bytes().to_vec(), live).await.unwrap();
        }
        // One lives longer than it was first said to.
        cache.set("7", vec![7], Duration::from_secs(60)).await.unwrap();
        time.store(1500, Ordering::SeqCst);
        assert_eq!(cache.get("1500").await.unwrap(), None);
        assert_eq!(cache.get("1501").await.unwrap(), Some(1501_u64.to_le_bytes().to_vec()));
        assert_eq!(cache.sweep().await.unwrap(), 1500);
        assert_eq!(cache.get("7").await.unwrap(), Some(vec![7]));
        let entries = cache.entries.clone();
        let left = cache.db.run(async move |tx| tx.count(&entries, ..).await).await.unwrap();
        assert_eq!(left, 500);
        cache.db.close().unwrap();
    }
}
