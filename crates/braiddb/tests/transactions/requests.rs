//! External influences on a transaction by its caller: other executors, panics, drops and closing.

use std::cmp::Reverse;
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, DecodeError, Error, IndexKeys, IndexOptions, Key, KeyBuffer, Misuse, Options,
    Outcome, Table, Transaction,
};
use futures_channel::oneshot;
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

type Records = Table<str, u64>;

fn open() -> (Database, Records) {
    let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

fn get(db: &Database, table: &Records, key: &'static str) -> Option<u64> {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.get(&table, key).await)
        .unwrap_or_else(|e: Error| panic!("{e}"))
}

#[test]
fn transactions_run_from_tokio_smol_and_a_plain_thread() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let put = |key: &'static str| {
            let table = table.clone();
            db.run(async move |tx| tx.put(&table, key, &1).await)
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(put("tokio")).unwrap_or_else(|e: Error| panic!("{e}"));
        smol::block_on(put("smol")).unwrap_or_else(|e: Error| panic!("{e}"));
        block_on(put("bare")).unwrap_or_else(|e: Error| panic!("{e}"));
        for key in ["tokio", "smol", "bare"] {
            assert_eq!(get(&db, &table, key), Some(1));
        }
    });
}

/// Awaits a timer, a task of the runtime and a channel with a time limit inside a transaction.
async fn use_tokio(tx: &Transaction, table: &Records, key: &'static str) -> Result<(), Error> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let spawned = tokio::spawn(async { 7 }).await.unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move { sender.send(spawned).unwrap() });
    let waited = tokio::time::timeout(Duration::from_secs(60), receiver).await;
    tx.put(table, key, &waited.unwrap().unwrap()).await?;
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[test]
fn timers_and_tasks_of_the_callers_runtime_work_inside() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let new_runtime = || {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap()
        };
        // Two runtimes, so that workers switch between them.
        let runtimes = [new_runtime(), new_runtime()];
        let threads = runtimes.into_iter().enumerate().map(|(number, runtime)| {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || {
                runtime.block_on(async {
                    for _ in 0..20 {
                        let inner = table.clone();
                        let key = ["first", "second"][number];
                        let run = db.run(async move |tx| use_tokio(tx, &inner, key).await);
                        run.await.unwrap_or_else(|e: Error| panic!("{e}"));
                    }
                    let transaction = db.begin().await.unwrap();
                    let inner = table.clone();
                    let key = ["a step", "another step"][number];
                    let step = async move |tx: &Transaction| use_tokio(tx, &inner, key).await;
                    transaction.step(step).await.unwrap_or_else(|e: Error| panic!("{e}"));
                    transaction.commit().await.unwrap();
                    let (inner, keys) = (table.clone(), [["a", "b"], ["c", "d"]][number]);
                    let source = async move |tx: &Transaction, key: &&'static str| {
                        use_tokio(tx, &inner, key).await
                    };
                    db.run_source(number, keys, source).unwrap().done().await.unwrap();
                });
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        for key in ["first", "second", "a step", "another step", "a", "b", "c", "d"] {
            assert_eq!(get(&db, &table, key), Some(7));
        }
        let inner = table.clone();
        let timer = db.run(async move |tx| {
            smol::Timer::after(Duration::from_millis(1)).await;
            tx.put(&inner, "smol", &8).await
        });
        smol::block_on(timer).unwrap_or_else(|e: Error| panic!("{e}"));
        assert_eq!(get(&db, &table, "smol"), Some(8));
    });
}

#[test]
fn a_closures_error_aborts_and_is_returned_unchanged() {
    with_limit(LIMIT_SECONDS, |_| {
        #[derive(Debug, PartialEq)]
        enum Mine {
            Refused(u32),
            Database(String),
        }
        impl From<Error> for Mine {
            fn from(error: Error) -> Self {
                Mine::Database(error.to_string())
            }
        }
        let (db, table) = open();
        let kept = table.clone();
        let result: Result<Outcome<()>, Mine> =
            db.transaction().try_run_blocking(async move |tx| {
                tx.put(&kept, "key", &1).await?;
                Err(Mine::Refused(42))
            });
        assert_eq!(result, Err(Mine::Refused(42)));
        assert_eq!(get(&db, &table, "key"), None);
    });
}

#[test]
fn a_panic_aborts_only_its_transaction() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let kept = table.clone();
        let result = db.run_blocking(async move |tx| {
            tx.put(&kept, "key", &1).await?;
            if tx.attempt() > 0 {
                panic!("on purpose");
            }
            Ok(())
        });
        assert!(matches!(result, Err(Error::Panicked(message)) if message == "on purpose"));
        assert_eq!(get(&db, &table, "key"), None);
        assert_eq!(db.stats().aborted.panic, 1);
    });
}

