//! Histories: checks the answers that transactions received against the serial order of the
//! database. A transaction that wrote has its place at its commit LSN. A transaction that wrote
//! nothing has its place at its snapshot: before all transactions that committed at that LSN or
//! later. A map that replays the transactions in this order must give the same answers.

mod graph;
#[cfg(all(test, not(braid_simulation)))]
mod real;

use std::collections::BTreeMap;

use braiddb::{Error, Index, IndexKeys, Table, Transaction};
use fastrand::Rng;

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A look-up: the key and its value.
    Got(u64, Option<u64>),
    /// The existence of a record with this key.
    Contains(u64, bool),
    /// A scan of the first records of a range, from one end.
    Scanned {
        /// The lowest key of the range.
        low: u64,
        /// The highest key of the range.
        high: u64,
        /// True if the scan starts at the highest key.
        reverse: bool,
        /// The maximum number of records.
        limit: usize,
        /// The records of the scan.
        records: Vec<(u64, u64)>,
    },
    /// A scan of the records with one key in an index, from one end.
    FoundBy {
        /// The key in the index: see [`index_key`].
        key: u64,
        /// True if the scan starts at the last record.
        reverse: bool,
        /// All the records with this key.
        records: Vec<(u64, u64)>,
    },
    /// A write that always succeeds.
    Put(u64, u64),
    /// An insertion, and true if it was refused.
    Inserted(u64, u64, bool),
    /// An update, and true if it was refused.
    Updated(u64, u64, bool),
    /// A deletion, and true if the record existed.
    Deleted(u64, bool),
    /// A new savepoint.
    Saved,
    /// A rollback to the last savepoint.
    RolledBack,
}

/// The kind of transactions in a history.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The exclusive upper bound of keys.
    pub keys: u64,
    /// The maximum number of operations in one transaction.
    pub operations: usize,
    /// True if transactions only read.
    pub read_only: bool,
}

/// The number of keys in the index of a history.
const INDEX_KEYS: u64 = 3;
/// Maximum number of transactions before a wrong one that its error shows.
const MAX_SHOWN: usize = 8;

/// Returns the index key of a value.
#[must_use]
pub fn index_key(value: u64) -> u64 {
    value % INDEX_KEYS
}

/// Adds the index key of a value to `keys`.
pub fn extract(value: u64, keys: &mut IndexKeys<'_, u64>) {
    keys.push(&index_key(value));
}

/// Runs one transaction that `random` chooses and returns the answers. The transaction also reads
/// by the index if the table has the index that [`extract`] defines.
///
/// # Errors
/// Errors of operations that are not answers.
pub async fn transaction(
    tx: &Transaction,
    table: &Table<u64, u64>,
    index: Option<&Index<u64, u64, u64>>,
    shape: Shape,
    random: &mut Rng,
) -> Result<Vec<Answer>, Error> {
    let mut answers = Vec::new();
    let mut savepoint = None;
    for _ in 0..random.usize(1..=shape.operations) {
        let (key, value) = (random.u64(..shape.keys), random.u64(..));
        let answer = match random.u8(..if shape.read_only { 6 } else { 16 }) {
            0..=2 => Answer::Got(key, tx.get(table, &key).await?),
            3 => Answer::Contains(key, tx.contains(table, &key).await?),
            4 | 5 => match index {
                Some(index) if random.bool() => find_by(tx, index, random).await?,
                _ => scan(tx, table, shape, random).await?,
            },
            6 | 7 => {
                tx.put(table, &key, &value).await?;
                Answer::Put(key, value)
            }
            8..=10 => insert(tx, table, key, value).await?,
            11 => match tx.update(table, &key, &value).await {
                Ok(()) => Answer::Updated(key, value, false),
                Err(Error::KeyNotFound(_)) => Answer::Updated(key, value, true),
                Err(error) => return Err(error),
            },
            12 | 13 => Answer::Deleted(key, tx.delete(table, &key).await?),
            14 => {
                // A rollback follows this insertion immediately: only the success of the insertion
                // is an answer.
                let here = tx.savepoint();
                answers.push(Answer::Saved);
                answers.push(insert(tx, table, key, value).await?);
                tx.rollback_to(&here).await?;
                savepoint = Some(here);
                Answer::RolledBack
            }
            _ => match &savepoint {
                Some(savepoint) if random.bool() => {
                    tx.rollback_to(savepoint).await?;
                    Answer::RolledBack
                }
                _ => {
                    savepoint = Some(tx.savepoint());
                    Answer::Saved
                }
            },
        };
        answers.push(answer);
    }
    Ok(answers)
}

