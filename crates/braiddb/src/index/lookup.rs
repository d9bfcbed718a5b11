//! Lookup of a key: the most performance-critical path of the index.
//!
//! A lookup is a plain function that pauses where cache lines are probably missing and the worker
//! has other tasks. The caller then suspends, and resumes it at the node that it has reached.

use super::key::{HeldKey, SearchKey};
use super::node::{FANOUT, HeldNode};
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
use super::search::wide;
use super::search::{CountAtMost, Scalar};
use super::tree::IndexTree;
use crate::latch::{LatchVersion, Restart};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;

/// A lookup in progress.
#[derive(Debug)]
pub(crate) struct Lookup<'k, 'g> {
    key: SearchKey<'k>,
    operation: &'g OperationGuard,
    reached: Option<ReachedNode<'g>>,
    absent: Option<InsertionPlace<'g>>,
}

/// The node where a lookup has paused.
#[derive(Clone, Copy, Debug)]
struct ReachedNode<'g> {
    node: HeldNode<'g>,
    /// Its parent, at the version at which it linked the node; `None` for the root.
    parent: Option<(HeldNode<'g>, LatchVersion)>,
    /// False while only its first cache line was prefetched.
    is_prefetched: bool,
}

/// The progress of a lookup; small enough to be returned in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LookupProgress {
    /// The key's record id. It is not reused at least as long as the operation guard lasts.
    Found(Rid),
    /// The index does not contain the key; see [`Lookup::insertion_place`].
    Absent,
    /// The cache lines that are read next were prefetched.
    Paused,
}

/// The leaf to which a key that was not found belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InsertionPlace<'g> {
    leaf: HeldNode<'g>,
    version: LatchVersion,
    place: usize,
}

impl<'k, 'g> Lookup<'k, 'g> {
    #[inline(always)]
    pub(crate) fn new(key: &'k [u8], operation: &'g OperationGuard) -> Self {
        Self { key: SearchKey::new(key), operation, reached: None, absent: None }
    }

    /// Returns the leaf to which the key belongs, which the index does not contain.
    #[inline(always)]
    pub(crate) fn insertion_place(&self) -> InsertionPlace<'g> {
        self.absent.expect("the lookup has ended without an entry")
    }

    /// Continues the lookup; it pauses only if `PAUSES`.
    #[inline(always)]
    pub(crate) fn advance<const PAUSES: bool>(&mut self, index: &IndexTree) -> LookupProgress {
        #[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
        if super::shift::has_avx2() {
            #[target_feature(enable = "avx2")]
            fn advance<const PAUSES: bool>(
                lookup: &mut Lookup<'_, '_>,
                index: &IndexTree,
            ) -> LookupProgress {
                lookup.advance_with::<wide::Avx2, PAUSES>(index)
            }
            // SAFETY: the processor has this feature.
            return unsafe { advance::<PAUSES>(self, index) };
        }
        self.advance_with::<Scalar, PAUSES>(index)
    }

    #[inline(always)]
    fn advance_with<C: CountAtMost, const PAUSES: bool>(
        &mut self,
        index: &IndexTree,
    ) -> LookupProgress {
        loop {
            if let Ok(progress) = self.try_advance::<C, PAUSES>(index) {
                return progress;
            }
            self.reached = None;
        }
    }

    /// Takes each node's version only after the pause for its cache lines. No pause occurs between
    /// a version and its validation, so tasks of one worker on the same leaf do not restart each
    /// other. Across a pause only the parent's version must stay valid, and only splits and
    /// removals of nodes change it.
    #[inline(always)]
    fn try_advance<C: CountAtMost, const PAUSES: bool>(
        &mut self,
        index: &IndexTree,
    ) -> Result<LookupProgress, Restart> {
        // A copy, which can stay in registers.
        let key = &SearchKey { ..self.key };
        let ReachedNode { mut node, mut parent, mut is_prefetched } = match self.reached.take() {
            Some(reached) if PAUSES => reached,
            _ => {
                let node = index.unchecked_root(self.operation);
                ReachedNode { node, parent: None, is_prefetched: false }
            }
        };
        loop {
            if PAUSES && !is_prefetched && index.is_cold(node.level()) {
                let lines = node.group_lines(node.group::<C>(key.head));
                lines.into_iter().for_each(sched::prefetch);
                self.reached = Some(ReachedNode { node, parent, is_prefetched: true });
                return Ok(LookupProgress::Paused);
            }
            let version = node.latch.version()?;
            // The node keeps its range as long as the link to it has not changed.
            match parent {
                Some((parent, version)) => parent.latch.validate(version)?,
                None => index.check_root(node)?,
            }
            let group = node.group::<C>(key.head);
            if node.level() == 0 {
                let found = node.find::<C>(key, group).map(HeldKey::rid);
                node.latch.validate(version)?;
                return Ok(match found {
                    Ok(rid) => LookupProgress::Found(rid),
                    Err(place) => {
                        self.absent = Some(InsertionPlace { leaf: node, version, place });
                        LookupProgress::Absent
                    }
                });
            }
            let child = node.child(node.child_place::<C>(key, group), version)?;
            (node, parent, is_prefetched) = (child, Some((node, version)), false);
            if PAUSES && index.is_cold(child.level()) {
                sched::prefetch(child.reference().pointer());
                self.reached = Some(ReachedNode { node, parent, is_prefetched });
                return Ok(LookupProgress::Paused);
            }
        }
    }
}