#[test]
fn a_foreign_future_may_be_awaited() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let (sender, receiver) = oneshot::channel::<u64>();
        let receiver = std::sync::Mutex::new(Some(receiver));
        let kept = table.clone();
        let run = db.run(async move |tx| {
            let receiver = receiver.lock().unwrap().take().unwrap();
            let value = receiver.await.unwrap();
            tx.put(&kept, "key", &value).await
        });
        let waiting =
            std::thread::spawn(move || block_on(run).unwrap_or_else(|e: Error| panic!("{e}")));
        std::thread::sleep(Duration::from_millis(20));
        sender.send(7).unwrap();
        waiting.join().unwrap();
        assert_eq!(get(&db, &table, "key"), Some(7));
    });
}

#[test]
fn dropping_the_future_aborts() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let (began, begun) = oneshot::channel();
        let began = std::sync::Mutex::new(Some(began));
        let kept = table.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let run = db.run(async move |tx| {
                tx.put(&kept, "key", &1).await?;
                began.lock().unwrap().take().unwrap().send(()).unwrap();
                std::future::pending::<()>().await;
                Ok(())
            });
            tokio::select! {
                _ = run => unreachable!("it waits for ever"),
                begun = begun => begun.unwrap(),
            }
        });
        // The record is unlocked as soon as the abort has reached the worker.
        let kept = table.clone();
        let put = db
            .transaction()
            .max_attempts(u32::MAX)
            .run(async move |tx| tx.insert(&kept, "key", &2).await);
        block_on(put).unwrap_or_else(|e: Error| panic!("{e}"));
        assert_eq!(get(&db, &table, "key"), Some(2));
        assert_eq!(db.stats().aborted.dropped, 1);
    });
}

#[test]
fn conflicts_are_bounded_and_reported() {
    const WRITTEN_FIRST: &str = r#"another transaction wrote table "records", key "key" first"#;
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let holder = block_on(db.begin()).unwrap();
        let kept = table.clone();
        block_on(holder.step(async move |tx: &Transaction| tx.put(&kept, "key", &1).await))
            .unwrap_or_else(|e: Error| panic!("{e}"));
        let kept = table.clone();
        let result: Result<_, Error> = block_on(
            db.transaction().max_attempts(5).run(async move |tx| tx.put(&kept, "key", &2).await),
        );
        let error = result.unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&format!("gave up after 5 attempts: {WRITTEN_FIRST}")),
            "{message}"
        );
        assert_eq!(db.stats().aborted.conflict, 5);
        assert_eq!(db.stats().retries, 4);
        // Steps of interactive transactions report the same.
        let other = block_on(db.begin()).unwrap();
        let stepped = block_on(other.put(&table, "key", &3)).unwrap_err();
        let Error::Conflict { attempts: 1, record: Some(record) } = &stepped else {
            panic!("{stepped}");
        };
        assert_eq!(record.to_string(), r#"table "records", key "key""#);
        let ended = block_on(other.commit()).unwrap_err();
        assert_eq!(ended.to_string(), stepped.to_string());
        block_on(holder.commit()).unwrap();
        assert_eq!(get(&db, &table, "key"), Some(1));
    });
}

#[test]
fn steps_of_an_interactive_transaction_may_come_from_any_thread() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let transaction = block_on(db.begin()).unwrap();
        block_on(transaction.put(&table, "key", &1)).unwrap();
        let transaction = std::thread::spawn({
            let table = table.clone();
            move || {
                assert_eq!(block_on(transaction.get(&table, "key")).unwrap(), Some(1));
                transaction
            }
        })
        .join()
        .unwrap();
        assert_eq!(get(&db, &table, "key"), None);
        block_on(transaction.commit()).unwrap();
        assert_eq!(get(&db, &table, "key"), Some(1));
    });
}

#[test]
fn a_dropped_interactive_transaction_aborts() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let transaction = block_on(db.begin()).unwrap();
        block_on(transaction.put(&table, "key", &1)).unwrap();
        drop(transaction);
        let kept = table.clone();
        let put = db
            .transaction()
            .max_attempts(u32::MAX)
            .run(async move |tx| tx.insert(&kept, "key", &2).await);
        block_on(put).unwrap_or_else(|e: Error| panic!("{e}"));
        assert_eq!(get(&db, &table, "key"), Some(2));
    });
}

#[test]
fn many_open_interactive_transactions_do_not_stop_others() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let open: Vec<_> = (0..1000).map(|_| block_on(db.begin()).unwrap()).collect();
        let kept = table.clone();
        db.run_blocking(async move |tx| tx.put(&kept, "key", &1).await)
            .unwrap_or_else(|e: Error| panic!("{e}"));
        for transaction in open {
            assert_eq!(block_on(transaction.get(&table, "key")).unwrap(), None, "begun before");
            block_on(transaction.commit()).unwrap();
        }
    });
}

