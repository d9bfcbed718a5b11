//! A table behaves like a `BTreeMap` for any sequence of operations, committed or rolled back, with
//! keys that are hard for the index.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::abort::Abort;
use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, Misuse, Options, Table, Transaction};
use proptest::prelude::*;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

type Bytes = Vec<u8>;
type Model = BTreeMap<Bytes, Bytes>;
type Records = Table<[u8], [u8]>;

#[derive(Clone, Debug)]
enum Step {
    Get(Bytes),
    Put(Bytes, Bytes),
    Insert(Bytes, Bytes),
    Update(Bytes, Bytes),
    Delete(Bytes),
    MultiGet(Vec<Bytes>),
    Scan { from: Bound<Bytes>, to: Bound<Bytes>, reverse: bool, limit: u64 },
    Prefix(Bytes),
    Ends,
}

/// Keys that share long prefixes, contain zero bytes, or straddle the eight bytes of a slice.
fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => prop::collection::vec(0u8..3, 0..12),
        2 => (0u64..200).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => (0usize..1024, 0u8..3).prop_map(|(zeros, last)| {
            let mut key = vec![0; zeros];
            key.push(last);
            key
        }),
        1 => (0usize..40).prop_map(|n| [b"a common prefix of some length/".as_slice(), &vec![b'x'; n]].concat()),
        1 => Just(vec![0xff; 8]),
        1 => (0usize..20).prop_map(|n| vec![0xff; n]),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0usize..9000).prop_map(|length| (0..length).map(|byte| (byte % 251) as u8).collect()),
        (1020usize..1030).prop_map(|length| vec![length as u8; length]),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Bytes>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => key().prop_map(Step::Get),
        6 => (key(), value()).prop_map(|(k, v)| Step::Put(k, v)),
        4 => (key(), value()).prop_map(|(k, v)| Step::Insert(k, v)),
        2 => (key(), value()).prop_map(|(k, v)| Step::Update(k, v)),
        4 => key().prop_map(Step::Delete),
        1 => prop::collection::vec(key(), 0..20).prop_map(Step::MultiGet),
        2 => (bound(), bound(), any::<bool>(), 0u64..50)
            .prop_map(|(from, to, reverse, limit)| Step::Scan { from, to, reverse, limit }),
        1 => key().prop_map(Step::Prefix),
        1 => Just(Step::Ends),
    ]
}

fn model_range<'m>(
    model: &'m Model,
    from: &Bound<Bytes>,
    to: &Bound<Bytes>,
) -> Vec<(&'m Bytes, &'m Bytes)> {
    let inside = |key: &Bytes| {
        let after = match from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        };
        let before = match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        };
        after && before
    };
    model.iter().filter(|(key, _)| inside(key)).collect()
}

async fn collect(mut scan: braiddb::Scan<'_, [u8], [u8]>) -> Result<Vec<(Bytes, Bytes)>, Error> {
    let mut found = Vec::new();
    while let Some((key, value)) = scan.next().await? {
        found.push((key, value.to_vec()));
    }
    Ok(found)
}

/// Applies one step to both, and compares the results.
async fn apply(
    tx: &Transaction,
    table: &Records,
    model: &mut Model,
    step: &Step,
) -> Result<(), Error> {
    match step {
        Step::Get(key) => {
            assert_eq!(tx.get(table, key).await?, model.get(key).map(Vec::as_slice));
            assert_eq!(tx.contains(table, key).await?, model.contains_key(key));
        }
        Step::Put(key, value) => {
            tx.put(table, key, value).await?;
            model.insert(key.clone(), value.clone());
        }
        Step::Insert(key, value) => match tx.insert(table, key, value).await {
            Err(Error::KeyExists(_)) => assert!(model.contains_key(key)),
            inserted => {
                inserted?;
                assert!(model.insert(key.clone(), value.clone()).is_none());
            }
        },
        Step::Update(key, value) => match tx.update(table, key, value).await {
            Err(Error::KeyNotFound(_)) => assert!(!model.contains_key(key)),
            updated => {
                updated?;
                assert!(model.insert(key.clone(), value.clone()).is_some());
            }
        },
        Step::Delete(key) => {
            assert_eq!(tx.delete(table, key).await?, model.remove(key).is_some());
        }
        Step::MultiGet(keys) => {
            let found = tx.multi_get(table, keys.iter().map(Vec::as_slice)).await?;
            let expected: Vec<_> = keys.iter().map(|k| model.get(k).map(Vec::as_slice)).collect();
            assert_eq!(found, expected);
        }
        Step::Scan { from, to, reverse, limit } => {
            let scan = tx.scan(table, (from.clone(), to.clone()))?.limit(*limit);
            let found = collect(if *reverse { scan.rev() } else { scan }).await?;
            let mut expected = model_range(model, from, to);
            if *reverse {
                expected.reverse();
            }
            let expected = expected.into_iter().take(*limit as usize);
            assert!(expected.eq(found.iter().map(|(k, v)| (k, v))), "{step:?}");
        }
        Step::Prefix(prefix) => {
            let found = collect(tx.scan_prefix(table, prefix.as_slice())?).await?;
            let expected = model.iter().filter(|(key, _)| key.starts_with(prefix));
            assert!(expected.eq(found.iter().map(|(k, v)| (k, v))), "{step:?}");
        }
        Step::Ends => {
            let first = tx.first(table).await?.map(|(key, _)| key);
            assert_eq!(first.as_ref(), model.first_key_value().map(|(key, _)| key));
            let last = tx.last(table).await?.map(|(key, _)| key);
            assert_eq!(last.as_ref(), model.last_key_value().map(|(key, _)| key));
        }
    }
    Ok(())
}

