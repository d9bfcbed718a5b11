//! The begin stamps of one worker's active transactions, by context and in order.
//!
//! A worker reads the log's tail for each begin stamp, and the tail never decreases. So
//! transactions that begin later stand later in the list, and the first is the oldest. Begin, end
//! and lookup of the oldest take constant time.
//!
//! A transaction whose snapshot is extended has two stamps. The first determines its place in the
//! list and bounds the horizon until the transaction ends. The last determines which versions it
//! sees.

use crate::log::Lsn;

/// No context; marks the end of the list.
const NONE: u32 = u32::MAX;

/// A context's entry in the list.
#[derive(Clone, Copy, Debug)]
struct ContextBegin {
    /// [`Lsn::MAX`] while the context has no active transaction. The other fields are then
    /// meaningless.
    begin: Lsn,
    /// The stamp that the snapshot was extended to; equals `begin` if it was not extended.
    last: Lsn,
    before: u32,
    after: u32,
}

/// The begin stamps of a worker's active transactions, as a doubly linked list.
///
/// Invariant: `after` links all active contexts from `first` to `last`, `before` links them in
/// reverse, and begin stamps never decrease along `after`.
#[derive(Debug)]
pub(in crate::transaction) struct Begins {
    contexts: Vec<ContextBegin>,
    first: u32,
    last: u32,
    active: usize,
}

impl Default for Begins {
    fn default() -> Self {
        Self { contexts: Vec::new(), first: NONE, last: NONE, active: 0 }
    }
}

impl Begins {
    /// Number of active transactions.
    pub(in crate::transaction) fn active(&self) -> usize {
        self.active
    }

    /// Number of contexts.
    pub(in crate::transaction) fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Adds a context without a transaction, and returns its number.
    pub(super) fn add_context(&mut self) -> usize {
        self.contexts.push(ContextBegin {
            begin: Lsn::MAX,
            last: Lsn::MAX,
            before: NONE,
            after: NONE,
        });
        self.contexts.len() - 1
    }

    /// Begins a transaction in a context. Its stamp must not precede that of any active one.
    #[inline]
    pub(in crate::transaction) fn begin(&mut self, context: usize, begin: Lsn) {
        let last = self.last;
        let added = &mut self.contexts[context];
        assert!(added.begin == Lsn::MAX, "a context serves one transaction at a time");
        *added = ContextBegin { begin, last: begin, before: last, after: NONE };
        let number = context as u32;
        if last == NONE {
            self.first = number;
        } else {
            let last = &mut self.contexts[last as usize];
            assert!(last.begin <= begin, "the log's tail never decreases");
            last.after = number;
        }
        self.last = number;
        self.active += 1;
    }

    /// Moves the snapshot of a context's transaction to a later stamp.
    pub(in crate::transaction) fn extend(&mut self, context: usize, begin: Lsn) {
        let extended = &mut self.contexts[context];
        assert!(extended.begin != Lsn::MAX && extended.last <= begin, "the context is active");
        extended.last = begin;
    }

    /// Ends the transaction of a context.
    #[inline]
    pub(in crate::transaction) fn end(&mut self, context: usize) {
        let ContextBegin { begin, before, after, .. } = self.contexts[context];
        assert!(begin != Lsn::MAX, "it is active");
        self.contexts[context].begin = Lsn::MAX;
        match before {
            NONE => self.first = after,
            before => self.contexts[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.contexts[after as usize].before = before,
        }
        self.active -= 1;
    }

    /// The begin stamp of the oldest active transaction.
    pub(in crate::transaction) fn oldest(&self) -> Option<Lsn> {
        self.contexts.get(self.first as usize).map(|context| context.begin)
    }

    /// The first begin stamp of the oldest active transaction whose snapshot was extended;
    /// [`Lsn::MAX`] without one.
    pub(in crate::transaction) fn oldest_extended(&self) -> Lsn {
        let extended = |context: &&ContextBegin| context.last != context.begin;
        self.active_contexts().find(extended).map_or(Lsn::MAX, |context| context.begin)
    }

    fn active_contexts(&self) -> impl Iterator<Item = &ContextBegin> {
        let first = self.contexts.get(self.first as usize);
        std::iter::successors(first, |context| self.contexts.get(context.after as usize))
    }

    /// The begin stamps of all active transactions, the first and the last of each.
    pub(in crate::transaction) fn iter(&self) -> impl Iterator<Item = Lsn> + '_ {
        self.active_contexts().flat_map(|context| {
            let last = Some(context.last).filter(|last| *last != context.begin);
            [Some(context.begin), last].into_iter().flatten()
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_list_that_is_searched() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut begins, mut model) = (Begins::default(), Vec::new());
        let (mut free, mut tail) = (Vec::new(), 1);
        for _ in 0..20_000 {
            tail += random.u64(0..3);
            // Alternates between many and few active transactions.
            if random.usize(0..40) > model.len() || random.bool() {
                let context = free.pop().unwrap_or_else(|| begins.add_context());
                begins.begin(context, Lsn(tail));
                model.push((context, Lsn(tail), Lsn(tail)));
            }
            if !model.is_empty() && random.u8(0..4) == 0 {
                let position = random.usize(0..model.len());
                model[position].2 = Lsn(tail);
                begins.extend(model[position].0, Lsn(tail));
            }
            if !model.is_empty() && random.u8(0..3) > 0 {
                let (context, ..) = model.remove(random.usize(0..model.len()));
                begins.end(context);
                free.push(context);
            }
            assert_eq!(begins.active(), model.len());
            assert_eq!(begins.oldest(), model.iter().map(|(_, begin, _)| *begin).min());
            let extended = model.iter().filter(|one| one.1 != one.2);
            let oldest_extended = extended.map(|one| one.1).min();
            assert_eq!(begins.oldest_extended(), oldest_extended.unwrap_or(Lsn::MAX));
            let mut told: Vec<_> = begins.iter().collect();
            let mut stamps: Vec<_> = model.iter().flat_map(|one| [one.1, one.2]).collect();
            told.sort_unstable();
            stamps.sort_unstable();
            told.dedup();
            stamps.dedup();
            assert_eq!(told, stamps);
        }
        assert!(begins.contexts() > 20, "many were active at a time");
    }
}
