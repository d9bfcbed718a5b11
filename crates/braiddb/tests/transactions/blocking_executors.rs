//! A blocking executor inside a transaction: futures of the same database fail with `WouldBlock`
//! instead of waiting forever for the worker that the executor blocks. Executors that return to the
//! worker continue to work.

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::changes::ChangesFrom;
use braiddb::{
    Database, Error, IndexKeys, IndexOptions, InteractiveTransaction, Misuse, Options, Snapshot,
    Table, Transaction, block_on,
};
use futures_util::future::{FutureExt, join, join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

const LIMIT_SECONDS: u64 = 120;

type Answer<'f, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'f>>;
type Records = Table<u64, u64>;

/// An executor that parks its thread, with a new waker for each poll.
fn park_until_ready<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    loop {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// An executor that polls without waiting for a wake-up.
fn poll_until_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for polls in 1_u64.. {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            // Yields seldom, because each yield may cost the time slice of another thread.
            Poll::Pending if polls.is_multiple_of(1000) => thread::yield_now(),
            Poll::Pending => {}
        }
    }
    unreachable!("polled for ever")
}

/// Runs a future in each of the blocking executors.
fn block_in_each<'f, T>(make: impl Fn() -> Answer<'f, T>) -> Vec<Result<T, Error>> {
    vec![
        block_on(make()),
        smol::block_on(make()),
        smol::block_on(smol::LocalExecutor::new().run(make())),
        park_until_ready(make()),
        poll_until_ready(make()),
        block_on(join(make(), make())).0,
    ]
}

/// Asserts that the future fails in each of the blocking executors.
fn refuses<'f, T>(what: &str, make: impl Fn() -> Answer<'f, T>) {
    for (executor, result) in block_in_each(make).into_iter().enumerate() {
        let error = result.err().unwrap_or_else(|| panic!("{what}, executor {executor}"));
        assert!(matches!(error, Error::Misuse(Misuse::WouldBlock)), "{what}: {error}");
    }
}

fn open(directory: &Path, workers: usize) -> (Database, Records) {
    let db = Database::open(directory, Options::default().workers(workers)).unwrap().watched();
    let table: Records = block_on(db.create_table("records")).unwrap();
    block_on(db.put(&table, &1, &10)).unwrap();
    (db, table)
}

/// Handles that transactions use.
struct Handles {
    db: Database,
    table: Records,
    open: Arc<InteractiveTransaction>,
    snapshot: Snapshot,
}

impl Handles {
    fn new(db: &Database, table: &Records) -> Arc<Self> {
        let open = Arc::new(block_on(db.begin()).unwrap());
        let snapshot = block_on(db.snapshot()).unwrap();
        Arc::new(Self { db: db.clone(), table: table.clone(), open, snapshot })
    }
}

/// Makes a public future.
type MakeFuture = Box<dyn Fn() -> Answer<'static, ()>>;

macro_rules! futures {
    ($handles:ident; $($name:literal: |$of:ident| $future:expr;)*) => {
        vec![$(($name, {
            let handles = $handles.clone();
            Box::new(move || -> Answer<'static, ()> {
                let $of = handles.clone();
                Box::pin(async move { $future.await.map(drop) })
            })
        })),*]
    };
}

/// Returns a future for each kind of public future, by its name.
fn every_future(handles: &Arc<Handles>) -> Vec<(&'static str, MakeFuture)> {
    futures! {
        handles;
        "run": |of| of.db.run(async |_| Ok(()));
        "run with options": |of| of.db.transaction().read_only(true).run(async |_| Ok(()));
        "get": |of| of.db.get(&of.table, &1);
        "put": |of| of.db.put(&of.table, &2, &2);
        "first": |of| of.db.first(&of.table);
        "scan": |of| of.db.scan(&of.table, ..);
        "open a table": |of| of.db.open_table::<u64, u64>("records");
        "begin": |of| of.db.begin();
        "step": |of| of.open.step(async |_| Ok(()));
        "interactive get": |of| of.open.get(&of.table, &1);
        "interactive put": |of| of.open.put(&of.table, &3, &3);
        "commit": |of| async { of.db.begin().await?.commit().await };
        "snapshot": |of| of.db.snapshot();
        "read a snapshot": |of| of.snapshot.get(&of.table, &1);
        "checkpoint": |of| async {
            match of.db.checkpoint().await {
                Ok(_) | Err(Error::Busy(_)) => Ok(()),
                Err(error) => Err(error),
            }
        };
        "change slots": |of| of.db.change_slots();
        "change feed": |of| async {
            let mut changes = of.db.changes(ChangesFrom::Snapshot);
            changes.next().await
        };
    }
}

