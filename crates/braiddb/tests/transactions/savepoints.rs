//! Savepoints: a rollback undoes only the later writes.

use std::collections::BTreeMap;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, Misuse, Options, Savepoint, Table, Transaction};
use pollster::block_on;

type Model = BTreeMap<u64, Vec<u8>>;

const KEYS: u64 = 40;

async fn contents(tx: &Transaction, table: &Table<u64, [u8]>) -> Result<Model, Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, Model::new());
    while let Some((key, value)) = scan.next().await? {
        found.insert(key, value.to_vec());
    }
    Ok(found)
}

/// Runs one transaction of random writes and savepoints, with a model. Returns the expected
/// contents.
async fn carry_out(
    tx: &Transaction,
    table: &Table<u64, [u8]>,
    random: &mut fastrand::Rng,
) -> Result<Model, Error> {
    let mut model = contents(tx, table).await?;
    let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
    let mut forgotten: Vec<Savepoint> = Vec::new();
    for step in 0..random.u64(1..80) {
        let key = random.u64(..KEYS);
        let value = vec![step as u8; random.usize(..200)];
        match random.u8(..10) {
            0..=2 => {
                tx.put(table, &key, &value[..]).await?;
                model.insert(key, value);
            }
            3 => assert_eq!(tx.delete(table, &key).await?, model.remove(&key).is_some()),
            4 => match tx.insert(table, &key, &value[..]).await {
                Err(Error::KeyExists(_)) => assert!(model.contains_key(&key)),
                result => {
                    result?;
                    assert_eq!(model.insert(key, value), None);
                }
            },
            5 => {
                let found = tx.get(table, &key).await?.map(<[u8]>::to_vec);
                assert_eq!(found, model.get(&key).cloned());
            }
            6 | 7 => savepoints.push((tx.savepoint(), model.clone())),
            8 if !savepoints.is_empty() => {
                let place = random.usize(..savepoints.len());
                forgotten.extend(savepoints.drain(place + 1..).map(|one| one.0));
                let (savepoint, then) = &savepoints[place];
                tx.rollback_to(savepoint).await?;
                model = then.clone();
            }
            _ => {
                assert_eq!(contents(tx, table).await?, model);
                for savepoint in &forgotten {
                    let refused = tx.rollback_to(savepoint).await;
                    assert!(
                        matches!(refused, Err(Error::Misuse(Misuse::SavepointEnded))),
                        "{refused:?}"
                    );
                }
            }
        }
    }
    assert_eq!(contents(tx, table).await?, model);
    Ok(model)
}

/// Runs transactions with savepoints one after the other and compares each with its model; every
/// third one aborts.
fn one_after_the_other(db: &Database, seed: u64, rounds: u64, paged: bool) {
    let name = if paged { "paged" } else { "records" };
    let table: Table<u64, [u8]> = create_table(db, name, paged);
    let mut before = Model::new();
    for round in 0..rounds {
        let used = table.clone();
        let result = db.run_blocking(async move |tx| {
            let mut random = fastrand::Rng::with_seed(seed << 32 | round);
            let left = carry_out(tx, &used, &mut random).await?;
            if round % 3 == 0 { Err(Error::Closed) } else { Ok(left) }
        });
        match result {
            Ok(left) => before = left,
            Err(Error::Closed) => assert_eq!(round % 3, 0),
            Err(error) => panic!("{error}"),
        }
        let used = table.clone();
        let now = db.run_blocking(async move |tx| contents(tx, &used).await).unwrap();
        assert_eq!(now, before, "round {round}");
        assert_eq!(pollster::block_on(db.len(&table)).unwrap(), before.len() as u64);
    }
}

#[test]
fn savepoints_roll_back_later_writes() {
    with_limit(180, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        one_after_the_other(&db, 1, 400, false);
        one_after_the_other(&db, 3, 400, true);
        let directory = tempfile::tempdir().unwrap();
        let open =
            || Database::open(directory.path(), Options::default().workers(2)).unwrap().watched();
        let db = open();
        one_after_the_other(&db, 2, 200, false);
        let table = block_on(db.open_table::<u64, [u8]>("records")).unwrap();
        let before = db.run_blocking(async move |tx| contents(tx, &table).await).unwrap();
        db.close().unwrap();
        let db = open();
        let table = block_on(db.open_table::<u64, [u8]>("records")).unwrap();
        let after = db.run_blocking(async move |tx| contents(tx, &table).await).unwrap();
        assert_eq!(after, before);
    });
}

/// Concurrent transactions with savepoints on the same records: no transaction sees rolled-back
/// writes, and commits are atomic.
#[test]
fn independent_savepoints_roll_back_separately() {
    with_limit(180, |_| {
        [false, true].into_iter().for_each(beside_one_another);
    });
}

