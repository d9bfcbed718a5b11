//! What a database may hold after a crash, from what its transactions were told.
//!
//! Every writer takes *turns* on a few keys: it reads a key's turn and writes the next one, so that
//! the turns of a key are the order of its writers. It lists in a journal which turns it took. So
//! from what is recovered it shows which transactions are there, and for each key what its value
//! must be; turns without a gap mean that nobody was lost and nobody written over.
//!
//! *Observers* are told of keys without writing: who took the last turn, whether a mark is there. Whatever
//! the answer came with, a value or an absence, a refused write, an error of the observer's own, a step of
//! an interactive transaction, it depends on the last writer of the key before the observer's snapshot.
//! That writer must have written what the observer was told, and from the answer on no crash may undo it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde::Serialize;

/// A transaction's number in its run, from 1.
pub(super) type Number = u64;

/// A key, and its place in the order of the key's writers.
pub(super) type Taken = (u64, u64);

/// What was seen of a key, as of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) snapshot: u64,
    pub(super) key: u64,
    pub(super) state: KeyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    /// Who took its last turn, if anybody did.
    Taker(Option<Number>),
    /// Whether it is marked.
    Marked(bool),
}

/// How often observers were answered.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Answers {
    /// That a mark is not there.
    pub(super) absences: u64,
    /// By a write that was refused.
    pub(super) refusals: u64,
    /// By an error of the transaction that saw something.
    pub(super) errors: u64,
    /// By a step of an interactive transaction.
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

/// What a reply to a client depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// Something that depends on this transaction: that it committed, or a value of its.
    Transaction(Number),
    Observation(Observation),
}

/// What a database holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// For each key its last turn, who took it, and whether the value's bytes are right.
    pub(super) turns: BTreeMap<u64, (u64, Number)>,
    /// The keys that are marked: those whose last turn is odd.
    pub(super) marks: BTreeMap<u64, u64>,
    pub(super) journal: BTreeMap<Number, Vec<Taken>>,
}

impl Contents {
    /// How many turns, marks and records of the journal there are.
    pub(super) fn lengths(&self) -> [u64; 3] {
        [self.turns.len(), self.marks.len(), self.journal.len()].map(|length| length as u64)
    }

    /// Checks that it is what transactions leave, each of them all or nothing: of one snapshot too.
    pub(super) fn check(&self) -> Result<()> {
        self.check_turns()?;
        let odd = self.turns.iter().filter(|(_, (turn, _))| turn % 2 == 1);
        let marks: BTreeMap<u64, u64> = odd.map(|(key, (turn, _))| (*key, *turn)).collect();
        ensure!(self.marks == marks, "marked are {:?}, should be {marks:?}", self.marks);
        Ok(())
    }

    /// Checks that every turn of every key was taken once, up to the one that is there.
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
                "key {key} is at {:?} but the journal says {last:?} (turn, transaction)",
                self.turns.get(key)
            );
            let (count, last) = (taken.map_or(0, BTreeMap::len) as u64, last.map_or(0, |l| l.0));
            ensure!(count == last, "key {key} is at turn {last}, but {count} turns were taken");
        }
        Ok(())
    }
}

/// How a transaction ended, as far as its caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed {
        lsn: u64,
    },
    Aborted,
    /// The log failed during its commit: it may be there or not.
    Unknown,
}

/// The replies given so far in one run.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// What was there before.
    base: Contents,
    ends: BTreeMap<Number, End>,
    /// The turns that committed transactions took.
    taken: BTreeMap<Number, Vec<Taken>>,
    pub(super) answers: Answers,
    /// In the order in which they were given.
    replies: Vec<Reply>,
    /// What transactions have seen whose callers were not answered yet.
    seen: BTreeMap<Number, Vec<Observation>>,
    /// The keys of the last writer that was about to commit.
    recent: Vec<u64>,
}

impl Oracle {
    pub(super) fn new(base: Contents) -> Self {
        Self { base, ..Self::default() }
    }

    /// What was there before.
    pub(super) fn base(&self) -> &Contents {
        &self.base
    }

    /// How many replies were given: what is recovered from a crash at this moment must hold all of it.
    pub(super) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// How many transactions committed.
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

    /// Notes what a transaction saw, in whichever attempt: its caller may be told of it.
    pub(super) fn saw(&mut self, number: Number, seen: Observation) {
        self.seen.entry(number).or_default().push(seen);
    }

    /// The caller of a transaction, or of one of its steps, was answered, and may know what it saw.
    pub(super) fn answered(&mut self, number: Number) {
        let seen = self.seen.remove(&number).unwrap_or_default();
        let absent = |seen: &&Observation| seen.state == KeyState::Marked(false);
        self.answers.absences += seen.iter().filter(absent).count() as u64;
        self.replies.extend(seen.into_iter().map(Reply::Observation));
    }

    /// The caller of a transaction was told nothing of what it saw.
    pub(super) fn unanswered(&mut self, number: Number) {
        self.seen.remove(&number);
    }

    /// Notes keys whose writer is about to commit.
    pub(super) fn writes(&mut self, taken: &[Taken]) {
        self.recent = taken.iter().map(|(key, _)| *key).collect();
    }

    /// The keys of the last writer that was about to commit.
    pub(super) fn recent(&self) -> &[u64] {
        &self.recent
    }

    pub(super) fn aborted(&mut self, number: Number) {
        self.ends.insert(number, End::Aborted);
    }

    pub(super) fn commit_unknown(&mut self, number: Number) {
        self.ends.insert(number, End::Unknown);
    }

    /// Checks what was recovered from a crash after `replies` replies had been given.
    pub(super) fn check(&self, found: &Contents, replies: usize) -> Result<()> {
        let acknowledged = self.replies[..replies].iter().filter_map(|reply| match reply {
            Reply::Transaction(number) => Some(number),
            Reply::Observation(_) => None,
        });
        for number in self.base.journal.keys().chain(acknowledged) {
            ensure!(
                found.journal.contains_key(number),
                "transaction {number} was acknowledged, or seen by one that was, and is lost"
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
        // Those whose LSN is known are there up to one LSN, and none beyond it.
        let last = new().filter_map(|(number, _)| lsn(number)).max().unwrap_or(0);
        for (number, end) in &self.ends {
            let there = found.journal.contains_key(number);
            match end {
                End::Committed { lsn } => ensure!(
                    there == (*lsn <= last),
                    "transaction {number}, LSN {lsn}, is {} though the last one there has LSN {last}",
                    if there { "there" } else { "missing" }
                ),
                End::Aborted => ensure!(!there, "transaction {number} was aborted, and is there"),
                End::Unknown => {}
            }
        }
        found.check()?;
        Ok(())
    }

    /// Checks that what was told of keys was so at its snapshot, and that what it depends on is there.
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
