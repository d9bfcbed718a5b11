//! Panics and errors in user code of indexes and partial reads: extractors, key decoders, progress
//! callbacks, and destructors of captured values. Each becomes the error of one call, that call has
//! no effect, and all other work continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use braiddb::indexes::IndexStage;
use braiddb::{
    Database, DecodeError, Error, Index, IndexKeys, IndexOptions, Key, KeyBuffer, Options, Table,
    Transaction, Tuning,
};
use pollster::block_on;

type Records = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 120;
/// The key at which decoding panics while this is enabled.
const BAD: u64 = 13;

static DECODING_PANICS: AtomicBool = AtomicBool::new(false);
static DECODING_FAILS: AtomicBool = AtomicBool::new(false);

/// An index key whose decoding panics or fails.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delicate(u64);

impl Key for Delicate {
    type Owned = u64;
    fn type_name() -> String {
        "delicate".into()
    }
    fn encode(&self, out: &mut KeyBuffer) {
        self.0.encode(out);
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        <u64 as Key>::decode(bytes)
    }
    fn decode_part(bytes: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
        let (key, rest) = u64::decode_part(bytes)?;
        assert!(key != BAD || !DECODING_PANICS.load(Ordering::SeqCst), "a part's decoding");
        if key == BAD && DECODING_FAILS.load(Ordering::SeqCst) {
            return Err(DecodeError::new("a delicate key"));
        }
        Ok((key, rest))
    }
}

fn open(directory: &std::path::Path) -> (Database, Records) {
    let options =
        Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20));
    let db = Database::open(directory, options).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

fn put(db: &Database, table: &Records, key: u64, value: u64) -> Result<(), Error> {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.put(&table, &key, &value).await)
}

fn keys_by<S>(db: &Database, index: &Index<S, u64, u64>) -> Result<Vec<u64>, Error>
where
    S: Key + ?Sized + 'static,
{
    let index = index.clone();
    db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan_by(&index, ..)?, Vec::new());
        while let Some((_, key, _)) = scan.next().await? {
            found.push(key);
        }
        Ok(found)
    })
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Panicked(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn all_is_right(db: &Database) {
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

/// The extractor panics for an existing record: the index can then be dropped and created again.
#[test]
fn a_panic_fails_the_creation_of_an_index() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        (0..600).for_each(|key| put(&db, &table, key, key).unwrap());
        let delicate = |value: u64, keys: &mut IndexKeys<'_, u64>| {
            assert!(value != 555, "an extractor");
            keys.push(&value);
        };
        for unique in [false, true] {
            let options = IndexOptions::default().unique(unique);
            assert_eq!(
                message(block_on(db.index(&table, "by", options, delicate))),
                "an extractor"
            );
            // The index is attached: values without a valid key can be neither written nor
            // overwritten.
            assert_eq!(message(put(&db, &table, 1, 555)), "an extractor");
            assert_eq!(message(put(&db, &table, 555, 1_001)), "an extractor");
            put(&db, &table, 2, 1_002).unwrap();
            put(&db, &table, 2, 2).unwrap();
            assert_eq!(block_on(db.indexes()).unwrap()[0].stage, IndexStage::Building);
            block_on(db.drop_index(&table, "by")).unwrap();
            put(&db, &table, 555, 555).unwrap();
            let robust = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
            let index = block_on(db.index(&table, "by", options, robust)).unwrap();
            assert_eq!(keys_by(&db, &index).unwrap(), (0..600).collect::<Vec<_>>());
            all_is_right(&db);
            block_on(db.drop_index(&table, "by")).unwrap();
        }
        db.close().unwrap();
    });
}

/// Tests all three ways to run a transaction.
#[test]
fn a_panic_in_a_key_function_fails_the_write() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        let delicate = |value: u64, keys: &mut IndexKeys<'_, u64>| {
            keys.push(&value);
            assert!(value != 555, "an extractor");
        };
        let options = IndexOptions::default();
        let index = block_on(db.index(&table, "by", options, delicate)).unwrap();
        assert_eq!(message(put(&db, &table, 1, 555)), "an extractor");
        let body = {
            let table = table.clone();
            async move |tx: &Transaction, value: &u64| tx.put(&table, value, value).await
        };
        let told = db.run_source(1, [1, 555, 2], body).unwrap().wait();
        assert_eq!(message(told), "an extractor");
        let transaction = block_on(db.begin()).unwrap();
        block_on(transaction.put(&table, &7, &7)).unwrap();
        let savepoint = block_on(transaction.savepoint()).unwrap();
        block_on(transaction.put(&table, &8, &8)).unwrap();
        // The write fails, but the transaction continues.
        assert_eq!(message(block_on(transaction.put(&table, &7, &555))), "an extractor");
        block_on(transaction.rollback_to(&savepoint)).unwrap();
        assert_eq!(message(block_on(transaction.insert(&table, &9, &555))), "an extractor");
        block_on(transaction.commit()).unwrap();
        assert!(keys_by(&db, &index).unwrap().contains(&7));
        assert!(!keys_by(&db, &index).unwrap().contains(&8));
        all_is_right(&db);
        db.close().unwrap();
        drop((db, table, index));
        let (db, table) = open(directory.path());
        let index = block_on(db.index(&table, "by", options, delicate)).unwrap();
        assert!(keys_by(&db, &index).unwrap().contains(&7));
        all_is_right(&db);
        db.close().unwrap();
    });
}