#[test]
fn calls_on_a_closed_database_fail_with_closed() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let other = db.clone();
        db.close().unwrap();
        let result = other.run_blocking(async move |tx| tx.put(&table, "key", &1).await);
        assert!(matches!(result, Err(Error::Closed)));
        assert!(matches!(block_on(other.begin()), Err(Error::Closed)));
        other.close().unwrap();
    });
}

#[test]
fn a_table_of_another_database_is_rejected() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, _table) = open();
        let (_other, foreign) = open();
        let result = db.run_blocking(async move |tx| tx.put(&foreign, "key", &1).await);
        assert!(
            matches!(result, Err(Error::Misuse(Misuse::ForeignTable(name))) if name == "records")
        );
    });
}

#[test]
fn blocking_calls_inside_a_transaction_fail() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let inner = db.clone();
        let result = db.run_blocking(async move |_tx| {
            let table = table.clone();
            inner.run_blocking(async move |tx| tx.put(&table, "key", &1).await)
        });
        assert!(matches!(result, Err(Error::Misuse(Misuse::WouldBlock))));
    });
}

#[test]
fn statistics_count_closures_that_block_their_worker() {
    const BLOCKED: Duration = Duration::from_millis(300);
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        db.run_blocking(async move |tx| {
            std::thread::sleep(BLOCKED);
            tx.put(&table, "key", &1).await
        })
        .unwrap();
        // The turn that ends the stall comes after the transaction.
        while !db.stats().workers.iter().any(|worker| worker.longest_stretch >= BLOCKED) {
            std::thread::yield_now();
        }
    });
}

/// Operations that wait for the end of all active transactions are refused within a transaction,
/// because they would wait for it.
#[test]
fn operations_that_wait_for_active_transactions_fail_within_one() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        block_on(db.index(&table, "by_value", IndexOptions::default(), value)).unwrap();
        let (inner, records) = (db.clone(), table.clone());
        db.run_blocking(async move |_tx| {
            let others = async {
                // An index that exists needs no waiting.
                inner.index(&records, "by_value", IndexOptions::default(), value).await?;
                let another =
                    inner.index(&records, "another", IndexOptions::default(), value).await;
                assert!(matches!(another, Err(Error::Misuse(Misuse::WouldBlock))), "{another:?}");
                let refused = [
                    inner.drop_index(&records, "by_value").await,
                    inner.drop_table("records").await,
                    inner.compact().await.map(drop),
                ];
                for refused in refused {
                    assert!(
                        matches!(refused, Err(Error::Misuse(Misuse::WouldBlock))),
                        "{refused:?}"
                    );
                }
                Ok(())
            };
            others.await
        })
        .unwrap();
        let rows = block_on(db.indexes()).unwrap();
        assert_eq!(rows.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["by_value"]);
        block_on(db.drop_index(&table, "by_value")).unwrap();
        block_on(db.drop_table("records")).unwrap();
    });
}

#[test]
fn tables_have_types_and_names() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, _table) = open();
        let wrong = block_on(db.open_table::<u32, u64>("records"));
        let error = wrong.unwrap_err();
        assert!(matches!(&error, Error::Misuse(Misuse::TableType { .. })), "{error}");
        assert!(matches!(block_on(db.open_table::<str, u64>("no")), Err(Error::TableNotFound(_))));
        assert!(matches!(
            block_on(db.create_table::<str, u64>("records")),
            Err(Error::TableExists(_))
        ));
        assert!(matches!(
            block_on(db.create_table::<str, u64>("")),
            Err(Error::Misuse(Misuse::TableName(_)))
        ));
        let tables = block_on(db.tables()).unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!((tables[0].name.as_str(), tables[0].key_type.as_str()), ("records", "str"));
    });
}

#[test]
fn creating_a_table_is_transactional() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, _table) = open();
        let result: Result<(), Error> = db.run_blocking(async |tx| {
            let table = tx.create_table::<u64, u64>("taken back").await?;
            tx.put(&table, &1, &1).await?;
            Err(Error::Closed)
        });
        assert!(matches!(result, Err(Error::Closed)));
        assert!(matches!(
            block_on(db.open_table::<u64, u64>("taken back")),
            Err(Error::TableNotFound(_))
        ));
    });
}

