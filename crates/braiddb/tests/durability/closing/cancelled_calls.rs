//! Futures that their callers drop or forget: none keeps resources when the database closes.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use super::{LIMIT_SECONDS, Records, open, options};
use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Result, Transaction};
use pollster::block_on;

/// Counts the wake-ups of a future's caller.
#[derive(Default)]
struct Woken(AtomicU64, Mutex<Option<std::thread::Thread>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        if let Some(thread) = &*self.1.lock().unwrap() {
            thread.unpark();
        }
    }
}

/// Polls a future after each wake-up, and drops it after `polls` polls. Returns true if it was
/// ready.
fn polled_at_most<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let woken = Arc::new(Woken::default());
    *woken.1.lock().unwrap() = Some(std::thread::current());
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    for poll in 0..polls {
        let before = woken.0.load(Ordering::SeqCst);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        while poll + 1 < polls && woken.0.load(Ordering::SeqCst) == before {
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
    false
}

/// Every future of the public interface is dropped after every number of polls; then nothing of it
/// is left, and the database closes.
#[test]
fn closing_ends_while_callers_drop_their_futures() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(Some(directory.path()));
        let mut cancelled = 0;
        type Make = fn(&Database, &Records, usize) -> bool;
        let makes: [Make; 9] = [
            |db, table, polls| {
                let table = table.clone();
                let run = db.run(async move |tx| {
                    tx.put(&table, &1, &1).await?;
                    tx.get(&table, &1).await
                });
                polled_at_most(run, polls)
            },
            |db, _, polls| polled_at_most(db.begin(), polls),
            |db, _, polls| polled_at_most(db.tables(), polls),
            |db, _, polls| polled_at_most(db.open_or_create_table::<u64, u64>("other"), polls),
            |db, _, polls| polled_at_most(db.checkpoint(), polls),
            |db, _, polls| polled_at_most(db.compact(), polls),
            |db, table, polls| {
                let transaction = block_on(db.begin()).unwrap();
                let done = polled_at_most(transaction.insert(table, &2, &2), polls)
                    && polled_at_most(transaction.get(table, &2), polls);
                // The step has ended or continues without its caller; in both cases the transaction
                // continues.
                block_on(transaction.abort()).unwrap();
                done
            },
            |db, table, polls| {
                let transaction = block_on(db.begin()).unwrap();
                block_on(transaction.put(table, &(1_000 + polls as u64), &3)).unwrap();
                polled_at_most(transaction.commit(), polls)
            },
            |db, table, polls| {
                let puts = table.clone();
                let body = async move |tx: &Transaction, key: &u64| tx.put(&puts, key, &4).await;
                let source = db.run_source(0, 0..20_u64, body).unwrap();
                polled_at_most(source.done(), polls)
            },
        ];
        for make in makes {
            let mut polls = 0;
            while !make(&db, &table, polls) {
                (cancelled, polls) = (cancelled + 1, polls + 1);
                assert!(polls < 100, "it is never ready");
            }
        }
        assert!(cancelled >= makes.len(), "{cancelled} were dropped");
        // The dropped operations end soon: none holds a record any more.
        let puts = table.clone();
        let run = db.transaction().max_attempts(u32::MAX).run(async move |tx| {
            for key in 0..20 {
                tx.put(&puts, &key, &5).await?;
            }
            Ok(())
        });
        block_on(run).unwrap();
        db.close().unwrap();
        Database::open(directory.path(), options()).unwrap().watched();
    });
}

/// Forgotten futures of callers: no task polls or drops them.
#[test]
fn closing_ends_although_callers_forget_their_futures() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(None);
        let forget = |future: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
            let mut future = future;
            _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            std::mem::forget(future);
        };
        for key in 0..50_u64 {
            let (puts, run) = (table.clone(), db.clone());
            forget(Box::pin(async move {
                _ = run.run(async move |tx| tx.put(&puts, &key, &key).await).await as Result<()>;
            }));
            let begin = db.clone();
            forget(Box::pin(async move { drop(begin.begin().await) }));
            let transaction = block_on(db.begin()).unwrap();
            let gets = table.clone();
            forget(Box::pin(async move { drop(transaction.get(&gets, &key).await) }));
        }
        let table = table.clone();
        let run = db.run_blocking(async move |tx| tx.put(&table, &1_000, &1).await);
        run.unwrap_or_else(|error: Error| panic!("{error}"));
        db.close().unwrap();
    });
}
