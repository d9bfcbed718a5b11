//! Results that are returned before they are durable.

use braiddb::{Database, Durability, Error, Misuse, Options, Table, Transaction};
use pollster::block_on;

use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 120;

type Numbers = Table<u64, u64>;

/// Copies a directory, as a killed process leaves it.
fn copy(from: &std::path::Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    copy
}

#[test]
fn a_durable_ticket_survives() {
    with_limit(LIMIT_SECONDS, |_| {
        for durability in [Durability::Group, Durability::Relaxed] {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(2).durability(durability);
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            let table: Numbers = block_on(db.create_table("numbers")).unwrap();
            let mut last = None;
            for key in 0..200 {
                let used = table.clone();
                let put = async move |tx: &Transaction| tx.put(&used, &key, &key).await;
                let (outcome, ticket) = block_on(db.transaction().run_visible(put)).unwrap();
                assert_eq!((ticket.lsn(), outcome.attempts), (outcome.commit_lsn, 1));
                // Visible to others, who depend on it.
                let used = table.clone();
                let get = db.execute(async move |tx| tx.get(&used, &key).await);
                let read = block_on(get).unwrap();
                assert_eq!((read.value, read.ticket.lsn()), (Some(key), ticket.lsn()));
                assert!(read.snapshot_lsn > outcome.commit_lsn);
                last = Some((ticket, read.ticket));
            }
            let (written, read) = last.unwrap();
            block_on(read.durable()).unwrap();
            assert!(read.is_durable() && written.is_durable());
            block_on(written.durable()).unwrap();
            let killed = copy(directory.path());
            let reopened = Database::open(killed.path(), options).unwrap().watched();
            let table: Numbers = block_on(reopened.open_table("numbers")).unwrap();
            assert_eq!(block_on(reopened.len(&table)).unwrap(), 200);
        }
    });
}

/// A result that depends on no commit is durable at once, and one that wrote nothing depends on what
/// it read.
#[test]
fn readers_depend_on_what_they_read() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(1);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        let visibly = |key: u64| {
            let used = table.clone();
            let get = async move |tx: &Transaction| tx.get(&used, &key).await;
            block_on(db.transaction().run_visible(get)).unwrap()
        };
        let (outcome, ticket) = visibly(1);
        assert_eq!((outcome.value, ticket.lsn(), ticket.is_durable()), (None, 0, true));
        let used = table.clone();
        let put = async move |tx: &Transaction| tx.put(&used, &1, &7).await;
        let (_, written) = block_on(db.transaction().run_visible(put)).unwrap();
        let (outcome, ticket) = visibly(1);
        assert_eq!((outcome.value, ticket.lsn()), (Some(7), written.lsn()));
        // A dropped wait changes nothing.
        drop(ticket.durable());
        block_on(ticket.durable()).unwrap();
        assert!(written.is_durable());
    });
}

#[test]
fn without_a_log_nothing_is_awaited() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        let put = async move |tx: &Transaction| tx.put(&table, &1, &7).await;
        let (outcome, ticket) = block_on(db.transaction().run_visible(put)).unwrap();
        assert!(ticket.is_durable() && ticket.lsn() == outcome.commit_lsn);
        block_on(ticket.durable()).unwrap();
        db.close().unwrap();
    });
}

#[test]
fn refused_transactions_have_no_ticket() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        let used = table.clone();
        let refused = db.transaction().run_visible(async move |tx| tx.update(&used, &1, &7).await);
        assert!(matches!(block_on(refused), Err(Error::KeyNotFound { .. })));
        let used = table.clone();
        let read_only = db.transaction().read_only(true);
        let refused = read_only.run_visible(async move |tx| tx.put(&used, &1, &7).await);
        assert!(matches!(block_on(refused), Err(Error::Misuse(Misuse::ReadOnlyTransaction))));
        let other = block_on(db.begin()).unwrap();
        block_on(other.put(&table, &1, &5)).unwrap();
        let used = table.clone();
        let once = db.transaction().max_attempts(1);
        let refused = once.run_visible(async move |tx| tx.put(&used, &1, &6).await);
        assert!(matches!(block_on(refused), Err(Error::Conflict { .. })));
        block_on(other.abort()).unwrap();
        // Larger than one block of the log.
        let large = db.transaction().run_visible(async move |tx| {
            for key in 0..20_000 {
                tx.put(&table, &key, &key).await?;
            }
            Ok(())
        });
        let (_, ticket) = block_on(large).unwrap();
        block_on(ticket.durable()).unwrap();
        db.close().unwrap();
        assert!(ticket.is_durable());
    });
}
