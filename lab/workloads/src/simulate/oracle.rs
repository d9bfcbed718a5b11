//! The oracle: derives from the answers to clients what a database may contain after a crash.
//!
//! Each writer takes *turns* on a few keys: it reads the turn of a key and writes the next one. The
//! turns of a key therefore give the order of its writers. The writer records in a journal which
//! turns it took. The recovered state therefore shows which transactions survived and which value
//! each key must have. Turns without a gap prove that no write was lost or overwritten.
//!
//! *Observers* read keys without writing: the writer of the last turn, or the existence of a mark.
//! The answer can be a value, an absence, a refused write, an error that the observer returns, or a
//! step of an interactive transaction. In all cases it depends on the last writer of the key before
//! the observer's snapshot. That writer must have written what the observer saw, and once the
//! observer has its answer, no crash may undo that write.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde::Serialize;

/// The number of a transaction in its run, from 1.
pub(super) type Number = u64;

/// A key and the turn that a transaction took on it.
pub(super) type Taken = (u64, u64);

/// One fact about a key, as read in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) snapshot: u64,
    pub(super) key: u64,
    pub(super) state: KeyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    /// The transaction that took the last turn, if any.
    Taker(Option<Number>),
    /// True if the key is marked.
    Marked(bool),
}

/// The number of answers to observers, by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Answers {
    /// Reads that found no mark.
    pub(super) absences: u64,
    /// Refused writes.
    pub(super) refusals: u64,
    /// Errors returned by the observing transaction.
    pub(super) errors: u64,
    /// Steps of interactive transactions.
    pub(super) steps: u64,
}

impl Answers {
    pub(super) fn add(&mut self, other: &Self) {
        self.absences += other.absences;
        self.refusals += other.refusals;
        self.errors += other.errors;
        self.steps += other.steps;
    }
}

/// The condition under which a reply to a client stays true after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// This transaction survives: the reply acknowledged its commit or contained a value that it
    /// wrote.
    Transaction(Number),
    Observation(Observation),
}

/// The contents of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// For each key: its last turn, the transaction that took it, and true if the bytes of the
    /// value are right.
    pub(super) turns: BTreeMap<u64, (u64, Number)>,
    /// The marked keys: those with an odd last turn.
    pub(super) marks: BTreeMap<u64, u64>,
    pub(super) journal: BTreeMap<Number, Vec<Taken>>,
}

impl Contents {
    /// Returns the number of turns, marks and journal records.
    pub(super) fn lengths(&self) -> [u64; 3] {
        [self.turns.len(), self.marks.len(), self.journal.len()].map(|length| length as u64)
    }

    /// Checks that the contents result from whole transactions. This holds for one snapshot too.
    pub(super) fn check(&self) -> Result<()> {
        self.check_turns()?;
        let odd = self.turns.iter().filter(|(_, (turn, _))| turn % 2 == 1);
        let marks: BTreeMap<u64, u64> = odd.map(|(key, (turn, _))| (*key, *turn)).collect();
        ensure!(self.marks == marks, "marked are {:?}, should be {marks:?}", self.marks);
        Ok(())
    }

    /// Checks for every key that each turn up to the last one was taken exactly once.
    fn check_turns(&self) -> Result<()> {
        let mut takers: BTreeMap<u64, BTreeMap<u64, Number>> = BTreeMap::new();
        for (number, taken) in &self.journal {
            for (key, turn) in taken {
                let other = takers.entry(*key).or_default().insert(*turn, *number);
                ensure!(
                    other.is_none(),
                    "turn {turn} of key {key} was taken by both {other:?} and {number}"
                );
            }
        }
        let keys: BTreeSet<&u64> = takers.keys().chain(self.turns.keys()).collect();
        for key in keys {
            let taken = takers.get(key);
            let last = taken.and_then(BTreeMap::last_key_value).map(|(turn, by)| (*turn, *by));
            ensure!(
                self.turns.get(key).copied() == last,
                "key {key} is at {:?} but the journal has {last:?} (turn, transaction)",
                self.turns.get(key)
            );
            let (count, last) = (taken.map_or(0, BTreeMap::len) as u64, last.map_or(0, |l| l.0));
            ensure!(count == last, "key {key} is at turn {last}, but {count} turns were taken");
        }
        Ok(())
    }
}

/// The end of a transaction, as far as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed {
        lsn: u64,
    },
    Aborted,
    /// The log failed during the commit: the transaction may or may not survive.
    Unknown,
}

/// All replies in one run so far.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The contents at the beginning.
    base: Contents,
    ends: BTreeMap<Number, End>,
    /// The turns that committed transactions took.
    taken: BTreeMap<Number, Vec<Taken>>,
    pub(super) answers: Answers,
    /// The replies, in order.
    replies: Vec<Reply>,
    /// Observations of transactions that have not answered their callers yet.
    seen: BTreeMap<Number, Vec<Observation>>,
    /// The keys of the last writer that prepared to commit.
    recent: Vec<u64>,
}

impl Oracle {
    pub(super) fn new(base: Contents) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns the contents at the beginning.
    pub(super) fn base(&self) -> &Contents {
        &self.base
    }

