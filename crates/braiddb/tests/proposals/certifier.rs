//! The certifier alone: against a simple model, its window, and its copies.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use braiddb::proposals::{CertificationConflict, KeySet, KeySpace, OrderedCertifier};
use braiddb::{Database, Error, Options, Table, Transaction};
use pollster::block_on;

use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 120;
const ENTRIES: u64 = if cfg!(debug_assertions) { 20_000 } else { 400_000 };
const KEYS: u64 = 30;
const SETS: usize = 600;

/// Key sets of random transactions, made once: what they read and what they wrote.
fn sets() -> Vec<(KeySet, KeySet)> {
    let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    let tables: Vec<Table<u64, u64>> =
        ["a", "b"].map(|name| block_on(db.create_table(name)).unwrap()).into();
    let mut random = fastrand::Rng::with_seed(3);
    let mut sets: Vec<_> = (0..SETS)
        .map(|_| {
            let (tables, seed) = (tables.clone(), random.u64(..));
            let executed = db.execute(async move |tx| act(tx, &tables, seed).await);
            let proposal = block_on(executed).unwrap();
            (proposal.reads, proposal.writes.keys())
        })
        .collect();
    let all = |table| KeySet::whole([KeySpace { table, index: None }]);
    sets.push((KeySet::default(), all("a")));
    sets.push((all("b"), KeySet::default()));
    sets
}

async fn act(tx: &Transaction, tables: &[Table<u64, u64>], seed: u64) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..random.usize(1..4) {
        let (table, key) = (&tables[random.usize(..2)], random.u64(..KEYS));
        match random.u8(..4) {
            0 => _ = tx.get(table, &key).await?,
            1 => _ = tx.count(table, key..key + random.u64(..5)).await?,
            _ => tx.put(table, &key, &key).await?,
        }
    }
    Ok(())
}

fn overlap(one: &KeySet, other: &KeySet) -> bool {
    let ranges = |set: &KeySet| -> Vec<_> {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let points = set.points().map(|(space, key)| {
            let key = Bound::Included(key.to_vec());
            (space.table.to_owned(), key.clone(), key)
        });
        let of_ranges = set
            .ranges()
            .map(|(space, low, high)| (space.table.to_owned(), owned(low), owned(high)));
        points.chain(of_ranges).collect()
    };
    // Keys are numbers, so that all can be tried.
    let all: BTreeSet<Vec<u8>> = (0..KEYS + 10).map(|key| key.to_be_bytes().to_vec()).collect();
    let (one, other) = (ranges(one), ranges(other));
    one.iter().any(|(table, low, high)| {
        other.iter().any(|(other_table, other_low, other_high)| {
            table == other_table
                && all.iter().any(|key| {
                    (low.clone(), high.clone()).contains(key)
                        && (other_low.clone(), other_high.clone()).contains(key)
                })
        })
    })
}

