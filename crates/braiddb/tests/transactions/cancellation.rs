//! A caller drops its future while the worker polls the transaction. No suspension shows that to the
//! worker, and yet the transaction does no further operation and does not commit.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, Options, Table, Transaction};
use futures_util::stream::{FuturesUnordered, StreamExt};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;

type Records = Table<u64, u64>;

/// The closure's side of a pause within one poll, which blocks its worker.
struct Pause {
    reached: SyncSender<()>,
    resumed: Mutex<Receiver<()>>,
}

impl Pause {
    fn new() -> (Self, Receiver<()>, SyncSender<()>) {
        let ((reached, is_reached), (resume, resumed)) = (sync_channel(1), sync_channel(1));
        (Self { reached, resumed: Mutex::new(resumed) }, is_reached, resume)
    }

    fn wait(&self) {
        self.reached.send(()).unwrap();
        self.resumed.lock().unwrap().recv().unwrap();
    }
}

/// Polls the future once, and drops it when its closure pauses.
fn drop_while_paused<T>(future: impl Future<Output = T>, reached: &Receiver<()>) {
    let mut future = pin!(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    reached.recv().unwrap();
}

/// Operations that the closure attempts after the caller has dropped its future.
async fn attempt(tx: &Transaction, table: &Records, which: usize) -> Result<(), Error> {
    match which {
        0 => tx.put(table, &2, &2).await,
        1 => tx.insert(table, &2, &2).await,
        2 => tx.get(table, &1).await.map(drop),
        3 => tx.delete(table, &1).await.map(drop),
        4 => tx.scan(table, ..)?.next().await.map(drop),
        5 => tx.count(table, ..).await.map(drop),
        6 => tx.get_with(table, &1, drop).await.map(drop),
        7 => tx.multi_get(table, &[1, 2]).await.map(drop),
        8 => tx.fetch_update(table, &1, |old: Option<u64>| old.map(|old| old + 1)).await.map(drop),
        9 => tx.open_table::<u64, u64>("hot").await.map(drop),
        10 => tx.create_table::<u64, u64>("new").await.map(drop),
        _ => {
            let put = async |key: u64| tx.put(table, &key, &2).await;
            let mut parts: FuturesUnordered<_> = (10..20).map(put).collect();
            parts.next().await.expect("ten parts")
        }
    }
}

fn databases(directory: &std::path::Path) -> [Database; 2] {
    [Durability::Group, Durability::Volatile].map(|durability| {
        let options = Options::default().workers(1).durability(durability);
        Database::open(directory.join(format!("{durability:?}")), options).unwrap().watched()
    })
}

#[test]
fn a_dropped_transaction_does_no_further_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for db in databases(directory.path()) {
            for (name, paged) in [("hot", false), ("paged", true)] {
                let table: Records = create_table(&db, name, paged);
                block_on(db.put(&table, &1, &1)).unwrap();
                for which in 0..=11 {
                    let (pause, reached, resume) = Pause::new();
                    let (used, done) = (table.clone(), Arc::new(AtomicUsize::new(0)));
                    let counted = done.clone();
                    let run = db.run(async move |tx| {
                        tx.put(&used, &3, &3).await?;
                        pause.wait();
                        attempt(tx, &used, which).await?;
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    });
                    drop_while_paused(run, &reached);
                    resume.send(()).unwrap();
                    for key in [2, 3, 10] {
                        assert_eq!(block_on(db.get(&table, &key)).unwrap(), None, "{which}: {key}");
                    }
                    assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(1), "{which}");
                    assert_eq!(done.load(Ordering::SeqCst), 0, "operation {which}");
                }
            }
            assert!(matches!(
                block_on(db.open_table::<u64, u64>("new")).map(drop),
                Err(Error::TableNotFound(_))
            ));
        }
    });
}

#[test]
fn a_dropped_transaction_does_not_commit() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for db in databases(directory.path()) {
            for (name, paged) in [("hot", false), ("paged", true)] {
                let table: Records = create_table(&db, name, paged);
                // One that needs several blocks of the log, and two that need one.
                for records in [1, 10, 5000] {
                    let (pause, reached, resume) = Pause::new();
                    let used = table.clone();
                    let body = async move |tx: &Transaction| {
                        for key in 0..records {
                            tx.put(&used, &key, &1).await?;
                        }
                        pause.wait();
                        Ok(())
                    };
                    drop_while_paused(db.run(body), &reached);
                    resume.send(()).unwrap();
                    assert!(block_on(db.is_empty(&table)).unwrap(), "{records} of {name}");
                }
                let before = db.stats().committed;
                block_on(db.put(&table, &1, &1)).unwrap();
                assert_eq!(db.stats().committed, before + 1);
                block_on(db.delete(&table, &1)).unwrap();
            }
        }
    });
}