/// Scans and checks can meet panics of a user-defined key type, and the engine continues.
#[test]
fn index_keys_that_fail_to_decode_fail_the_read() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        let options = IndexOptions::default();
        let by_value = |value: u64, keys: &mut IndexKeys<'_, Delicate>| keys.push(&Delicate(value));
        let index = block_on(db.index(&table, "by", options, by_value)).unwrap();
        (0..40).for_each(|key| put(&db, &table, key, key).unwrap());
        DECODING_PANICS.store(true, Ordering::SeqCst);
        assert_eq!(message(keys_by(&db, &index)), "a part's decoding");
        assert_eq!(message(db.check()), "a part's decoding");
        put(&db, &table, 1, 1).unwrap();
        DECODING_PANICS.store(false, Ordering::SeqCst);
        // An error skips no entry: the next call meets the same entry.
        let by = index.clone();
        let (found, entries, failed) = db
            .run_blocking(async move |tx| {
                let (mut failed, mut found, mut entries) = (0, Vec::new(), Vec::new());
                let (mut records, mut keys) = (tx.scan_by(&by, ..)?, tx.entries_by(&by, ..)?);
                for fails in [false, true, true, false] {
                    for _ in 0..10 {
                        DECODING_FAILS.store(fails, Ordering::SeqCst);
                        match records.next().await {
                            Ok(Some((_, key, _))) => found.push(key),
                            Ok(None) => {}
                            Err(Error::Decode(_)) => failed += 1,
                            Err(error) => return Err(error),
                        }
                        match keys.next().await {
                            Ok(Some((_, key))) => entries.push(key),
                            Ok(None) => {}
                            Err(Error::Decode(_)) => failed += 1,
                            Err(error) => return Err(error),
                        }
                    }
                }
                DECODING_FAILS.store(false, Ordering::SeqCst);
                while let Some((_, key, _)) = records.next().await? {
                    found.push(key);
                }
                while let Some((_, key)) = keys.next().await? {
                    entries.push(key);
                }
                Ok((found, entries, failed))
            })
            .unwrap();
        assert_eq!(found, (0..40).collect::<Vec<_>>());
        assert_eq!(entries, found);
        // The fourteenth entry, met from the second ten calls on.
        assert_eq!(failed, 2 * (7 + 10));
        all_is_right(&db);
        db.close().unwrap();
    });
}

/// A value captured by an extractor or by a partial read, dropped on any thread.
#[derive(Debug)]
struct Bomb(Arc<AtomicU64>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let on_worker =
            std::thread::current().name().is_some_and(|name| name.starts_with("braid-"));
        assert!(!on_worker || std::thread::panicking(), "a destructor");
    }
}

#[test]
fn panics_in_destructors_of_captured_values_are_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        let dropped = Arc::new(AtomicU64::new(0));
        let bomb = Bomb(dropped.clone());
        let options = IndexOptions::default();
        let index = block_on(db.index(
            &table,
            "by",
            options,
            move |value: u64, keys: &mut IndexKeys<'_, u64>| {
                let _captured = &bomb;
                keys.push(&value);
            },
        ))
        .unwrap();
        put(&db, &table, 1, 10).unwrap();
        // The partial read is compared again when the transaction commits.
        let (records, counted, other) = (table.clone(), dropped.clone(), db.clone());
        let committed = db.run_blocking(async move |tx| {
            let bomb = Bomb(counted.clone());
            let part = move |value: u64| {
                let _captured = &bomb;
                value % 10
            };
            assert_eq!(tx.get_part(&records, &1, part).await?, Some(0));
            if tx.attempt() == 1 {
                let table = records.clone();
                other.run(async move |tx| tx.put(&table, &1, &20).await).await?;
            }
            tx.put(&records, &2, &2).await
        });
        committed.unwrap_or_else(|error: Error| panic!("{error}"));
        assert_eq!((dropped.load(Ordering::SeqCst), db.stats().destructor_panics), (1, 1));
        // A closure that panics in its first run ends the transaction.
        let records = table.clone();
        let told = db.run_blocking(async move |tx| {
            tx.put(&records, &3, &3).await?;
            tx.get_part(&records, &1, |_| -> u64 { panic!("a part") }).await
        });
        assert_eq!(message(told), "a part");
        let transaction = block_on(db.begin()).unwrap();
        let records = table.clone();
        let step = transaction.step(async move |tx: &Transaction| {
            tx.get_part(&records, &1, |_| -> u64 { panic!("a part") }).await
        });
        assert_eq!(message(block_on(step)), "a part");
        drop((transaction, index));
        block_on(db.drop_index(&table, "by")).unwrap();
        put(&db, &table, 1, 30).unwrap();
        all_is_right(&db);
        db.close().unwrap();
        drop((db, table));
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
    });
}

/// The progress callback of a creation runs on the caller's thread: its panic propagates to the
/// caller, and the next call continues.
#[test]
fn a_panic_in_the_progress_callback_fails_the_creation() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path());
        (0..600).for_each(|key| put(&db, &table, key, key).unwrap());
        let by_value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let options = IndexOptions::default();
        for calls in 1..5 {
            let mut left = calls;
            let watch = |_| {
                left -= 1;
                assert!(left > 0, "a watch");
            };
            let creation = || block_on(db.index_watched(&table, "by", options, by_value, watch));
            match catch_unwind(AssertUnwindSafe(creation)) {
                Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"a watch")),
                // The fourth call comes after the last of three batches.
                Ok(index) => assert!(calls == 5 || index.is_ok()),
            }
        }
        let index = block_on(db.index(&table, "by", options, by_value)).unwrap();
        assert_eq!(keys_by(&db, &index).unwrap().len(), 600);
        all_is_right(&db);
        db.close().unwrap();
    });
}