#[test]
fn a_retry_waits_for_a_long_write() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open();
        let held = block_on(db.begin()).unwrap();
        block_on(held.put(&table, "key", &1)).unwrap();
        let outcome = std::thread::scope(|scope| {
            let rival = scope.spawn(|| {
                let table = table.clone();
                let put = db.transaction().run(async move |tx| tx.put(&table, "key", &2).await);
                block_on(put)
            });
            // Each retry waits for an eighth of a second on average, for some two seconds in total.
            while db.stats().suspensions.back_off < 20 && !rival.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            block_on(held.commit()).unwrap();
            rival.join().unwrap()
        });
        let attempts = outcome.unwrap().attempts;
        assert!((13..64).contains(&attempts), "{attempts}");
        assert!(db.stats().suspensions.back_off > 0);
        assert_eq!(get(&db, &table, "key"), Some(2));
    });
}

#[test]
fn a_conflict_shows_its_key_by_the_type_of_the_tables_keys() {
    /// A custom key type without a display format.
    struct Own;

    impl Key for Own {
        type Owned = Own;

        fn type_name() -> String {
            "own".to_owned()
        }

        fn encode(&self, out: &mut KeyBuffer) {
            out.push(7);
        }

        fn decode(_: &[u8]) -> Result<Own, DecodeError> {
            Ok(Own)
        }

        fn decode_part(bytes: &[u8]) -> Result<(Own, &[u8]), DecodeError> {
            Ok((Own, &bytes[1..]))
        }
    }

    #[derive(Key)]
    #[key(name = "test.order")]
    struct Order {
        shop: String,
        r#number: u64,
    }

    #[derive(Key)]
    #[key(name = "test.queue")]
    enum Queue {
        Urgent,
        Late(u8, Option<bool>),
    }

    #[derive(Key)]
    #[key(name = "test.of_own")]
    struct OfOwn {
        _own: Own,
    }

    fn shown<K: Key>(db: &Database, name: &str, key: &K) -> String {
        let table: Table<K, u64> = block_on(db.open_or_create_table(name)).unwrap();
        let (holder, other) = (block_on(db.begin()).unwrap(), block_on(db.begin()).unwrap());
        block_on(holder.put(&table, key, &1)).unwrap();
        let Err(Error::Conflict { record: Some(record), .. }) =
            block_on(other.put(&table, key, &2))
        else {
            panic!("no conflict about a key of {name}");
        };
        record.to_string()
    }

    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        assert_eq!(shown(&db, "a", &7_u64), r#"table "a", key 7"#);
        assert_eq!(shown(&db, "b", &("a\0b".to_owned(), -7_i32)), r#"table "b", key ("a\0b", -7)"#);
        assert_eq!(shown(&db, "c", &(vec![0_u8, 255], true)), r#"table "c", key (0x00ff, true)"#);
        assert_eq!(
            shown(&db, "d", &(Some(1.5), None::<u8>)),
            r#"table "d", key (Some(1.5), None)"#
        );
        assert_eq!(shown(&db, "e", &(Reverse(7_u8),)), r#"table "e", key (Reverse(7),)"#);
        assert_eq!(
            shown(&db, "h", &Order { shop: "eu".to_owned(), r#number: 7 }),
            r#"table "h", key Order { shop: "eu", number: 7 }"#
        );
        assert_eq!(
            shown(&db, "i", &(Queue::Late(3, Some(true)), 7_u8)),
            r#"table "i", key (Late(3, Some(true)), 7)"#
        );
        assert_eq!(shown(&db, "j", &Queue::Urgent), r#"table "j", key Urgent"#);
        // Unknown types are shown as bytes.
        assert_eq!(shown(&db, "k", &OfOwn { _own: Own }), r#"table "k", key \x07"#);
        assert_eq!(shown(&db, "f", &Own), r#"table "f", key \x07"#);
        assert_eq!(shown(&db, "g", &(Own, 1_u8)), r#"table "g", key \x07\x01"#);
        // Opening the table with encoded keys changes nothing.
        block_on(db.run(async |tx| tx.open_encoded_table("a").await.map(drop))).unwrap();
        assert_eq!(shown(&db, "a", &8_u64), r#"table "a", key 8"#);
    });
}

/// The range that a transaction read and failed on is shown with typed keys too.
#[test]
fn a_range_that_changed_is_shown_by_the_type_of_its_keys() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        let reader = block_on(db.begin()).unwrap();
        let kept = table.clone();
        let counted = block_on(reader.step(async move |tx| tx.count(&kept, 7..9).await));
        assert_eq!(counted.unwrap(), 0);
        block_on(db.put(&table, &8, &1)).unwrap();
        block_on(reader.put(&table, &100, &1)).unwrap();
        let failed = block_on(reader.commit()).unwrap_err();
        let Error::NotSerializable { read, .. } = &failed else { panic!("{failed}") };
        assert_eq!(read.to_string(), r#"table "t", keys from 7 to 9 (excluded)"#);
    });
}