/// Lets other transactions of the same worker run.
#[cfg(not(braid_simulation))]
pub(crate) async fn let_others_run() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

async fn insert(
    tx: &Transaction,
    table: &Table<u64, u64>,
    key: u64,
    value: u64,
) -> Result<Answer, Error> {
    match tx.insert(table, &key, &value).await {
        Ok(()) => Ok(Answer::Inserted(key, value, false)),
        Err(Error::KeyExists(_)) => Ok(Answer::Inserted(key, value, true)),
        Err(error) => Err(error),
    }
}

async fn scan(
    tx: &Transaction,
    table: &Table<u64, u64>,
    shape: Shape,
    random: &mut Rng,
) -> Result<Answer, Error> {
    let low = random.u64(..shape.keys);
    let (high, reverse) = (low + random.u64(..shape.keys), random.bool());
    let limit = random.usize(1..6);
    let scan = tx.scan(table, low..=high)?;
    let mut scan = if reverse { scan.rev() } else { scan };
    let mut records = Vec::new();
    while records.len() < limit
        && let Some(record) = scan.next().await?
    {
        records.push(record);
    }
    Ok(Answer::Scanned { low, high, reverse, limit, records })
}

async fn find_by(
    tx: &Transaction,
    index: &Index<u64, u64, u64>,
    random: &mut Rng,
) -> Result<Answer, Error> {
    let (key, reverse) = (random.u64(..INDEX_KEYS), random.bool());
    let scan = tx.scan_by(index, key..=key)?;
    let (mut scan, mut records) = (if reverse { scan.rev() } else { scan }, Vec::new());
    while let Some((_, key, value)) = scan.next().await? {
        records.push((key, value));
    }
    Ok(Answer::FoundBy { key, reverse, records })
}

/// The committed transactions of a history, in the order of their acknowledgements.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<Entry>);

/// A committed transaction.
#[derive(Clone, Debug)]
struct Entry {
    begin: u64,
    commit: u64,
    answers: Vec<Answer>,
}

impl History {
    /// Adds a transaction with a snapshot before `snapshot_lsn` that committed at `commit_lsn` or
    /// wrote nothing.
    pub fn add(&mut self, snapshot_lsn: u64, commit_lsn: u64, answers: Vec<Answer>) {
        self.0.push(Entry { begin: snapshot_lsn, commit: commit_lsn, answers });
    }

    /// Returns the number of committed transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no transaction committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps only the transactions that committed before an LSN.
    #[must_use]
    pub fn before(mut self, lsn: u64) -> Self {
        self.0.retain(|entry| entry.commit < lsn);
        self
    }