fn beside_one_another(paged: bool) {
    let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
    let table: Table<u64, u64> = create_table(&db, "sums", paged);
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || {
                for round in 0..500 {
                    let table = table.clone();
                    let body = async move |tx: &Transaction| {
                        let mut random = fastrand::Rng::with_seed(thread << 32 | round);
                        let mut sum = 0;
                        for key in 0..10_u64 {
                            sum += tx.get(&table, &key).await?.unwrap_or(0);
                        }
                        assert_eq!(sum % 10, 0, "only whole transactions are seen");
                        let savepoint = tx.savepoint();
                        let start = random.u64(..10);
                        for key in start..10 {
                            tx.put(&table, &key, &round).await?;
                        }
                        tx.rollback_to(&savepoint).await?;
                        // Always ten in total, over one record or two.
                        let (one, two) = (random.u64(..10), random.u64(..10));
                        for (key, more) in [(one, 3), (two, 7)] {
                            let now = tx.get(&table, &key).await?.unwrap_or(0);
                            tx.put(&table, &key, &(now + more)).await?;
                        }
                        Ok::<_, Error>(())
                    };
                    loop {
                        match db.run_blocking(body.clone()) {
                            Ok(()) => break,
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let sum = db.run_blocking(async move |tx| {
        let (mut scan, mut sum) = (tx.scan(&table, ..)?, 0);
        while let Some((_, value)) = scan.next().await? {
            sum += value;
        }
        Ok::<_, Error>(sum)
    });
    assert_eq!(sum.unwrap(), 4 * 500 * 10);
}

#[test]
fn values_read_before_a_rollback_stay_valid() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        db.run_blocking(async move |tx| {
            tx.put(&table, &1, &[1; 100][..]).await?;
            let savepoint = tx.savepoint();
            let first = tx.get(&table, &1).await?.unwrap();
            tx.put(&table, &1, &[2; 100][..]).await?;
            tx.put(&table, &2, &[3; 100][..]).await?;
            let (second, third) =
                (tx.get(&table, &1).await?.unwrap(), tx.get(&table, &2).await?.unwrap());
            tx.rollback_to(&savepoint).await?;
            for n in 0..100 {
                tx.put(&table, &n, &[9; 100][..]).await?;
            }
            assert_eq!((first, second, third), (&[1; 100][..], &[2; 100][..], &[3; 100][..]));
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_scan_continues_after_a_rollback() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        db.run_blocking(async move |tx| {
            for key in [10, 20, 30, 40] {
                tx.put(&table, &key, &0).await?;
            }
            for reverse in [false, true] {
                let savepoint = tx.savepoint();
                tx.put(&table, &25, &1).await?;
                tx.put(&table, &40, &1).await?;
                tx.put(&table, &10, &1).await?;
                let scan = tx.scan(&table, ..)?;
                let mut scan = if reverse { scan.rev() } else { scan };
                let mut order = [10, 20, 30, 40];
                if reverse {
                    order.reverse();
                }
                assert_eq!(scan.next().await?, Some((order[0], 1)));
                tx.rollback_to(&savepoint).await?;
                for key in &order[1..] {
                    assert_eq!(scan.next().await?, Some((*key, 0)), "in reverse: {reverse}");
                }
                assert_eq!(scan.next().await?, None);
            }
            Ok(())
        })
        .unwrap();
    });
}

/// The records that a rollback restores may be the last ones of the range.
#[test]
fn a_scan_finds_deleted_records_that_a_rollback_restores() {
    with_limit(60, |_| {
        for (paged, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
            let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            let table: Table<u64, u64> = create_table(&db, "records", paged);
            db.run_blocking(async move |tx| {
                tx.put(&table, &10, &1).await?;
                tx.put(&table, &20, &2).await?;
                let [first, last] = if reverse { [(20, 2), (10, 1)] } else { [(10, 1), (20, 2)] };
                for at_end in [false, true] {
                    let savepoint = tx.savepoint();
                    tx.delete(&table, &last.0).await?;
                    let scan = tx.scan(&table, ..)?;
                    let mut scan = if reverse { scan.rev() } else { scan };
                    assert_eq!(scan.next().await?, Some(first));
                    if at_end {
                        assert_eq!(scan.next().await?, None);
                    }
                    tx.rollback_to(&savepoint).await?;
                    let why = format!("paged {paged}, in reverse {reverse}, at the end {at_end}");
                    assert_eq!(scan.next().await?, Some(last), "{why}");
                    assert_eq!(scan.next().await?, None, "{why}");
                }
                Ok(())
            })
            .unwrap();
        }
    });
}

#[test]
fn rolling_back_a_transaction_removes_the_table_that_it_created() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let leaked = db.run_blocking(async |tx| {
            let kept: Table<u64, u64> = tx.create_table("kept").await?;
            let savepoint = tx.savepoint();
            let gone: Table<u64, u64> = tx.create_table("gone").await?;
            tx.put(&gone, &1, &1).await?;
            assert_eq!(tx.get(&gone, &2).await?, None);
            let mut scan = tx.scan(&gone, ..)?;
            assert_eq!(scan.next().await?, Some((1, 1)));
            tx.rollback_to(&savepoint).await?;
            assert_eq!(scan.next().await?, None);
            drop(scan);
            assert!(matches!(tx.get(&gone, &1).await, Err(Error::TableNotFound(_))));
            let again: Table<u64, u64> = tx.create_table("gone").await?;
            tx.rollback_to(&savepoint).await?;
            tx.put(&kept, &1, &1).await?;
            drop(gone);
            Ok(again)
        });
        let leaked = leaked.unwrap();
        let used = db.run_blocking(async move |tx| tx.get(&leaked, &1).await);
        assert!(matches!(used, Err(Error::TableNotFound(_))));
        let names = block_on(db.tables()).unwrap();
        assert_eq!(names.iter().map(|table| &table.name[..]).collect::<Vec<_>>(), ["kept"]);
    });
}

