//! Internal tests of change feeds: the resources that they hold, and their error after an engine
//! failure.

use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};

use pollster::block_on;

use super::super::{ChangeTransaction, Changes, ChangesFrom, Database, Error, Options, Table};
use crate::common::{Watched, with_limit};

/// Time limit of a test, in seconds.
const LIMIT: u64 = 600;

fn next(changes: &mut Changes) -> ChangeTransaction {
    block_on(changes.next()).unwrap().expect("a feed ends with an error")
}

/// A feed releases its snapshot after the last piece, even if it is not polled again.
#[test]
fn a_snapshot_is_over_with_its_last_piece() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        block_on(db.put(&table, &1, &1)).unwrap();
        let mut changes = db.changes(ChangesFrom::Snapshot);
        assert!(next(&mut changes).token.is_some());
        while db.shared.engine.has_snapshots() {
            std::thread::yield_now();
        }
    });
}

/// The feed also receives the error while another worker is blocked in a user's code.
#[test]
fn a_feed_that_waits_is_told_that_the_engine_failed() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(2)).unwrap().watched();
        let mut changes = db.changes(ChangesFrom::Now);
        // Once it has a token, it has followed the log to its end and waits there.
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |changes: &mut Changes| {
            assert!(pin!(changes.next()).as_mut().poll(&mut context).is_pending());
        };
        while changes.token().is_none() {
            poll(&mut changes);
            std::thread::yield_now();
        }
        poll(&mut changes);
        let (begun, blocked) = channel();
        let (release, released) = channel::<()>();
        let stuck = {
            let (db, released) = (db.clone(), std::sync::Mutex::new(released));
            let block = async move |_: &_| {
                begun.send(()).unwrap();
                _ = released.lock().unwrap().recv();
                Ok(())
            };
            std::thread::spawn(move || db.run_blocking(block))
        };
        blocked.recv().unwrap();
        let waiting = std::thread::spawn(move || block_on(changes.next()).map(drop));
        db.spawn(|| Box::pin(async { panic!("on purpose") })).unwrap();
        let ended = waiting.join().unwrap();
        assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
        release.send(()).unwrap();
        assert!(matches!(stuck.join().unwrap(), Err(Error::Failed { .. })));
    });
}
