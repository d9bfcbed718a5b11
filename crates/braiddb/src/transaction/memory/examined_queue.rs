//! Queue of items that a pruner examines: those that it has kept, and those that it has not examined.
//!
//! Readers come and go, so kept items may no longer be needed. All are examined again once as many
//! others were examined as remained the last time. So an item that is no longer needed leaves the
//! queue while about as many others are examined as are needed, and each item is examined an
//! amortized constant number of times.

use std::collections::VecDeque;

/// An entry of the queue.
pub(in crate::transaction) trait ExaminedEntry {
    /// Returns the number of its items.
    fn items(&self) -> usize;
}

/// Entries in the order in which they were pushed: `kept`, then `unexamined`.
#[derive(Debug)]
pub(in crate::transaction) struct ExaminedQueue<T> {
    kept: VecDeque<T>,
    unexamined: VecDeque<T>,
    kept_items: usize,
    unexamined_items: usize,
    /// Number of unexamined items that were kept before; zero if all were examined again.
    reexamined_items: usize,
    /// Number of items that remained when all had last been examined again.
    remained: usize,
    /// Number of other items that were examined since.
    others_examined: usize,
}

impl<T> Default for ExaminedQueue<T> {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            unexamined: VecDeque::new(),
            kept_items: 0,
            unexamined_items: 0,
            reexamined_items: 0,
            remained: 0,
            others_examined: 0,
        }
    }
}

impl<T: ExaminedEntry> ExaminedQueue<T> {
    /// Adds an entry.
    pub(in crate::transaction) fn push(&mut self, entry: T) {
        self.unexamined_items += entry.items();
        self.unexamined.push_back(entry);
    }

    /// Removes the entry that was pushed last. It was not examined.
    pub(super) fn pop_newest(&mut self) {
        let entry = self.unexamined.pop_back().expect("pushed, and not examined since");
        self.unexamined_items -= entry.items();
    }

    /// Returns the oldest entry.
    pub(super) fn oldest(&self) -> Option<&T> {
        self.kept.front().or(self.unexamined.front())
    }

    /// Removes the oldest entry, if `is_due`.
    pub(super) fn pop_oldest_if(&mut self, is_due: impl FnOnce(&mut T) -> bool) -> Option<T> {
        if self.kept.is_empty() {
            return self.examine_if(is_due);
        }
        let entry = self.kept.pop_front_if(is_due)?;
        self.kept_items -= entry.items();
        self.remained = self.remained.saturating_sub(entry.items());
        Some(entry)
    }

    /// Removes the oldest entries that are due and stored together, at most `most`, and passes each
    /// to `pass`, with the entry `ahead` places later. Returns their number; zero if entries are
    /// kept, which must be removed one by one.
    pub(super) fn pop_run(
        &mut self,
        (most, ahead): (usize, usize),
        is_due: impl Fn(&T) -> bool,
        mut pass: impl FnMut(&T, Option<&T>),
    ) -> usize {
        if !self.kept.is_empty() || self.reexamined_items > 0 {
            return 0;
        }
        let (run, _) = self.unexamined.as_slices();
        let (mut count, mut items) = (0, 0);
        for entry in run.iter().take(most).take_while(|entry| is_due(entry)) {
            pass(entry, run.get(count + ahead));
            count += 1;
            items += entry.items();
        }
        self.unexamined.drain(..count);
        self.unexamined_items -= items;
        self.others_examined += items;
        count
    }

    /// Takes the oldest unexamined entry, if `is_due`. The caller drops it or keeps it.
    pub(in crate::transaction) fn examine_if(
        &mut self,
        is_due: impl FnOnce(&mut T) -> bool,
    ) -> Option<T> {
        let entry = self.unexamined.pop_front_if(is_due)?;
        self.unexamined_items -= entry.items();
        if self.reexamined_items == 0 {
            self.others_examined += entry.items();
        } else {
            self.reexamined_items = self.reexamined_items.saturating_sub(entry.items());
            if self.reexamined_items == 0 {
                // The caller may keep this one, too.
                self.remained = self.kept_items + entry.items();
            }
        }
        Some(entry)
    }

    /// Keeps an entry that was examined.
    pub(in crate::transaction) fn keep(&mut self, entry: T) {
        self.kept_items += entry.items();
        self.kept.push_back(entry);
    }

    /// Lets the kept entries be examined again if enough others were examined. Called after each
    /// batch.
    pub(in crate::transaction) fn examine_again_if_due(&mut self) {
        if self.kept.is_empty() {
            self.others_examined = 0;
            return;
        }
        if self.reexamined_items > 0 || self.others_examined < self.remained {
            return;
        }
        (self.reexamined_items, self.others_examined) = (self.kept_items, 0);
        self.unexamined_items += std::mem::take(&mut self.kept_items);
        self.kept.append(&mut self.unexamined);
        std::mem::swap(&mut self.kept, &mut self.unexamined);
    }

    /// Number of items that were not examined.
    pub(in crate::transaction) fn unexamined_items(&self) -> usize {
        self.unexamined_items
    }

    /// The entries that were not examined.
    pub(in crate::transaction) fn unexamined(&self) -> impl Iterator<Item = &T> {
        self.unexamined.iter()
    }

    /// Number of entries.
    pub(in crate::transaction) fn len(&self) -> usize {
        self.kept.len() + self.unexamined.len()
    }

    /// All entries, newest first.
    pub(in crate::transaction) fn newest_first(&self) -> impl Iterator<Item = &T> {
        self.unexamined.iter().rev().chain(self.kept.iter().rev())
    }

    /// Removes all entries.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        let Self { kept, unexamined, .. } = std::mem::take(self);
        kept.into_iter().chain(unexamined)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl ExaminedEntry for u64 {
        fn items(&self) -> usize {
            1
        }
    }

    /// One reader stays, for which 100 items are kept, and others come and go: each item is needed
    /// when it is examined, and no longer a thousand items later.
    #[test]
    fn items_that_were_needed_once_are_removed_later() {
        const BATCH: usize = 50;
        const NEEDED: u64 = 1_000;
        let (mut queue, mut most, mut examined) = (ExaminedQueue::default(), 0, 0);
        let count = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
        for now in 0..count {
            queue.push(now);
            if queue.unexamined_items() < BATCH {
                continue;
            }
            for _ in 0..BATCH {
                let Some(item) = queue.examine_if(|_| true) else { break };
                examined += 1;
                if item < 100 || now - item < NEEDED {
                    queue.keep(item);
                }
            }
            queue.examine_again_if_due();
            most = most.max(queue.len());
        }
        // The queue holds the needed items, about as many that no longer are, and new ones.
        assert!(most <= 4 * (100 + NEEDED as usize), "{most} are kept");
        assert!(examined <= 3 * count, "{examined} examinations of {count} items");
        assert!(queue.take_all().filter(|item| *item < 100).eq(0..100));
    }
}
