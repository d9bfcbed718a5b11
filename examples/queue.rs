//! A job queue. A worker leases a job and finishes it. If the worker does not finish in time,
//! another worker can take the job. Finishing a job and its result are one transaction, so each job
//! is done exactly once.
//!
//!     cargo run -p braid-examples --example queue

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use braiddb::{Database, Error, Isolation, Options, Table};

/// Jobs, keyed by the time from which they may be taken (milliseconds) and by number.
#[derive(Clone)]
struct Queue {
    db: Database,
    jobs: Table<(u64, u64), str>,
    /// The result of the jobs: how often each text was processed.
    done: Table<str, u64>,
}

/// A job that a worker has leased.
#[derive(Debug, PartialEq)]
struct Taken {
    key: (u64, u64),
    text: String,
}

impl Queue {
    async fn open(directory: &std::path::Path, options: Options) -> Result<Self, Error> {
        let db = Database::open(directory, options)?;
        let jobs = db.open_or_create_table("jobs").await?;
        let done = db.open_or_create_table("done").await?;
        Ok(Self { db, jobs, done })
    }

    async fn push(&self, number: u64, text: &str) -> Result<(), Error> {
        self.db.insert(&self.jobs, &(0, number), text).await
    }

    /// Takes one of the jobs that are due first. It is due again after `lease` if it is not
    /// finished by then.
    ///
    /// Chooses randomly among the first few, so that workers rarely choose the same job. Snapshot
    /// isolation is sufficient: if two workers delete the same job, one gets a conflict and
    /// retries. Changes of the other candidates do not matter.
    async fn take(&self, now: u64, lease: Duration) -> Result<Option<Taken>, Error> {
        const CHOICE: usize = 64;
        let queue = self.clone();
        let take = self.db.transaction().isolation(Isolation::Snapshot).run(async move |tx| {
            let mut due = tx.keys(&queue.jobs, ..(now + 1, 0))?.limit(CHOICE as u64);
            let mut some = Vec::with_capacity(CHOICE);
            while let Some(key) = due.next().await? {
                some.push(key);
            }
            let Some(key) = fastrand::choice(some) else {
                return Ok(None);
            };
            let text = tx
                .get(&queue.jobs, &key)
                .await?
                .ok_or_else(|| queue.jobs.key_not_found(&key))?
                .to_owned();
            tx.delete(&queue.jobs, &key).await?;
            let key = (now + lease.as_millis() as u64, key.1);
            tx.insert(&queue.jobs, &key, &text).await?;
            Ok(Some(Taken { key, text }))
        });
        Ok(take.await?.value)
    }

    /// Processes and finishes a job in one transaction. Returns `false` if the lease expired and
    /// another worker took the job.
    async fn finish(&self, taken: &Taken) -> Result<bool, Error> {
        let (queue, key, text) = (self.clone(), taken.key, taken.text.clone());
        let finish = async move |tx: &braiddb::Transaction| {
            if !tx.delete(&queue.jobs, &key).await? {
                return Ok(false);
            }
            tx.fetch_update(&queue.done, &text, |count| Some(count.unwrap_or(0) + 1)).await?;
            Ok(true)
        };
        self.db.run(finish).await
    }
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Takes and finishes jobs until the queue is empty. Returns the number of finished jobs.
async fn work(queue: Queue) -> Result<u64, Error> {
    let mut finished = 0;
    while let Some(taken) = queue.take(clock(), Duration::from_secs(30)).await? {
        finished += u64::from(queue.finish(&taken).await?);
    }
    Ok(finished)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    const JOBS: u64 = 5000;
    const WORKERS: usize = 128;
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(directory.path(), Options::default()).await?;
    let pushed = (0..JOBS).map(|number| {
        let queue = queue.clone();
        async move { queue.push(number, &format!("colour {}", number % 7)).await }
    });
    futures_util::future::try_join_all(pushed).await?;
    let began = Instant::now();
    let workers: Vec<_> = (0..WORKERS).map(|_| tokio::spawn(work(queue.clone()))).collect();
    let mut finished = 0;
    for worker in workers {
        finished += worker.await??;
    }
    // Each job was taken and finished in two durable transactions; the workers' transactions share
    // flushes.
    let rate = finished as f64 / began.elapsed().as_secs_f64();
    println!("{WORKERS} workers did {finished} jobs, {rate:.0} a second");
    queue.db.close()?;
    Ok(())
}

#[cfg(test)]
#[path = "../crates/braiddb/tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;
    use crate::common::{PART_SECONDS, with_limit, working_on};

    #[test]
    fn each_job_is_done_exactly_once() {
        with_limit(PART_SECONDS, |_| {
            Runtime::new().unwrap().block_on(async {
                const JOBS: u64 = 300;
                let directory = tempfile::tempdir().unwrap();
                let queue =
                    Queue::open(directory.path(), Options::default().workers(2)).await.unwrap();
                working_on(&queue.db);
                for number in 0..JOBS {
                    queue.push(number, &format!("colour {}", number % 7)).await.unwrap();
                }
                // A worker that takes a job and finishes too late.
                let lost = queue.take(0, Duration::from_millis(1)).await.unwrap().unwrap();
                let workers: Vec<_> = (0..8).map(|_| tokio::spawn(work(queue.clone()))).collect();
                let mut finished = 0;
                for worker in workers {
                    finished += worker.await.unwrap().unwrap();
                }
                assert_eq!(finished, JOBS);
                assert!(!queue.finish(&lost).await.unwrap());
                let done = queue.done.clone();
                let sum = queue.db.run(async move |tx| {
                    let (mut scan, mut sum) = (tx.scan(&done, ..)?, 0);
                    while let Some((_, count)) = scan.next().await? {
                        sum += count;
                    }
                    Ok(sum)
                });
                assert_eq!(sum.await.unwrap(), JOBS);
                queue.db.close().unwrap();
            });
        });
    }
}
