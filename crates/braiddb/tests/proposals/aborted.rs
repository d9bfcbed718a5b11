//! An executed transaction leaves nothing behind, however it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braiddb::{Database, Error, IndexOptions, Misuse, Options, Table, TableOptions, Transaction};
use pollster::block_on;

use crate::common::{Watched, with_limit};
use crate::expiring::Clock;
use crate::polls::poll_at_most;
use crate::world::{World, act};

const LIMIT_SECONDS: u64 = 120;

type Numbers = Table<u64, u64>;

/// Runs a test on a table of each kind.
fn for_both_kinds(test: impl Fn(&Database, Numbers) + Send + Sync + 'static) {
    with_limit(LIMIT_SECONDS, move |_| {
        for paged in [false, true] {
            let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
            let options = TableOptions::default();
            let options = if paged { options.paged() } else { options };
            let table = block_on(db.create_table_with("numbers", options)).unwrap();
            block_on(db.put(&table, &1, &1)).unwrap();
            test(&db, table);
            db.close().unwrap();
        }
    });
}

#[test]
fn executed_transactions_change_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for directory in [None, Some(directory.path())] {
            let world = World::open(directory, &Clock::new());
            for seed in 0..300 {
                let kinds = world.kinds.clone();
                block_on(world.db.run(async move |tx| act(tx, &kinds, seed).await)).unwrap();
            }
            let (contents, before) = (world.contents(), world.db.stats());
            for seed in 300..1500 {
                let kinds = world.kinds.clone();
                block_on(world.db.execute(async move |tx| act(tx, &kinds, seed).await)).unwrap();
            }
            assert!(world.contents() == contents);
            let after = world.db.stats();
            assert_eq!(format!("{:?}", after.aborted), format!("{:?}", before.aborted));
            // Only the contents were read.
            assert_eq!(after.committed - after.committed_read_only, {
                before.committed - before.committed_read_only
            });
            // Everything can be written: no version in flight is left.
            for kind in &world.kinds {
                let rows = kind.rows.clone();
                let once = world.db.transaction().max_attempts(1);
                let write = async move |tx: &Transaction| tx.delete_range(&rows, ..).await;
                block_on(once.run(write)).unwrap();
            }
            if directory.is_some() {
                let report = world.db.check().unwrap();
                assert!(report.problems.is_empty(), "{report:?}");
            }
            world.db.close().unwrap();
        }
    });
}

#[test]
fn a_dropped_execution_leaves_nothing() {
    for_both_kinds(|db, table| {
        let mut ended = 0;
        for polls in 1..40 {
            let used = table.clone();
            let execution = db.execute(async move |tx| {
                for key in 0..5 {
                    tx.put(&used, &key, &7).await?;
                    let mut is_first = true;
                    std::future::poll_fn(|context| {
                        context.waker().wake_by_ref();
                        match std::mem::take(&mut is_first) {
                            true => std::task::Poll::Pending,
                            false => std::task::Poll::Ready(()),
                        }
                    })
                    .await;
                }
                Ok(())
            });
            ended += u32::from(block_on(poll_at_most(execution, polls % 4)).is_some());
            // A dropped closure that holds the records is ended, so this does not wait for ever.
            for key in 0..5 {
                let expected = (key == 1).then_some(1);
                assert_eq!(block_on(db.get(&table, &key)).unwrap(), expected);
                block_on(db.put(&table, &key, &1)).unwrap();
                if key != 1 {
                    block_on(db.delete(&table, &key)).unwrap();
                }
            }
        }
        assert!(ended < 39, "some were dropped before their end");
    });
}