/// Makes futures that fail within a transaction in any case, because they would wait for it.
fn futures_for_outside(handles: &Arc<Handles>) -> Vec<(&'static str, MakeFuture)> {
    futures! {
        handles;
        "compact": |of| of.db.compact();
        "create a table": |of| of.db.create_table::<u64, u64>("another");
        "list tables": |of| of.db.tables();
        "rename a table": |of| of.db.rename_table("none", "another");
        "drop a table": |of| of.db.drop_table("none");
        "clear": |of| of.db.clear(&of.table);
        "delete a range": |of| of.db.delete_range(&of.table, ..);
        "stage a table": |of| of.db.stage_table::<u64, u64>("staged");
        "index": |of| {
            let options = IndexOptions::default();
            of.db.index::<u64, _, _, _>(&of.table, "values", options, |value, keys| keys.push(&value))
        };
        "drop an index": |of| of.db.drop_index(&of.table, "none");
        "remove expired records": |of| of.db.sweep_expired();
        "table contents": |of| of.db.table_contents(&of.table);
        "execute": |of| of.db.execute(async |_| Ok(()));
        "run with a ticket": |of| of.db.transaction().run_visible(async |_| Ok(()));
        "run on a snapshot": |of| of.snapshot.run(async |_| Ok(()));
        "restrict writes": |of| of.db.restrict_writes("another program");
        "allow writes": |of| of.db.allow_writes();
        "create a change slot": |of| of.db.create_change_slot("slot", 1 << 20);
        "drop a change slot": |of| of.db.drop_change_slot("none");
    }
}

#[test]
fn a_blocking_executor_gets_an_error_for_every_future() {
    with_limit(LIMIT_SECONDS, |_| {
        for workers in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(directory.path(), workers);
            let handles = Handles::new(&db, &table);
            let (used, own) = (handles.clone(), table.clone());
            let body = async move |tx: &Transaction| {
                for (what, make) in
                    every_future(&used).into_iter().chain(futures_for_outside(&used))
                {
                    refuses(what, make);
                    // The transaction continues, and futures that are awaited work.
                    assert_eq!(tx.get(&own, &1).await?, Some(10));
                }
                tx.put(&own, &4, &4).await
            };
            block_on(db.run(body)).unwrap();
            for (key, value) in [(2, None), (3, None), (4, Some(4))] {
                assert_eq!(block_on(db.get(&table, &key)).unwrap(), value, "no other effects");
            }
            assert_eq!(block_on(handles.open.get(&table, &3)).unwrap(), None);
        }
    });
}

/// Opens a database of one worker whose 100 records are not in memory.
fn reopened(directory: &Path, paged: bool) -> Database {
    let db = Database::open(directory, Options::default().workers(1)).unwrap().watched();
    let table: Records = create_table(&db, "records", paged);
    for key in 0..100 {
        block_on(db.put(&table, &key, &key)).unwrap();
    }
    closed_and_opened(db, directory)
}

fn closed_and_opened(db: Database, directory: &Path) -> Database {
    block_on(db.checkpoint()).unwrap();
    db.close().unwrap();
    Database::open(directory, Options::default().workers(1)).unwrap().watched()
}

/// An operation of the transaction itself waits for its worker, if the record is on disk.
#[test]
fn operations_of_the_transaction_must_not_be_blocked_on() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let body = async move |tx: &Transaction| {
                let table: Records = tx.open_table("records").await?;
                refuses("get", || Box::pin(tx.get(&table, &1)));
                // The transaction continues, and executors that return to the worker succeed.
                let get = async |key: u64| tx.get(&table, &key).await;
                let mut parts: FuturesUnordered<_> = (2..20).map(get).collect();
                while let Some(found) = parts.next().await {
                    assert!(found?.is_some());
                }
                assert_eq!(FreshWakers(Box::pin(get(30))).await?, Some(30));
                assert_eq!(tx.get(&table, &1).await?, Some(1));
                tx.put(&table, &1, &2).await
            };
            let db = reopened(directory.path(), paged);
            block_on(db.run(body)).unwrap();
            let table: Records = block_on(db.open_table("records")).unwrap();
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(2));
        }
    });
}

/// A write of a bulk operation waits for another part of the same task.
#[test]
fn parts_of_a_bulk_operation_must_not_be_blocked_on() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = reopened(directory.path(), true);
        let table: Records = block_on(db.open_table("records")).unwrap();
        let by_value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        block_on(db.index(&table, "by value", IndexOptions::default(), by_value)).unwrap();
        let db = closed_and_opened(db, directory.path());
        let table: Records = block_on(db.open_table("records")).unwrap();
        block_on(db.index(&table, "by value", IndexOptions::default(), by_value)).unwrap();
        let written = table.clone();
        block_on(db.run_bulk(&written, async move |tx| {
            // It waits for its page, and is not polled while the executors below block the worker.
            let mut first = pin!(tx.put(&table, &1, &1000));
            let mut context = Context::from_waker(Waker::noop());
            assert!(first.as_mut().poll(&mut context).is_pending());
            refuses("put", || Box::pin(tx.put(&table, &2, &1000)));
            first.await
        }))
        .unwrap();
    });
}

