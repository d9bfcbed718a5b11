//! The list of slots of an open database.

use std::collections::{BTreeMap, BTreeSet};

use super::token::ChangeToken;
use crate::database::error::{ChangesError, Error, Result};
use crate::log::{LogFiles, LogHold, Lsn};
use crate::sync::Mutex;

/// The slots of an open database.
///
/// Committed transactions create and drop slots. Separate tasks add and remove them here once that
/// is durable, in any order. When all tasks have run, a slot is here if and only if its row exists.
#[derive(Debug, Default)]
pub(in crate::database) struct Slots(Mutex<SlotsState>);

#[derive(Debug, Default)]
pub(super) struct SlotsState {
    by_name: BTreeMap<String, Slot>,
    /// Numbers of slots with one pending step: added after it was removed, or removed after another
    /// slot took its name.
    half_gone: BTreeSet<u64>,
    /// Slots that are being created, by number, with the advances made so far. Their rows are
    /// visible before they are durable.
    pending: BTreeMap<u64, SlotRow>,
    /// Slots in creation that callers already know because their rows are durable, by name. The
    /// tasks that add them have not run yet.
    published: BTreeMap<String, u64>,
}

impl SlotsState {
    /// Returns the row of a slot that callers can know.
    pub(super) fn row(&self, name: &str) -> Option<&SlotRow> {
        let published = self.published.get(name).filter(|number| !self.half_gone.contains(number));
        let pending = published.and_then(|number| self.pending.get(number));
        pending.or_else(|| self.by_name.get(name).map(|slot| &slot.row))
    }

    /// Ends the creation of a slot, with or without success. Returns its row if the creation was
    /// pending.
    pub(super) fn creation_finished(&mut self, number: u64) -> Option<SlotRow> {
        self.published.retain(|_, published| *published != number);
        self.pending.remove(&number)
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) row: SlotRow,
    /// The LSN of its creation. If two slots have one name, the older one was dropped before this
    /// LSN.
    pub(super) created: Lsn,
    /// `None` if the log that it needs was gone when the database was opened.
    pub(super) hold: Option<LogHold>,
}

impl Slot {
    pub(super) fn advance(&mut self, row: &SlotRow) {
        self.row = self.row.advanced(&row.token([0; 16]));
        self.hold.iter().for_each(|hold| hold.advance(self.row.resume));
    }
}

/// A slot that is being created; dropping this value ends the creation.
pub(super) struct PendingSlot<'s> {
    slots: &'s Slots,
    pub(super) number: u64,
}

impl Drop for PendingSlot<'_> {
    fn drop(&mut self) {
        self.slots.0.lock().creation_finished(self.number);
    }
}

/// The stored row of a slot: five numbers, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotRow {
    /// A random number that distinguishes the slot from later ones of its name.
    pub(super) number: u64,
    pub(super) resume: Lsn,
    pub(super) given: Lsn,
    pub(super) max_bytes: u64,
    /// The checksum, as in a token.
    pub(super) sum: u32,
}

impl SlotRow {
    pub(super) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let numbers =
            [self.number, self.resume.0, self.given.0, self.max_bytes, u64::from(self.sum)];
        for (into, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *into = number.to_le_bytes();
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || crate::types::DecodeError::new("a slot");
        let (&[number, resume, given, max_bytes, sum], []) = bytes.as_chunks::<8>() else {
            return Err(malformed().into());
        };
        let [number, resume, given, max_bytes, sum] =
            [number, resume, given, max_bytes, sum].map(u64::from_le_bytes);
        let sum = u32::try_from(sum).map_err(|_| malformed())?;
        Ok(Self { number, resume: Lsn(resume), given: Lsn(given), max_bytes, sum })
    }

    /// Returns the row advanced to the token.
    pub(super) fn advanced(self, token: &ChangeToken) -> Self {
        let further = self.token(token.database).further(token);
        let ChangeToken { resume, given, sum, .. } = further;
        Self { resume, given, sum, ..self }
    }

    pub(super) fn token(&self, database: [u8; 16]) -> ChangeToken {
        ChangeToken { database, resume: self.resume, given: self.given, sum: self.sum }
    }
}

impl Slots {
    /// Returns the position of the slot of this name, and its maximum size in bytes.
    pub(super) fn start(&self, name: &str, files: &LogFiles) -> Result<(ChangeToken, u64)> {
        let state = self.0.lock();
        let row = state
            .row(name)
            .ok_or_else(|| Error::Changes(ChangesError::SlotNotFound(name.to_owned())))?;
        Ok((row.token(files.database()), row.max_bytes))
    }

    /// Returns whether log that the slot needs was freed; `false` while the slot is being created.
    pub(super) fn is_lost(&self, name: &str, number: u64) -> bool {
        let state = self.0.lock();
        let slot = state.by_name.get(name).filter(|slot| slot.row.number == number);
        slot.is_some_and(|slot| slot.hold.as_ref().is_none_or(|hold| hold.from().is_none()))
    }