/// An application that is dropped halfway cannot commit. It has so many rows that it lets other
/// tasks run.
#[test]
fn a_dropped_application_cannot_commit() {
    const ROWS: u64 = 5000;
    for_both_kinds(|db, table| {
        let used = table.clone();
        let executed = db.execute(async move |tx| {
            for key in 0..ROWS {
                tx.put(&used, &key, &2).await?;
            }
            Ok(())
        });
        let writes = block_on(executed).unwrap().writes;
        for polls in 1..4 {
            let writes = writes.clone();
            let ran = db.run_blocking(async move |tx| {
                let done = poll_at_most(tx.apply(&writes), polls).await;
                done.transpose().map(|done| done.is_some())
            });
            assert!(matches!(ran, Err(Error::Misuse(Misuse::IncompleteApply))), "{ran:?}");
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(1));
            assert_eq!(block_on(db.len(&table)).unwrap(), 1);
        }
        block_on(db.run(async move |tx| tx.apply(&writes).await)).unwrap();
        assert_eq!(block_on(db.len(&table)).unwrap(), ROWS);
    });
}

#[test]
fn errors_and_panics_are_those_of_the_closure() {
    #[derive(Debug)]
    enum Refused {
        OnPurpose(u64),
        Engine(Error),
    }
    impl From<Error> for Refused {
        fn from(error: Error) -> Self {
            Refused::Engine(error)
        }
    }
    for_both_kinds(|db, table| {
        let used = table.clone();
        let refused = db.try_execute(async move |tx| {
            tx.put(&used, &1, &2).await?;
            let seen = tx.get(&used, &1).await?.unwrap();
            if seen > 0 { Err(Refused::OnPurpose(seen)) } else { Ok(()) }
        });
        assert!(matches!(block_on(refused), Err(Refused::OnPurpose(2))));
        let used = table.clone();
        let missing = db.try_execute(async move |tx| Ok(tx.update(&used, &9, &2).await?));
        assert!(matches!(block_on(missing), Err(Refused::Engine(Error::KeyNotFound { .. }))));
        let used = table.clone();
        let panicked = db.execute(async move |tx| {
            tx.put(&used, &1, &3).await?;
            assert!(tx.get(&used, &1).await?.is_none(), "planted");
            Ok(())
        });
        let Err(Error::Panicked(message)) = block_on(panicked) else { panic!("it panics") };
        assert!(message.contains("planted"), "{message}");
        block_on(db.put(&table, &1, &4)).unwrap();
        db.close().unwrap();
        let closed = block_on(db.execute(async move |tx| tx.get(&table, &1).await));
        assert!(matches!(closed, Err(Error::Closed)));
    });
}

/// Conflicts with other transactions are retried, as often as the builder allows.
#[test]
fn conflicts_are_retried() {
    for_both_kinds(|db, table| {
        let other = block_on(db.begin()).unwrap();
        block_on(other.put(&table, &1, &5)).unwrap();
        let used = table.clone();
        let once = db.transaction().max_attempts(1);
        let refused = block_on(once.execute(async move |tx| tx.put(&used, &1, &6).await));
        let Err(Error::Conflict { record: Some(record), .. }) = refused else { panic!("conflict") };
        assert_eq!(record.table, "numbers");
        let (used, attempts) = (table.clone(), Arc::new(AtomicU64::new(0)));
        let counted = attempts.clone();
        let execution = db.execute(async move |tx| {
            counted.fetch_add(1, Ordering::SeqCst);
            tx.put(&used, &1, &6).await?;
            tx.get(&used, &1).await
        });
        let execution = std::thread::spawn(move || block_on(execution).unwrap());
        while attempts.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        block_on(other.commit()).unwrap();
        let proposal = execution.join().unwrap();
        assert_eq!(
            (proposal.value, u64::from(proposal.attempts)),
            (Some(6), { attempts.load(Ordering::SeqCst) })
        );
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(5));
    });
}