    /// Replays the history in serial order on `state`, which receives the final state.
    ///
    /// # Errors
    /// Returns the first answer that differs from the answer of `state`, with the records that it
    /// should reflect.
    pub fn replay(mut self, state: &mut BTreeMap<u64, u64>) -> Result<(), String> {
        // Among transactions with the same LSN, those that wrote nothing come first: they read
        // before it.
        self.0.sort_by_key(|entry| (entry.commit, wrote(&entry.answers)));
        for (number, Entry { commit: lsn, answers, .. }) in self.0.iter().enumerate() {
            let mut saved = None;
            for answer in answers {
                if !fits(answer, state, &mut saved) {
                    let some: Vec<_> = state.iter().take(64).collect();
                    let last = &self.0[number.saturating_sub(MAX_SHOWN)..=number];
                    return Err(format!(
                        "at LSN {lsn}: {answer:?} does not fit: {some:?} are there, after {last:#?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl History {
    /// Checks that `found` is a state that a crash may leave after the first `told` transactions
    /// received their answers.
    ///
    /// - The state must be the result of all commits up to some LSN.
    /// - All acknowledged commits must be among them.
    /// - Answers of read-only transactions with a later snapshot must remain true: the commits that
    ///   they read were durable.
    ///
    /// # Errors
    /// Returns the reason why it is not.
    pub fn recovered(self, told: usize, found: &BTreeMap<u64, u64>) -> Result<(), String> {
        let mut told = self.0.clone().into_iter().take(told).collect::<Vec<_>>();
        let readers = told.extract_if(.., |entry| !wrote(&entry.answers)).collect::<Vec<_>>();
        let last = told.into_iter().map(|entry| entry.commit).max();
        let mut writers = self.0;
        writers.retain(|entry| wrote(&entry.answers));
        writers.sort_by_key(|entry| entry.commit);
        let (mut state, mut writers) = (BTreeMap::new(), writers.iter().peekable());
        loop {
            let next = writers.peek().map(|entry| entry.commit);
            let all_there = next.is_none_or(|next| last.is_none_or(|last| last < next));
            let readers_are_right = || {
                let later = |entry: &&Entry| next.is_some_and(|next| entry.commit > next);
                readers.iter().filter(later).all(|entry| {
                    let (mut state, mut saved) = (found.clone(), None);
                    entry.answers.iter().all(|answer| fits(answer, &mut state, &mut saved))
                })
            };
            if all_there && state == *found && readers_are_right() {
                return Ok(());
            }
            let Some(Entry { answers, .. }) = writers.next() else {
                return Err(format!(
                    "{found:?} was recovered: no commits up to one LSN give this state and all answers"
                ));
            };
            for (key, value) in graph::written(answers) {
                match value {
                    Some(value) => _ = state.insert(key, value),
                    None => _ = state.remove(&key),
                }
            }
        }
    }
}

/// Returns true if a transaction logs anything. A transaction that rolled back all its writes logs
/// nothing.
fn wrote(answers: &[Answer]) -> bool {
    let (mut wrote, mut saved) = (false, false);
    for answer in answers {
        match answer {
            Answer::Put(..)
            | Answer::Inserted(_, _, false)
            | Answer::Updated(_, _, false)
            | Answer::Deleted(_, true) => wrote = true,
            Answer::Saved => saved = wrote,
            Answer::RolledBack => wrote = saved,
            _ => {}
        }
    }
    wrote
}

/// Returns true if the map `state` gives the same answer; applies the change to the map.
fn fits(
    answer: &Answer,
    state: &mut BTreeMap<u64, u64>,
    saved: &mut Option<BTreeMap<u64, u64>>,
) -> bool {
    match answer {
        Answer::Got(key, value) => state.get(key) == value.as_ref(),
        Answer::Contains(key, there) => state.contains_key(key) == *there,
        Answer::Scanned { low, high, reverse, limit, records } => {
            let range = state.range(low..=high).map(|(key, value)| (*key, *value));
            let expected: Vec<_> = match reverse {
                false => range.take(*limit).collect(),
                true => range.rev().take(*limit).collect(),
            };
            expected == *records
        }
        Answer::FoundBy { key, reverse, records } => {
            let mut expected: Vec<_> = state.iter().map(|(key, value)| (*key, *value)).collect();
            expected.retain(|(_, value)| index_key(*value) == *key);
            if *reverse {
                expected.reverse();
            }
            expected == *records
        }
        Answer::Put(key, value) => {
            state.insert(*key, *value);
            true
        }
        Answer::Inserted(key, value, refused) => {
            let there = state.contains_key(key);
            state.entry(*key).or_insert(*value);
            there == *refused
        }
        Answer::Updated(key, value, refused) => match state.get_mut(key) {
            Some(now) => {
                *now = *value;
                !refused
            }
            None => *refused,
        },
        Answer::Deleted(key, was) => state.remove(key).is_some() == *was,
        Answer::Saved => {
            *saved = Some(state.clone());
            true
        }
        Answer::RolledBack => {
            state.clone_from(saved.as_ref().expect("a savepoint comes before"));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(entries: &[(u64, &[Answer])]) -> Result<(), String> {
        let mut history = History::default();
        for (lsn, answers) in entries.iter().rev() {
            history.add(*lsn, *lsn, answers.to_vec());
        }
        history.replay(&mut BTreeMap::new())
    }

    #[test]
    fn a_serial_history_is_accepted() {
        let (low, high, reverse, limit) = (0, 9, true, 1);
        let scanned = Answer::Scanned { low, high, reverse, limit, records: vec![(2, 20)] };
        let rolled_back = [Answer::Saved, Answer::Deleted(2, true), Answer::RolledBack];
        replay(&[
            (10, &[Answer::Put(1, 10), Answer::Inserted(2, 20, false)]),
            (20, &[Answer::Got(1, Some(10)), scanned]),
            (20, &[Answer::Deleted(1, true), Answer::Updated(1, 11, true)]),
            (30, &[Answer::Got(1, None), Answer::Contains(2, true)]),
            (30, &rolled_back),
            (40, &[Answer::Deleted(2, true)]),
        ])
        .unwrap();
    }

    #[test]
    fn write_skew_is_rejected() {
        let told = replay(&[
            (10, &[Answer::Put(1, 1), Answer::Put(2, 2)]),
            (20, &[Answer::Got(1, Some(1)), Answer::Put(2, 0)]),
            (30, &[Answer::Got(2, Some(2)), Answer::Put(1, 0)]),
        ]);
        assert!(told.unwrap_err().contains("LSN 30"));
    }

    #[test]
    fn a_record_missing_from_an_index_is_rejected() {
        let found = |records| Answer::FoundBy { key: 1, reverse: true, records };
        let put = [Answer::Put(1, 4), Answer::Put(2, 7), Answer::Put(3, 5)];
        replay(&[(10, &put), (20, &[found(vec![(2, 7), (1, 4)])])]).unwrap();
        let told = replay(&[(10, &put), (20, &[found(vec![(1, 4)])])]);
        assert!(told.unwrap_err().contains("LSN 20"));
    }

    #[test]
    fn a_recovered_state_has_all_commits_up_to_an_lsn_and_all_acknowledged_ones() {
        let mut history = History::default();
        history.add(40, 40, vec![Answer::Got(1, Some(1)), Answer::Got(3, None)]);
        history.add(30, 30, vec![Answer::Put(2, 2)]);
        history.add(10, 10, vec![Answer::Put(1, 1)]);
        let left = |told, found: &[(u64, u64)]| {
            history.clone().recovered(told, &found.iter().copied().collect()).is_ok()
        };
        assert!(left(0, &[]) && left(0, &[(1, 1)]) && left(0, &[(1, 1), (2, 2)]));
        assert!(!left(0, &[(2, 2)]), "the earlier one is missing");
        assert!(!left(1, &[]), "a read of it was acknowledged");
        // The client did not receive an answer that includes the other record.
        assert!(left(1, &[(1, 1)]) && left(1, &[(1, 1), (2, 2)]));
        assert!(!left(2, &[(1, 1)]), "its commit was acknowledged");
    }

    #[test]
    fn a_phantom_is_rejected() {
        let records = vec![(1, 1)];
        let scanned = Answer::Scanned { low: 0, high: 9, reverse: false, limit: 5, records };
        let told = replay(&[
            (10, &[Answer::Put(1, 1)]),
            (20, &[Answer::Put(5, 5)]),
            (30, &[scanned, Answer::Put(6, 6)]),
        ]);
        assert!(told.unwrap_err().contains("LSN 30"));
    }
}
