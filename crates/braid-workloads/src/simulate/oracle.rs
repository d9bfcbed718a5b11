//! What a database may hold after a crash, from what its transactions were told.
//!
//! Every writer takes *turns* on a few keys: it reads a key's turn and writes the next one, so that
//! the turns of a key are the order of its writers. It lists in a journal which turns it took. So
//! from what is recovered it shows which transactions are there, and for each key what its value
//! must be; turns without a gap mean that nobody was lost and nobody written over.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

/// A transaction's number in its run, from 1.
pub(super) type Number = u64;

/// A key, and its place in the order of the key's writers.
pub(super) type Taken = (u64, u64);

/// What a database holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// For each key its last turn, who took it, and whether the value's bytes are right.
    pub(super) turns: BTreeMap<u64, (u64, Number)>,
    /// The keys that are marked: those whose last turn is odd.
    pub(super) marks: BTreeMap<u64, u64>,
    pub(super) journal: BTreeMap<Number, Vec<Taken>>,
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

/// What was told so far in one run.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// What was there before.
    base: Contents,
    ends: BTreeMap<Number, End>,
    /// Transactions whose caller was told something that depends on them, in the order of the
    /// telling: those that committed, and those that a committed reader saw.
    told: Vec<Number>,
}

impl Oracle {
    pub(super) fn new(base: Contents) -> Self {
        Self { base, ..Self::default() }
    }

    /// What was there before.
    pub(super) fn base(&self) -> &Contents {
        &self.base
    }

    /// How much was told: what is recovered from a crash at this moment must hold all of it.
    pub(super) fn told(&self) -> usize {
        self.told.len()
    }

    /// How many transactions committed.
    pub(super) fn committed(&self) -> u64 {
        self.ends.values().filter(|end| matches!(end, End::Committed { .. })).count() as u64
    }

    pub(super) fn committed_writer(&mut self, number: Number, lsn: u64) {
        self.ends.insert(number, End::Committed { lsn });
        self.told.push(number);
    }

    pub(super) fn committed_reader(&mut self, seen: impl IntoIterator<Item = Number>) {
        self.told.extend(seen);
    }

    pub(super) fn aborted(&mut self, number: Number) {
        self.ends.insert(number, End::Aborted);
    }

    pub(super) fn commit_unknown(&mut self, number: Number) {
        self.ends.insert(number, End::Unknown);
    }

    /// Checks what was recovered from a crash after `told` things had been told.
    pub(super) fn check(&self, found: &Contents, told: usize) -> Result<()> {
        for number in self.base.journal.keys().chain(&self.told[..told]) {
            ensure!(
                found.journal.contains_key(number),
                "transaction {number} was acknowledged, or seen by one that was, and is lost"
            );
        }
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
        self.check_turns(found)?;
        let odd = found.turns.iter().filter(|(_, (turn, _))| turn % 2 == 1);
        let marks: BTreeMap<u64, u64> = odd.map(|(key, (turn, _))| (*key, *turn)).collect();
        ensure!(found.marks == marks, "marked are {:?}, should be {marks:?}", found.marks);
        Ok(())
    }

    /// Checks that every turn of every key was taken once, up to the one that is there.
    fn check_turns(&self, found: &Contents) -> Result<()> {
        let mut takers: BTreeMap<u64, BTreeMap<u64, Number>> = BTreeMap::new();
        for (number, taken) in &found.journal {
            for (key, turn) in taken {
                let other = takers.entry(*key).or_default().insert(*turn, *number);
                ensure!(
                    other.is_none(),
                    "turn {turn} of key {key} was taken by both {other:?} and {number}"
                );
            }
        }
        let keys: BTreeSet<&u64> = takers.keys().chain(found.turns.keys()).collect();
        for key in keys {
            let taken = takers.get(key);
            let last = taken.and_then(BTreeMap::last_key_value).map(|(turn, by)| (*turn, *by));
            ensure!(
                found.turns.get(key).copied() == last,
                "key {key} is at {:?} but the journal says {last:?} (turn, transaction)",
                found.turns.get(key)
            );
            let (count, last) = (taken.map_or(0, BTreeMap::len) as u64, last.map_or(0, |l| l.0));
            ensure!(count == last, "key {key} is at turn {last}, but {count} turns were taken");
        }
        Ok(())
    }
}