/// Also if the closure ignores it.
#[test]
fn changes_of_tables_are_refused() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let refuses = |ran: Result<(), Error>| match ran {
            Err(Error::Misuse(Misuse::NotExecutable(what))) => what,
            other => panic!("{other:?}"),
        };
        let created = db.execute(async |tx| tx.create_table::<u64, u64>("new").await.map(drop));
        assert!(refuses(block_on(created).map(drop)).contains("create"));
        let paged = TableOptions::default().paged().ttl(Duration::from_hours(1));
        let created = db.execute(async move |tx| {
            let table = tx.create_table_with::<u64, u64>("new", paged).await?;
            tx.put(&table, &1, &1).await
        });
        assert!(refuses(block_on(created).map(drop)).contains("create"));
        assert!(block_on(db.tables()).unwrap().is_empty());

        let staged = block_on(db.stage_table::<u64, u64>("staged")).unwrap();
        let table = staged.table().clone();
        let written = block_on(db.execute(async move |tx| tx.put(&table, &1, &1).await));
        assert!(refuses(written.map(drop)).contains("staged table"));
        block_on(staged.discard()).unwrap();

        // A table that is created and undone is none.
        let undone = db.execute(async |tx| {
            let savepoint = tx.savepoint();
            tx.create_table::<u64, u64>("new").await?;
            tx.rollback_to(&savepoint).await
        });
        assert!(block_on(undone).unwrap().writes.is_empty());
    });
}

/// The catalog is read by name; a renamed table has its new name in later sets.
#[test]
fn sets_name_tables_as_the_catalog_does() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Numbers = block_on(db.create_table("before")).unwrap();
        let extract = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
        block_on(db.index(&table, "by.value", IndexOptions::default(), extract)).unwrap();
        block_on(db.rename_table("before", "af.ter")).unwrap();
        let executed = db.execute(async move |tx| {
            let opened: Numbers = tx.open_table("af.ter").await?;
            tx.get(&opened, &5).await?;
            tx.put(&table, &1, &1).await
        });
        let proposal = block_on(executed).unwrap();
        let spaces: Vec<_> = proposal.reads.points().map(|(space, _)| space.table).collect();
        assert_eq!(spaces, ["af.ter", "braid.catalog"]);
        let keys = proposal.writes.keys();
        let spaces: Vec<_> = keys.points().map(|(space, _)| (space.table, space.index)).collect();
        assert_eq!(spaces, [("af.ter", None), ("af.ter", Some("by.value"))]);
    });
}

/// A reader of an old snapshot opens a table by its former name.
#[test]
fn an_old_snapshot_changes_no_name() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Numbers = block_on(db.create_table("before")).unwrap();
        let old = block_on(db.snapshot()).unwrap();
        block_on(db.rename_table("before", "after")).unwrap();
        let open = async |tx: &Transaction| tx.open_table::<u64, u64>("before").await.map(drop);
        block_on(old.run(open)).unwrap();
        let body = async move |tx: &Transaction| tx.update(&table, &1, &1).await;
        let failed = block_on(db.run(body.clone())).unwrap_err().to_string();
        assert!(failed.contains("after"), "{failed}");
        let body = async move |tx: &Transaction| match body(tx).await {
            Err(Error::KeyNotFound(_)) => Ok(()),
            other => other,
        };
        let proposal = block_on(db.execute(body)).unwrap();
        assert_eq!(proposal.reads.points().next().unwrap().0.table, "after");
    });
}

/// A table that is renamed while a closure runs has the name of the closure's snapshot, which may be
/// extended only if the closure writes.
#[test]
fn a_table_that_is_renamed_meanwhile_has_one_name() {
    with_limit(LIMIT_SECONDS, |_| {
        for writes in [false, true] {
            let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
            let table: Numbers = block_on(db.create_table("numbers")).unwrap();
            let renaming = db.clone();
            let executed = db.execute(async move |tx| {
                match writes {
                    true => tx.put(&table, &1, &1).await?,
                    false => _ = tx.get(&table, &1).await?,
                }
                // Not part of the transaction.
                renaming.rename_table("numbers", "others").await
            });
            match block_on(executed) {
                Ok(proposal) if writes => {
                    assert_eq!(proposal.writes.rows().next().unwrap().table, "others");
                }
                Ok(proposal) => {
                    assert_eq!(proposal.reads.points().next().unwrap().0.table, "numbers");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}
