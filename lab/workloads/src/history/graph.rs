//! Histories of databases that certify with the serial safety net. They report no serial
//! order. This module proves that one exists with Adya's dependency graph. A writer of a
//! value precedes each reader of that value and the writer of the next value. Each reader precedes
//! the writer of the next value.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Entry, History, fits, index_key, wrote};

/// The committed versions of one key by LSN: the number of the transaction, and the value or its
/// absence.
type Versions = BTreeMap<u64, (usize, Option<u64>)>;

impl History {
    /// Checks that the history is serializable, from an empty table on.
    ///
    /// - Each transaction read what was committed before it began and its own writes.
    /// - Of two concurrent transactions that wrote the same key, one was refused.
    /// - The dependencies between transactions have no cycle.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn check_graph(self) -> Result<(), String> {
        let (entries, after) = self.graph()?;
        match circle(&after) {
            None => Ok(()),
            Some(circle) => Err(circle.into_iter().fold(
                "transactions that come before one another:".to_owned(),
                |told, number| {
                    let entry = &entries[number];
                    let (begin, commit) = (entry.begin, entry.commit);
                    format!("{told}\n{begin} to {commit}: {:?}", entry.answers)
                },
            )),
        }
    }

    /// Makes the same checks except for cycles: the rules of snapshot isolation.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn check_snapshots(self) -> Result<(), String> {
        self.graph().map(drop)
    }

    /// Returns the transactions, and for each the transactions that it precedes.
    fn graph(self) -> Result<(Vec<Entry>, Vec<BTreeSet<usize>>), String> {
        let mut entries = self.0;
        entries.sort_by_key(|entry| entry.commit);
        let mut keys: BTreeMap<u64, Versions> = BTreeMap::new();
        for (number, entry) in entries.iter().enumerate() {
            for (key, value) in written(&entry.answers) {
                keys.entry(key).or_default().insert(entry.commit, (number, value));
            }
        }
        let mut after = vec![BTreeSet::new(); entries.len()];
        for (number, entry) in entries.iter().enumerate() {
            let begin = entry.begin;
            let seen = keys.iter().filter_map(|(key, versions)| {
                let (_, (_, value)) = versions.range(..begin).next_back()?;
                Some((*key, (*value)?))
            });
            let (mut state, mut saved) = (seen.collect(), None);
            let writes = written(&entry.answers);
            let mut told = BTreeSet::new();
            for answer in &entry.answers {
                note_keys(answer, &keys, &mut told);
                let later = note_found(answer, &keys, begin, &mut told);
                after[number].extend(later.into_iter().filter(|later| *later != number));
                if !fits(answer, &mut state, &mut saved) {
                    return Err(format!(
                        "begun at LSN {begin}: {answer:?} does not fit: {state:?}"
                    ));
                }
            }
            for key in told.iter().chain(writes.keys()) {
                let Some(versions) = keys.get(key) else { continue };
                if let Some((_, (writer, _))) = versions.range(..begin).next_back() {
                    after[*writer].insert(number);
                }
                let next = versions.range(begin..).next().map(|(_, (writer, _))| *writer);
                if writes.contains_key(key) && next != Some(number) {
                    return Err(format!("at LSN {}: a lost update of key {key}", entry.commit));
                }
                after[number].extend(next.filter(|next| *next != number));
            }
        }
        Ok((entries, after))
    }
}

/// Returns the final value of each key that a transaction wrote.
pub(super) fn written(answers: &[Answer]) -> BTreeMap<u64, Option<u64>> {
    let (mut written, mut saved) = (BTreeMap::new(), BTreeMap::new());
    for answer in answers {
        match answer {
            Answer::Put(key, value)
            | Answer::Inserted(key, value, false)
            | Answer::Updated(key, value, false) => _ = written.insert(*key, Some(*value)),
            Answer::Deleted(key, true) => _ = written.insert(*key, None),
            Answer::Saved => saved = written.clone(),
            Answer::RolledBack => written = saved.clone(),
            _ => {}
        }
    }
    assert!(wrote(answers) || written.is_empty(), "a transaction without writes leaves nothing");
    written
}

/// Adds the keys about which an answer gives information.
fn note_keys(answer: &Answer, keys: &BTreeMap<u64, Versions>, told: &mut BTreeSet<u64>) {
    match answer {
        Answer::Got(key, _)
        | Answer::Contains(key, _)
        | Answer::Inserted(key, ..)
        | Answer::Updated(key, ..)
        | Answer::Deleted(key, _) => _ = told.insert(*key),
        Answer::Scanned { low, high, reverse, limit, records } => {
            let last = records.last().filter(|_| records.len() == *limit).map(|(key, _)| *key);
            let range = match (last, reverse) {
                (None, _) => *low..=*high,
                (Some(last), false) => *low..=last,
                (Some(last), true) => last..=*high,
            };
            told.extend(keys.range(range).map(|(key, _)| *key));
        }
        Answer::FoundBy { .. } | Answer::Put(..) | Answer::Saved | Answer::RolledBack => {}
    }
}

