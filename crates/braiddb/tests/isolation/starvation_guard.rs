//! The starvation guard for transactions whose certification fails repeatedly: the holder of the
//! priority token makes progress, and no transaction waits for it forever, because the holder may
//! be waiting for that transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, IndexKeys, IndexOptions, Options, Table};
use pollster::block_on;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 120;
/// The failed certifications after which a transaction takes the priority token.
const FAILURES: u32 = 8;

fn in_memory(workers: usize) -> (Database, Table<u64, u64>) {
    let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let table = block_on(db.create_table("records")).unwrap();
    (db, table)
}

/// Runs a transaction whose first certifications fail, so that it takes the priority token. Each
/// later attempt runs `then`. Returns the number of attempts.
fn with_starvation_guard(
    db: &Database,
    table: &Table<u64, u64>,
    then: impl AsyncFn() -> Result<(), Error> + Send + 'static,
) -> Result<u32, Error> {
    let (other, table) = (db.clone(), table.clone());
    let run = db.transaction().run(async move |tx| {
        tx.get(&table, &1).await?;
        if tx.attempt() <= FAILURES {
            let table = table.clone();
            other.run(async move |tx| tx.put(&table, &1, &1).await).await?;
        } else {
            then().await?;
        }
        tx.put(&table, &2, &u64::from(tx.attempt())).await
    });
    Ok(block_on(run)?.attempts)
}

#[test]
fn the_token_holder_may_wait_for_another_transaction() {
    // At the same time, because the other transaction mostly waits.
    std::thread::scope(|scope| {
        for workers in [1, 2] {
            scope.spawn(move || {
                with_limit(LIMIT_SECONDS, move |_| token_holder_waits_for_another(workers));
            });
        }
    });
}

fn token_holder_waits_for_another(workers: usize) {
    let (db, table) = in_memory(workers);
    let (other, records) = (db.clone(), table.clone());
    let attempts = with_starvation_guard(&db, &table, async move || {
        let table = records.clone();
        other.run(async move |tx| tx.put(&table, &3, &3).await).await
    });
    assert_eq!(attempts.unwrap(), FAILURES + 1);
    let three = db.run_blocking(async move |tx| tx.get(&table, &3).await);
    assert_eq!(three.unwrap_or_else(|error: Error| panic!("{error}")), Some(3));
    let stats = db.stats();
    assert_eq!(stats.aborted.certification, u64::from(FAILURES));
    assert!(stats.aborted.conflict > 0, "it was turned away: {stats:?}");
}

/// The engine's own writes wait like all others.
#[test]
fn entries_of_a_dropped_index_are_deleted_while_the_token_is_held() {
    const RECORDS: u64 = 20_000;
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = in_memory(2);
        for start in (0..RECORDS).step_by(1000) {
            let table = table.clone();
            let filled = db.run_blocking(async move |tx| {
                for key in start..start + 1000 {
                    tx.put(&table, &key, &key).await?;
                }
                Ok(())
            });
            filled.unwrap();
        }
        let by_value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let over = Arc::new(AtomicBool::new(false));
        let busy = {
            let (db, table, over) = (db.clone(), table.clone(), over.clone());
            std::thread::spawn(move || {
                let mut holders = 0;
                while !over.load(Ordering::SeqCst) {
                    // Long enough for the others to notice.
                    let (other, records) = (db.clone(), table.clone());
                    let wait = async move || {
                        for _ in 0..20 {
                            let table = records.clone();
                            other.run(async move |tx| tx.get(&table, &5).await).await?;
                        }
                        Ok(())
                    };
                    // An attempt also fails if the builder of the index wrote an entry first.
                    assert!(with_starvation_guard(&db, &table, wait).unwrap() > FAILURES);
                    holders += 1;
                }
                holders
            })
        };
        for _ in 0..4 {
            let options = IndexOptions::default();
            block_on(db.index(&table, "by_value", options, by_value)).unwrap();
            block_on(db.drop_index(&table, "by_value")).unwrap();
        }
        over.store(true, Ordering::SeqCst);
        let holders: u64 = busy.join().unwrap();
        assert!(holders > 3);
        let failed = db.stats().aborted.certification;
        // Nearly all attempts failed for the tested reason.
        assert!(2 * failed > holders * u64::from(FAILURES), "{failed} for {holders} holders");
        assert!(block_on(db.indexes()).unwrap().is_empty());
    });
}