/// The caller drops the future of its transaction while the closure runs. No operation begins then,
/// so an executor that blocks the worker would poll it without end.
#[test]
fn an_operation_whose_caller_is_gone_must_not_be_blocked_on() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), 1);
        let (began, has_begun) = channel();
        let (dropped, is_dropped) = channel::<()>();
        let (told, end) = channel();
        let mut run = Box::pin(db.run(move |tx: &Transaction| {
            began.send(()).unwrap();
            is_dropped.recv().unwrap();
            refuses("get", || Box::pin(tx.get(&table, &1)));
            told.send(()).unwrap();
            async { Ok(()) }
        }));
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        has_begun.recv().unwrap();
        drop(run);
        dropped.send(()).unwrap();
        end.recv().expect("the closure continues after it is refused");
    });
}

/// Every worker blocks at the same time.
#[test]
fn every_worker_may_block() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), 2);
        let runs = (0..50).map(|_| {
            let (db, table, used) = (db.clone(), table.clone(), db.clone());
            db.run(async move |_| {
                let blocked = block_on(used.put(&table, &7, &7));
                assert!(matches!(blocked, Err(Error::Misuse(Misuse::WouldBlock))), "{blocked:?}");
                Ok(())
            })
        });
        for run in block_on(join_all(runs)) {
            run.unwrap();
        }
        assert_eq!(block_on(db.get(&table, &7)).unwrap(), None);
    });
}

/// A future of another database waits for other workers.
#[test]
fn futures_of_another_database_may_be_blocked_on() {
    with_limit(LIMIT_SECONDS, |_| {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (db, _) = open(directories[0].path(), 1);
        let (other, table) = open(directories[1].path(), 1);
        let handles = Handles::new(&other, &table);
        let body = async move |_: &Transaction| {
            for (what, make) in every_future(&handles) {
                block_in_each(make).into_iter().for_each(|result| {
                    result.unwrap_or_else(|error| panic!("{what}: {error}"));
                });
            }
            Ok(())
        };
        block_on(db.run(body)).unwrap();
    });
}

/// A feed that a blocking executor polled continues afterwards.
#[test]
fn a_feed_survives_a_blocking_executor() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), 1);
        let own = table.clone();
        let used = db.clone();
        let body = async move |tx: &Transaction| {
            let mut changes = used.changes(ChangesFrom::Snapshot).tables([&own]);
            for _ in 0..3 {
                let blocked = block_on(changes.next());
                assert!(matches!(blocked, Err(Error::Misuse(Misuse::WouldBlock))), "{blocked:?}");
                tx.get(&own, &1).await?;
            }
            assert!(changes.next().await?.is_some());
            Ok(())
        };
        block_on(db.run(body)).unwrap();
    });
}

/// Wakes through a part's own waker, which is new for each poll.
struct FreshWakers<F>(F);

impl<F: Future + Unpin> Future for FreshWakers<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        struct Forward(Waker);
        impl Wake for Forward {
            fn wake(self: Arc<Self>) {
                self.0.wake_by_ref();
            }
        }
        let waker = Waker::from(Arc::new(Forward(context.waker().clone())));
        Pin::new(&mut self.0).poll(&mut Context::from_waker(&waker))
    }
}

/// Executors inside a transaction that return to the worker.
#[test]
fn executors_that_return_to_the_worker_await_every_future() {
    with_limit(LIMIT_SECONDS, |_| {
        for workers in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(directory.path(), workers);
            let handles = Handles::new(&db, &table);
            let body = async move |_: &Transaction| {
                let all = || every_future(&handles).into_iter().map(|(_, make)| make());
                for future in all() {
                    future.await?;
                }
                for result in join_all(all().chain(all()).chain(all())).await {
                    result?;
                }
                let mut parts: FuturesUnordered<_> = all().chain(all()).collect();
                while let Some(result) = parts.next().await {
                    result?;
                }
                for (a, b) in all().zip(all()) {
                    let (a, b) = tokio::join!(a, b);
                    a.and(b)?;
                }
                for (a, b) in all().zip(all()) {
                    select(a, b).await.factor_first().0?;
                }
                for future in all() {
                    FreshWakers(future).await?;
                }
                for future in all() {
                    future.map(|result| result.is_ok()).shared().await.then_some(()).unwrap();
                }
                smol::LocalExecutor::new()
                    .run(join_all(all()))
                    .await
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()?;
                let set = tokio::task::LocalSet::new();
                let spawned = set.run_until(async {
                    let spawned: Vec<_> = all().map(tokio::task::spawn_local).collect();
                    join_all(spawned).await
                });
                for result in spawned.await {
                    result.unwrap()?;
                }
                Ok(())
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
            runtime.unwrap().block_on(db.run(body)).unwrap();
        }
    });
}