/// Adds the keys whose records an index returned as of `begin`. Returns the first other transaction
/// that wrote a record that the index would also have returned.
fn note_found(
    answer: &Answer,
    keys: &BTreeMap<u64, Versions>,
    begin: u64,
    told: &mut BTreeSet<u64>,
) -> Vec<usize> {
    let Answer::FoundBy { key: wanted, .. } = answer else { return Vec::new() };
    let mut later = Vec::new();
    for (key, versions) in keys {
        let found = |(_, (_, value)): &(&u64, &(usize, Option<u64>))| {
            value.is_some_and(|value| index_key(value) == *wanted)
        };
        if versions.range(..begin).next_back().is_some_and(|last| found(&last)) {
            told.insert(*key);
        } else if let Some((_, (writer, _))) = versions.range(begin..).find(found) {
            later.push(*writer);
        }
    }
    later
}

/// Returns transactions that form a cycle, if any.
fn circle(after: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut before = vec![0_usize; after.len()];
    after.iter().flatten().for_each(|number| before[*number] += 1);
    let mut first: Vec<usize> = (0..after.len()).filter(|number| before[*number] == 0).collect();
    let mut left: BTreeSet<usize> = (0..after.len()).collect();
    while let Some(number) = first.pop() {
        left.remove(&number);
        for next in &after[number] {
            before[*next] -= 1;
            if before[*next] == 0 {
                first.push(*next);
            }
        }
    }
    // Transactions without successors are in no cycle.
    while let Some(end) = left.iter().copied().find(|one| after[*one].is_disjoint(&left)) {
        left.remove(&end);
    }
    (!left.is_empty()).then(|| left.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entries: &[(u64, u64, &[Answer])]) -> Result<(), String> {
        let mut history = History::default();
        entries.iter().for_each(|(begin, commit, answers)| {
            history.add(*begin, *commit, answers.to_vec());
        });
        history.check_graph()
    }

    const SETUP: (u64, u64, &[Answer]) = (0, 1, &[Answer::Put(1, 1), Answer::Put(2, 2)]);

    #[test]
    fn a_later_commit_may_precede_in_the_serial_order() {
        check(&[
            SETUP,
            (5, 10, &[Answer::Got(1, Some(1)), Answer::Put(2, 20)]),
            (5, 11, &[Answer::Got(2, Some(2)), Answer::Put(3, 3)]),
            (12, 12, &[Answer::Got(2, Some(20)), Answer::Got(3, Some(3))]),
        ])
        .unwrap();
    }

    #[test]
    fn snapshot_isolation_allows_write_skew_but_no_lost_update() {
        let snapshots = |entries: &[(u64, u64, &[Answer])]| {
            let mut history = History::default();
            for (begin, commit, answers) in entries {
                history.add(*begin, *commit, answers.to_vec());
            }
            history.check_snapshots()
        };
        let skew: &[Answer] = &[Answer::Got(2, Some(2)), Answer::Put(1, 10)];
        let other: &[Answer] = &[Answer::Got(1, Some(1)), Answer::Put(2, 20)];
        snapshots(&[SETUP, (5, 10, other), (5, 11, skew)]).unwrap();
        let lost = snapshots(&[SETUP, (5, 10, skew), (5, 11, skew)]);
        assert!(lost.unwrap_err().contains("lost update"));
        let late: &[Answer] = &[Answer::Got(1, Some(1))];
        let seen = snapshots(&[SETUP, (5, 10, skew), (12, 12, late)]);
        assert!(seen.unwrap_err().contains("does not fit"));
    }

    #[test]
    fn write_skew_is_a_cycle() {
        let told = check(&[
            SETUP,
            (5, 10, &[Answer::Got(1, Some(1)), Answer::Put(2, 20)]),
            (5, 11, &[Answer::Got(2, Some(2)), Answer::Put(1, 10)]),
        ]);
        assert!(told.unwrap_err().contains("5 to 11"));
    }

    #[test]
    fn a_reader_may_complete_a_cycle() {
        let told = check(&[
            SETUP,
            (5, 10, &[Answer::Got(2, Some(2)), Answer::Put(1, 10)]),
            (5, 9, &[Answer::Put(2, 20)]),
            (10, 12, &[Answer::Got(2, Some(20)), Answer::Got(1, Some(1))]),
        ]);
        assert!(told.unwrap_err().contains("10 to 12"));
    }

    #[test]
    fn a_lost_update_is_rejected() {
        let told = check(&[SETUP, (5, 10, &[Answer::Put(1, 1)]), (5, 11, &[Answer::Put(1, 2)])]);
        assert!(told.unwrap_err().contains("lost update"));
    }
}