    /// Returns the number of replies. The state recovered from a crash at this moment must agree
    /// with all of them.
    pub(super) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// Returns the number of committed transactions.
    pub(super) fn committed(&self) -> u64 {
        self.ends.values().filter(|end| matches!(end, End::Committed { .. })).count() as u64
    }

    pub(super) fn committed_writer(&mut self, number: Number, lsn: u64, taken: Vec<Taken>) {
        self.ends.insert(number, End::Committed { lsn });
        self.taken.insert(number, taken);
        self.replies.push(Reply::Transaction(number));
    }

    pub(super) fn committed_reader(&mut self, seen: impl IntoIterator<Item = Number>) {
        self.replies.extend(seen.into_iter().map(Reply::Transaction));
    }

    /// Records an observation of a transaction, in any attempt: its caller may receive it.
    pub(super) fn saw(&mut self, number: Number, seen: Observation) {
        self.seen.entry(number).or_default().push(seen);
    }

    /// Records that the caller of a transaction or of one of its steps received an answer and may
    /// know its observations.
    pub(super) fn answered(&mut self, number: Number) {
        let seen = self.seen.remove(&number).unwrap_or_default();
        let absent = |seen: &&Observation| seen.state == KeyState::Marked(false);
        self.answers.absences += seen.iter().filter(absent).count() as u64;
        self.replies.extend(seen.into_iter().map(Reply::Observation));
    }

    /// Records that the caller of a transaction received none of its observations.
    pub(super) fn unanswered(&mut self, number: Number) {
        self.seen.remove(&number);
    }

    /// Records the keys of a writer that prepares to commit.
    pub(super) fn writes(&mut self, taken: &[Taken]) {
        self.recent = taken.iter().map(|(key, _)| *key).collect();
    }

    /// Returns the keys of the last writer that prepared to commit.
    pub(super) fn recent(&self) -> &[u64] {
        &self.recent
    }

    pub(super) fn aborted(&mut self, number: Number) {
        self.ends.insert(number, End::Aborted);
    }

    pub(super) fn commit_unknown(&mut self, number: Number) {
        self.ends.insert(number, End::Unknown);
    }

    /// Checks the state recovered from a crash that happened after `replies` replies.
    pub(super) fn check(&self, found: &Contents, replies: usize) -> Result<()> {
        let acknowledged = self.replies[..replies].iter().filter_map(|reply| match reply {
            Reply::Transaction(number) => Some(number),
            Reply::Observation(_) => None,
        });
        for number in self.base.journal.keys().chain(acknowledged) {
            ensure!(
                found.journal.contains_key(number),
                "transaction {number} is lost, although it or a transaction that saw it was acknowledged"
            );
        }
        self.check_seen(found, replies)?;
        let new = || found.journal.iter().filter(|(id, _)| !self.base.journal.contains_key(id));
        let lsn = |number: &Number| match self.ends.get(number) {
            Some(End::Committed { lsn }) => Some(*lsn),
            _ => None,
        };
        for (number, taken) in &self.base.journal {
            ensure!(found.journal.get(number) == Some(taken), "the journal of {number} changed");
        }
        // Transactions with a known LSN survive up to one LSN, and none beyond it.
        let last = new().filter_map(|(number, _)| lsn(number)).max().unwrap_or(0);
        for (number, end) in &self.ends {
            let there = found.journal.contains_key(number);
            match end {
                End::Committed { lsn } => ensure!(
                    there == (*lsn <= last),
                    "transaction {number}, LSN {lsn}, is {} although the last recovered one has LSN {last}",
                    if there { "there" } else { "missing" }
                ),
                End::Aborted => ensure!(!there, "aborted transaction {number} was recovered"),
                End::Unknown => {}
            }
        }
        found.check()?;
        Ok(())
    }

    /// Checks that each observation was true in its snapshot and that the transaction it depends on
    /// survived.
    fn check_seen(&self, found: &Contents, replies: usize) -> Result<()> {
        let mut writers: BTreeMap<u64, BTreeMap<u64, (u64, Number)>> = BTreeMap::new();
        for (number, end) in &self.ends {
            let End::Committed { lsn } = end else { continue };
            for (key, turn) in self.taken.get(number).into_iter().flatten() {
                writers.entry(*key).or_default().insert(*lsn, (*turn, *number));
            }
        }
        for reply in &self.replies[..replies] {
            let Reply::Observation(seen @ Observation { snapshot, key, state }) = reply else {
                continue;
            };
            let before = writers.get(key).and_then(|lsns| lsns.range(..snapshot).next_back());
            let last = before.map(|(_, last)| last).or_else(|| self.base.turns.get(key));
            let so = match state {
                KeyState::Taker(taker) => *taker == last.map(|(_, number)| *number),
                KeyState::Marked(marked) => *marked == last.is_some_and(|(turn, _)| turn % 2 == 1),
            };
            ensure!(
                so,
                "a client saw {seen:?}, but the last turn before was {last:?} (turn, transaction)"
            );
            if let Some((_, number)) = last {
                ensure!(
                    found.journal.contains_key(number),
                    "a client saw {seen:?}, which depends on transaction {number}, and that is lost"
                );
            }
        }
        Ok(())
    }
}