/// The success of a write revealed whether the record existed: after a rollback this still counts
/// as a read.
#[test]
fn rolled_back_writes_are_validated_as_reads() {
    with_limit(60, |_| {
        for case in 0..8 {
            let [paged, existed, changed] = [1, 2, 4].map(|bit| case & bit != 0);
            let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            let table: Table<u64, u64> = create_table(&db, "records", paged);
            let (other, used) = (db.clone(), table.clone());
            let write = move |key: u64, there: bool| {
                let table = used.clone();
                other.run_blocking(async move |tx| match there {
                    true => tx.put(&table, &key, &7).await,
                    false => tx.delete(&table, &key).await.map(drop),
                })
            };
            write(1, existed).unwrap();
            let tx = block_on(db.begin()).unwrap();
            let savepoint = block_on(tx.savepoint()).unwrap();
            match existed {
                true => block_on(tx.update(&table, &1, &1)).unwrap(),
                false => block_on(tx.insert(&table, &1, &1)).unwrap(),
            }
            block_on(tx.rollback_to(&savepoint)).unwrap();
            if changed {
                write(1, !existed).unwrap();
            }
            block_on(tx.put(&table, &2, &2)).unwrap();
            let committed = block_on(tx.commit());
            assert_eq!(
                matches!(committed, Err(Error::NotSerializable { .. })),
                changed,
                "{paged} {existed} {changed}: {committed:?}"
            );
        }
    });
}

#[test]
fn a_savepoint_of_another_transaction_is_rejected() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let (one, two) = (block_on(db.begin()).unwrap(), block_on(db.begin()).unwrap());
        let savepoint = block_on(one.savepoint()).unwrap();
        assert!(block_on(two.savepoint()).is_ok());
        block_on(two.put(&table, &1, &1)).unwrap();
        assert!(matches!(
            block_on(two.rollback_to(&savepoint)),
            Err(Error::Misuse(Misuse::SavepointEnded))
        ));
        block_on(two.commit()).unwrap();
        block_on(one.rollback_to(&savepoint)).unwrap();
        block_on(one.commit()).unwrap();
    });
}

/// A transaction without writes may have many versions that it unlinked itself, by a rollback or by
/// overwriting its own writes.
#[test]
fn a_transaction_that_undid_many_writes_commits() {
    const MANY: u64 = 300;
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let cases =
            [("a", false, None), ("b", false, Some(7)), ("c", true, None), ("d", true, Some(7))];
        for (name, paged, last) in cases {
            let table: Table<u64, u64> = create_table(&db, name, paged);
            let of = table.clone();
            let body = async move |tx: &Transaction| {
                let savepoint = tx.savepoint();
                for key in (0..MANY).chain(0..MANY) {
                    tx.put(&of, &key, &1).await?;
                }
                tx.rollback_to(&savepoint).await?;
                if let Some(last) = last {
                    for value in 0..=MANY {
                        tx.put(&of, &last, &value).await?;
                    }
                }
                Ok(())
            };
            db.run_blocking(body).unwrap();
            assert_eq!(block_on(db.len(&table)).unwrap(), u64::from(last.is_some()));
            assert_eq!(block_on(db.get(&table, &7)).unwrap(), last.map(|_| MANY));
        }
    });
}

/// Values that a transaction read from its own writes stay valid after it has overwritten them or
/// rolled them back.
#[test]
fn values_of_own_writes_outlive_the_writes() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, str> = create_table(&db, "records", false);
        let run = db.run(async move |tx| {
            let savepoint = tx.savepoint();
            let value = |number: u64| format!("{number:032}");
            let mut found = Vec::new();
            for number in 0..400 {
                if number % 100 == 0 {
                    tx.rollback_to(&savepoint).await?;
                }
                tx.put(&table, &7, &value(number)).await?;
                found.push(match number % 2 {
                    0 => tx.get(&table, &7).await?.expect("it was written"),
                    _ => tx.multi_get(&table, &[7]).await?[0].expect("it was written"),
                });
            }
            for (number, found) in (0..).zip(found) {
                assert_eq!(found, value(number));
            }
            // A scan lends the value until its next call.
            let mut scan = tx.scan(&table, ..)?;
            let (key, found) = scan.next().await?.expect("it was written");
            // Enough for several turns of housekeeping, which free memory.
            for number in 1000..9000 {
                tx.put(&table, &key, &value(number)).await?;
            }
            assert_eq!(found, value(399));
            assert!(scan.next().await?.is_none());
            Ok(())
        });
        block_on(run).unwrap();
    });
}