impl IndexTree {
    /// Returns the record id of `key`, without a pause.
    #[cfg(test)]
    pub(crate) fn get(&self, key: &[u8], operation: &OperationGuard) -> Option<Rid> {
        self.find(key, operation).ok()
    }

    /// Returns the record id of `key`, without a pause. The id is not reused at least as long as
    /// the guard lasts. The error is the place where the key would be inserted.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &self,
        key: &[u8],
        operation: &'g OperationGuard,
    ) -> Result<Rid, InsertionPlace<'g>> {
        let SearchKey { head, tag, bytes } = SearchKey::new(key);
        #[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
        if super::shift::has_avx2() {
            // The parts of the key stay in registers.
            #[target_feature(enable = "avx2")]
            fn find<'g>(
                index: &IndexTree,
                (head, tag): (u64, u64),
                bytes: &[u8],
                operation: &'g OperationGuard,
            ) -> Result<Rid, InsertionPlace<'g>> {
                index.find_with::<wide::Avx2>(&SearchKey { head, tag, bytes }, operation)
            }
            // SAFETY: the processor has this feature.
            return unsafe { find(self, (head, tag), bytes, operation) };
        }
        self.find_with::<Scalar>(&SearchKey { head, tag, bytes }, operation)
    }

    #[inline(always)]
    fn find_with<'g, C: CountAtMost>(
        &self,
        key: &SearchKey<'_>,
        operation: &'g OperationGuard,
    ) -> Result<Rid, InsertionPlace<'g>> {
        loop {
            if let Ok(found) = self.try_find::<C>(key, operation) {
                return found;
            }
        }
    }

    /// Takes and validates versions in the order of [`Lookup::advance`].
    #[inline(always)]
    fn try_find<'g, C: CountAtMost>(
        &self,
        key: &SearchKey<'_>,
        operation: &'g OperationGuard,
    ) -> Result<Result<Rid, InsertionPlace<'g>>, Restart> {
        let mut node = self.unchecked_root(operation);
        let mut version = node.latch.version()?;
        self.check_root(node)?;
        while node.level() > 0 {
            let group = node.group::<C>(key.head);
            let child = node.child(node.child_place::<C>(key, group), version)?;
            let child_version = child.latch.version()?;
            // The child keeps its range as long as the link to it has not changed.
            node.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
        let found = node.find::<C>(key, node.group::<C>(key.head)).map(HeldKey::rid);
        node.latch.validate(version)?;
        Ok(found.map_err(|place| InsertionPlace { leaf: node, version, place }))
    }

    /// Inserts a key where a lookup under the same guard did not find it. Returns `false` if the
    /// leaf has changed since, or is full.
    #[inline]
    pub(crate) fn insert_at(&self, place: InsertionPlace<'_>, key: &[u8], rid: Rid) -> bool {
        let InsertionPlace { leaf, version, place } = place;
        let Ok(mut node) = leaf.acquire(version) else { return false };
        if node.count() == FANOUT {
            return false;
        }
        let key = &SearchKey::new(key);
        let word = self.leaf_word(key, rid);
        node.changed();
        node.insert_at(place, key.head, word.0, word);
        true
    }
}