    /// Starts the creation of a slot. The slot is added before the result is dropped, or never.
    pub(super) fn begin_creation(&self, row: SlotRow) -> PendingSlot<'_> {
        self.0.lock().pending.insert(row.number, row);
        PendingSlot { slots: self, number: row.number }
    }

    /// Adds a slot whose creation is durable.
    pub(super) fn enter(&self, name: String, mut slot: Slot) {
        let state = &mut *self.0.lock();
        if let Some(row) = state.creation_finished(slot.row.number) {
            slot.advance(&row);
        }
        if state.half_gone.remove(&slot.row.number) {
            return;
        }
        let gone = match state.by_name.get(&name) {
            Some(other) if other.created > slot.created => Some(slot.row.number),
            _ => state.by_name.insert(name, slot).map(|other| other.row.number),
        };
        state.half_gone.extend(gone);
    }

    /// Makes a slot visible to all callers before its caller learns of it. Its row is durable.
    pub(super) fn publish(&self, name: &str, number: u64) {
        let state = &mut *self.0.lock();
        if state.pending.contains_key(&number) {
            state.published.insert(name.to_owned(), number);
        }
    }

    /// Advances a slot whose row is durable.
    pub(super) fn advance(&self, name: &str, row: &SlotRow) {
        let state = &mut *self.0.lock();
        if let Some(pending) = state.pending.get_mut(&row.number) {
            *pending = pending.advanced(&row.token([0; 16]));
            state.published.insert(name.to_owned(), row.number);
        } else if let Some(slot) = state.by_name.get_mut(name)
            && slot.row.number == row.number
        {
            slot.advance(row);
        }
    }

    /// Removes a slot whose deletion is durable.
    pub(super) fn remove(&self, name: &str, number: u64) {
        let state = &mut *self.0.lock();
        if state.half_gone.remove(&number) {
            return;
        }
        if state.by_name.get(name).is_some_and(|slot| slot.row.number == number) {
            state.by_name.remove(name);
        } else {
            state.half_gone.insert(number);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    fn slot(number: u64, created: u64) -> Slot {
        let row = SlotRow { number, resume: Lsn(1), given: Lsn(1), max_bytes: 1, sum: 0 };
        Slot { row, created: Lsn(created), hold: None }
    }

    fn advanced_to(number: u64, to: u64) -> SlotRow {
        SlotRow { resume: Lsn(to), given: Lsn(to), ..slot(number, 0).row }
    }

    /// Durable changes are applied in any order. Slots of one name are created, advanced and
    /// dropped one after another; the last one may stay.
    #[test]
    fn a_slot_is_there_in_the_end_if_its_row_is_and_where_that_is() {
        with_limit(PART_SECONDS, |_| {
            #[derive(Clone, Copy, Debug)]
            enum DurableStep {
                Made,
                Advanced(u64),
                Dropped,
            }
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..20_000 {
                let (count, stays) = (random.u64(1..5), random.bool());
                let mut steps = Vec::new();
                for number in 0..count {
                    steps.push((number, DurableStep::Made));
                    let advances = 2..random.u64(2..5);
                    steps.extend(advances.map(|to| (number, DurableStep::Advanced(to))));
                    steps.push((number, DurableStep::Dropped));
                }
                if stays {
                    steps.pop();
                }
                let furthest = |number| {
                    let to = |(of, step): &(u64, DurableStep)| match step {
                        DurableStep::Advanced(to) if *of == number => Some(*to),
                        _ => None,
                    };
                    steps.iter().filter_map(to).max().unwrap_or(1)
                };
                let furthest = furthest(count - 1);
                random.shuffle(&mut steps);
                let slots = Slots::default();
                let mut pending: Vec<_> = (0..count)
                    .map(|number| Some(slots.begin_creation(slot(number, 0).row)))
                    .collect();
                for (number, step) in &steps {
                    match step {
                        DurableStep::Made => {
                            slots.enter("s".to_owned(), slot(*number, 10 * number));
                            pending[*number as usize] = None;
                        }
                        DurableStep::Advanced(to) => slots.advance("s", &advanced_to(*number, *to)),
                        DurableStep::Dropped => slots.remove("s", *number),
                    }
                }
                let state = slots.0.lock();
                let there = state.by_name.get("s").map(|slot| (slot.row.number, slot.row.given));
                assert_eq!(there, stays.then(|| (count - 1, Lsn(furthest))), "{steps:?}");
                assert!(state.half_gone.is_empty() && state.pending.is_empty(), "{steps:?}");
            }
        });
    }

    /// A caller that knows of a slot can follow it, even if the task that creates it has not added
    /// it yet.
    #[test]
    fn a_slot_that_is_being_created_is_there_for_all_once_somebody_was_told_of_it() {
        with_limit(PART_SECONDS, |_| {
            let slots = Slots::default();
            let number = |slots: &Slots| slots.0.lock().row("s").map(|row| row.number);
            slots.enter("s".to_owned(), slot(1, 10));
            let pending = slots.begin_creation(slot(2, 20).row);
            assert_eq!(number(&slots), Some(1), "nobody was told of the other");
            slots.publish("s", 2);
            assert_eq!(number(&slots), Some(2), "the first was dropped by then");
            slots.remove("s", 2);
            slots.remove("s", 1);
            assert_eq!(number(&slots), None);
            slots.enter("s".to_owned(), slot(2, 20));
            drop(pending);
            assert_eq!(number(&slots), None);
            // Another caller advances it.
            let pending = slots.begin_creation(slot(3, 30).row);
            slots.advance("s", &advanced_to(3, 40));
            assert_eq!(number(&slots), Some(3));
            slots.enter("s".to_owned(), slot(3, 30));
            drop(pending);
            assert_eq!(number(&slots), Some(3));
            slots.remove("s", 3);
            let state = slots.0.lock();
            assert!(
                state.published.is_empty()
                    && state.pending.is_empty()
                    && state.half_gone.is_empty()
            );
        });
    }

    /// A slot whose creation fails is forgotten.
    #[test]
    fn a_slot_that_is_not_made_after_all_leaves_nothing() {
        with_limit(PART_SECONDS, |_| {
            let slots = Slots::default();
            drop(slots.begin_creation(slot(1, 0).row));
            slots.advance("s", &advanced_to(1, 5));
            let state = slots.0.lock();
            assert!(
                state.by_name.is_empty() && state.half_gone.is_empty() && state.pending.is_empty()
            );
        });
    }
}
