//! The begin stamps of one worker's active transactions, by context and in order.
//!
//! A worker reads the log's tail for each begin stamp, and the tail never goes back; so transactions
//! that begin later stand later in the list, whose first is the oldest. Beginning, ending and finding the
//! oldest take the same time however many are active.
//!
//! A transaction whose snapshot is extended has two: its first, by which it stands in the list and bounds the
//! horizon until it is over, and the last, by which it looks for versions.

use crate::log::Lsn;

/// No context: the end of the list.
const NONE: u32 = u32::MAX;

/// A context in the list.
#[derive(Clone, Copy, Debug)]
struct ContextBegin {
    /// [`Lsn::MAX`] while the context has no active transaction; then the rest means nothing.
    begin: Lsn,
    /// The same, or what it was extended to.
    last: Lsn,
    before: u32,
    after: u32,
}

/// The begin stamps of a worker's active transactions.
///
/// Invariant: from `first`, `after` leads through all active contexts to `last`, `before` leads back, and
/// begin stamps do not descend.
#[derive(Debug)]
pub(super) struct Begins {
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
    /// Transactions that are active.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Contexts there are.
    pub(super) fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// The number of another context, without a transaction.
    pub(super) fn add_context(&mut self) -> usize {
        self.contexts.push(ContextBegin {
            begin: Lsn::MAX,
            last: Lsn::MAX,
            before: NONE,
            after: NONE,
        });
        self.contexts.len() - 1
    }

    /// A transaction begins in a context, not before any that is active.
    pub(super) fn begin(&mut self, context: usize, begin: Lsn) {
        let last = self.last;
        let added = &mut self.contexts[context];
        assert!(added.begin == Lsn::MAX, "a context serves one transaction at a time");
        *added = ContextBegin { begin, last: begin, before: last, after: NONE };
        let number = context as u32;
        if last == NONE {
            self.first = number;
        } else {
            let last = &mut self.contexts[last as usize];
            assert!(last.begin <= begin, "the log's tail never goes back");
            last.after = number;
        }
        self.last = number;
        self.active += 1;
    }

    /// The transaction of a context sees what was committed before a later stamp from now on.
    pub(super) fn extend(&mut self, context: usize, begin: Lsn) {
        let extended = &mut self.contexts[context];
        assert!(extended.begin != Lsn::MAX && extended.last <= begin, "it is active, and goes on");
        extended.last = begin;
    }

    /// The transaction of a context is over.
    pub(super) fn end(&mut self, context: usize) {
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
    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.contexts.get(self.first as usize).map(|context| context.begin)
    }

    /// The begin stamps of all active transactions, the first and the last of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = Lsn> + '_ {
        let first = self.contexts.get(self.first as usize);
        let all = std::iter::successors(first, |context| self.contexts.get(context.after as usize));
        all.flat_map(|context| {
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
            // Many, then few, then many.
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