/// Returns the same steps, with keys truncated to the limit of pages.
fn on_pages(mut batches: Vec<(Vec<Step>, bool)>) -> Vec<(Vec<Step>, bool)> {
    for step in batches.iter_mut().flat_map(|(steps, _)| steps) {
        match step {
            Step::Get(key)
            | Step::Put(key, _)
            | Step::Insert(key, _)
            | Step::Update(key, _)
            | Step::Delete(key) => key.truncate(512),
            Step::MultiGet(keys) => keys.iter_mut().for_each(|key| key.truncate(512)),
            Step::Scan { .. } | Step::Prefix(_) | Step::Ends => {}
        }
    }
    batches
}

/// Runs batches of steps, each a transaction that commits or rolls back.
fn check(batches: Vec<(Vec<Step>, bool)>, paged: bool) {
    check_in(
        &Database::in_memory(Options::default().workers(1)).unwrap().watched(),
        batches,
        paged,
    );
}

/// The same on pages of any size, with few frames.
fn check_with_few_frames(batches: Vec<(Vec<Step>, bool)>) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().workers(1).durability(Durability::Volatile);
    let page_bytes = [4 << 10, 8 << 10, 64 << 10][batches.len() % 3];
    let options = options.tune(|tuning| {
        tuning.log_segment_bytes(64 << 10).page_frames(Some(12)).page_bytes(page_bytes)
    });
    check_in(&Database::open(directory.path(), options).unwrap().watched(), batches, true);
}

fn check_in(db: &Database, batches: Vec<(Vec<Step>, bool)>, paged: bool) {
    let table: Records = create_table(db, "model", paged);
    let mut committed = Model::new();
    for (steps, commit) in batches {
        let (used, before) = (table.clone(), committed.clone());
        let result = db.transaction().try_run_blocking(async move |tx: &Transaction| {
            let mut model = before.clone();
            for step in &steps {
                apply(tx, &used, &mut model, step).await?;
            }
            commit.then_some(model).ok_or(Abort::OnPurpose)
        });
        match result {
            Ok(outcome) => committed = outcome.value,
            Err(failed) => assert!(!commit, "{failed}"),
        }
        let records = pollster::block_on(db.len(&table)).unwrap();
        assert_eq!(records, committed.len() as u64);
        assert_eq!(pollster::block_on(db.is_empty(&table)).unwrap(), records == 0);
    }
    let all = db.run_blocking(async move |tx| collect(tx.scan(&table, ..)?).await).unwrap();
    assert!(committed.iter().eq(all.iter().map(|(k, v)| (k, v))));
    db.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    #[ignore = "slow: the gate runs it"]
    fn a_table_behaves_as_a_map(
        batches in prop::collection::vec((prop::collection::vec(step(), 0..60), any::<bool>()), 1..12)
    ) {
        with_limit(LIMIT_SECONDS, move |_| {
            check(batches.clone(), false);
            check(on_pages(batches.clone()), true);
            check_with_few_frames(on_pages(batches));
        });
    }
}

#[test]
fn every_key_length_up_to_the_limit_is_accepted() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = pollster::block_on(db.open_or_create_table("lengths")).unwrap();
        for fill in [0u8, 1, 0xff] {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for length in 0..=1024usize {
                    tx.put(&table, &vec![fill; length], &length.to_le_bytes()).await?;
                }
                for length in (0..=1024usize).rev() {
                    let found = tx.get(&table, &vec![fill; length]).await?;
                    assert_eq!(found, Some(&length.to_le_bytes()[..]));
                }
                Ok(())
            })
            .unwrap();
        }
        let count = db
            .run_blocking(async move |tx| Ok(collect(tx.scan(&table, ..)?).await?.len()))
            .unwrap();
        // The empty key is the same in all three fillings.
        assert_eq!(count, 3 * 1024 + 1);
    });
}

#[test]
fn values_up_to_the_limit_are_accepted() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        for (name, paged) in [("hot", false), ("paged", true)] {
            large_values_up_to_their_limit(&db, create_table(&db, name, paged));
        }
    });
}

fn large_values_up_to_their_limit(db: &Database, table: Records) {
    let limit = 16 << 20;
    let kept = table.clone();
    let result = db.run_blocking(async move |tx| {
        tx.put(&kept, b"largest", &vec![7; limit]).await?;
        tx.put(&kept, b"too large", &vec![7; limit + 1]).await
    });
    assert!(
        matches!(result, Err(Error::Misuse(Misuse::ValueTooLong { bytes, .. })) if bytes == limit + 1)
    );
    let kept = table.clone();
    db.run_blocking(async move |tx| tx.put(&kept, b"largest", &vec![9; limit]).await).unwrap();
    let length = db
        .run_blocking(async move |tx| {
            let found = tx.get(&table, b"largest").await?.unwrap();
            assert!(found.iter().all(|byte| *byte == 9));
            Ok(found.len())
        })
        .unwrap();
    assert_eq!(length, limit);
}