#[test]
fn decisions_are_those_of_a_model() {
    with_limit(LIMIT_SECONDS, |_| {
        const WINDOW: u64 = 12;
        let sets = sets();
        let overlaps: Vec<Vec<bool>> = sets
            .iter()
            .map(|(reads, writes)| {
                let with = |(_, written): &(KeySet, KeySet)| {
                    overlap(reads, written) || overlap(writes, written)
                };
                sets.iter().map(with).collect()
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(5);
        let mut certifier = OrderedCertifier::new(WINDOW);
        // The recorded sets, by entry.
        let mut model: Vec<(u64, usize)> = Vec::new();
        let (mut entry, mut accepted, mut changed, mut too_old) = (0, 0, 0, 0);
        for _ in 0..ENTRIES {
            // Some entries have no proposal, and some have several.
            entry += random.u64(..3);
            certifier.advance(entry.max(certifier.newest()));
            entry = certifier.newest().max(1);
            let oldest = certifier.oldest_snapshot();
            assert_eq!(oldest, certifier.newest().saturating_sub(WINDOW));
            model.retain(|(written_at, _)| *written_at > oldest);
            let number = random.usize(..sets.len());
            let snapshot = (entry.saturating_sub(random.u64(..WINDOW + 4))).min(entry - 1);
            let decided = certifier.certify(&sets[number].0, &sets[number].1, snapshot);
            let is_changed = model
                .iter()
                .any(|(written_at, other)| *written_at > snapshot && overlaps[number][*other]);
            match decided {
                Err(CertificationConflict::TooOld { .. }) => {
                    assert!(snapshot < oldest);
                    too_old += 1;
                }
                Err(CertificationConflict::Changed { written_at, .. }) => {
                    assert!(snapshot >= oldest && is_changed && written_at > snapshot);
                    changed += 1;
                }
                Ok(()) => {
                    assert!(snapshot >= oldest && !is_changed);
                    accepted += 1;
                    certifier.record(entry, sets[number].1.clone());
                    if !sets[number].1.is_empty() {
                        model.push((entry, number));
                    }
                }
                Err(other) => panic!("{other}"),
            }
            let recorded: Vec<_> = certifier.recorded().map(|(entry, _)| entry).collect();
            // An entry may leave the window when the next one comes.
            let expected: Vec<_> = model.iter().map(|(entry, _)| *entry).collect();
            assert!(recorded.ends_with(&expected) || recorded == expected);
            if random.u8(..100) == 0 {
                let mut copy = OrderedCertifier::starting_at(WINDOW, certifier.oldest_snapshot());
                certifier.recorded().for_each(|(entry, keys)| {
                    copy.record(entry, KeySet::decode(keys.as_bytes()).unwrap());
                });
                copy.advance(certifier.newest());
                assert_eq!(copy, certifier);
                certifier = copy;
            }
        }
        let each = ENTRIES / 100;
        assert!(accepted > each && changed > each && too_old > each);
    });
}

/// Proposals of one entry that write the same space leave the window together.
#[test]
fn an_entry_leaves_the_window_as_a_whole() {
    with_limit(LIMIT_SECONDS, |_| {
        let whole = |index| KeySet::whole([KeySpace { table: "t", index }]);
        let mut certifier = OrderedCertifier::new(2);
        certifier.record(1, whole(None));
        certifier.record(1, whole(None));
        certifier.record(1, whole(Some("i")));
        assert!(certifier.certify(&whole(None), &KeySet::default(), 0).is_err());
        certifier.advance(2);
        assert!(certifier.certify(&KeySet::default(), &whole(Some("i")), 0).is_err());
        assert_eq!(certifier.recorded().count(), 3);
        certifier.advance(3);
        assert_eq!(certifier.recorded().count(), 0);
        assert_eq!(certifier.certify(&whole(None), &whole(None), 1), Ok(()));
        let refused = certifier.certify(&whole(None), &whole(None), 0);
        assert_eq!(refused, Err(CertificationConflict::TooOld { snapshot: 0, oldest: 1 }));
        let mut expected = OrderedCertifier::starting_at(2, 1);
        expected.advance(3);
        assert_eq!(certifier, expected);
    });
}

/// A copy without a limit is the model.
#[test]
fn a_limit_of_bytes_makes_only_old_snapshots_conflict() {
    with_limit(LIMIT_SECONDS, |_| {
        const WINDOW: u64 = 30;
        const MAX_BYTES: u64 = 3000;
        let sets = sets();
        let mut random = fastrand::Rng::with_seed(7);
        let limited =
            |entry| OrderedCertifier::starting_at(WINDOW, entry).with_max_bytes(MAX_BYTES);
        let (mut model, mut certifier) = (OrderedCertifier::new(WINDOW), limited(0));
        let (mut entry, mut accepted, mut changed, mut too_old) = (1, 0, 0, 0);
        for _ in 0..ENTRIES {
            entry += random.u64(..3);
            model.advance(entry);
            certifier.advance(entry);
            let (read, written) = &sets[random.usize(..sets.len())];
            let snapshot = entry.saturating_sub(random.u64(1..WINDOW));
            let decided = certifier.certify(read, written, snapshot);
            if snapshot < certifier.oldest_snapshot() {
                assert!(matches!(decided, Err(CertificationConflict::TooOld { .. })));
                too_old += 1;
            } else {
                assert_eq!(decided, model.certify(read, written, snapshot));
                changed += u64::from(decided.is_err());
            }
            if decided.is_ok() {
                accepted += 1;
                certifier.record(entry, written.clone());
                model.record(entry, written.clone());
            }
            let size = |set: &KeySet| {
                let keys = set.points().count() + set.ranges().count();
                (128 + 64 * keys + set.as_bytes().len()) as u64
            };
            assert!(certifier.recorded().map(|(_, set)| size(set)).sum::<u64>() <= MAX_BYTES);
            if random.u8(..100) == 0 {
                let mut copy = limited(certifier.oldest_snapshot());
                certifier.recorded().for_each(|(entry, keys)| copy.record(entry, keys.clone()));
                copy.advance(certifier.newest());
                assert_eq!(copy, certifier);
                certifier = copy;
            }
        }
        let each = ENTRIES / 100;
        assert!(accepted > each && changed > each && too_old > each);
    });
}

/// Also an entry that no window has room for: nothing that was executed before it is valid.
#[test]
fn an_entry_that_is_larger_than_the_limit_leaves_the_window() {
    with_limit(LIMIT_SECONDS, |_| {
        let whole = |table| KeySet::whole([KeySpace { table, index: None }]);
        let mut certifier = OrderedCertifier::new(10).with_max_bytes(100);
        certifier.record(3, whole("a"));
        certifier.record(3, whole("b"));
        assert_eq!((certifier.oldest_snapshot(), certifier.recorded().count()), (3, 0));
        let refused = certifier.certify(&whole("c"), &KeySet::default(), 2);
        assert_eq!(refused, Err(CertificationConflict::TooOld { snapshot: 2, oldest: 3 }));
        assert_eq!(certifier.certify(&whole("a"), &whole("b"), 3), Ok(()));
    });
}

#[test]
fn all_keys_of_a_table_include_the_entries_of_its_indexes() {
    with_limit(LIMIT_SECONDS, |_| {
        let whole = |table, index| KeySet::whole([KeySpace { table, index }]);
        let mut certifier = OrderedCertifier::new(10);
        certifier.record(1, whole("t", None));
        let none = KeySet::default();
        assert!(certifier.certify(&whole("t", Some("i")), &none, 0).is_err());
        assert!(certifier.certify(&none, &whole("t", Some("i")), 0).is_err());
        assert_eq!(certifier.certify(&whole("u", Some("i")), &none, 0), Ok(()));
        assert_eq!(certifier.certify(&whole("t", Some("i")), &none, 1), Ok(()));
        certifier.record(2, whole("t", Some("i")));
        assert_eq!(certifier.certify(&whole("t", Some("j")), &whole("t", None), 1), Ok(()));
    });
}
