//! Lookup of a key: the most performance-critical path of the index.
//!
//! A lookup is a plain function that pauses where cache lines are probably missing and the worker
//! has other tasks. The caller then suspends, and resumes it at the node that it has reached.

use super::key::{HeldKey, SearchKey};
use super::node::{FANOUT, HeldNode};
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
use super::search::wide;
use super::search::{Baseline, CountAtMost};
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
    stage: IndexLookupStage<'g>,
}

/// Where a lookup has paused or ended.
#[derive(Clone, Copy, Debug)]
enum IndexLookupStage<'g> {
    /// At the root.
    Start,
    /// At a node.
    Reached(ReachedNode<'g>),
    /// At an entry of a leaf that is probably the key's; its cell was prefetched.
    Probable(HeldKey<'g>),
    /// The index does not contain the key.
    Absent(InsertionPlace<'g>),
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
        Self { key: SearchKey::new(key), operation, stage: IndexLookupStage::Start }
    }

    /// Returns the leaf to which the key belongs, which the index does not contain.
    #[inline(always)]
    pub(crate) fn insertion_place(&self) -> InsertionPlace<'g> {
        match self.stage {
            IndexLookupStage::Absent(place) => place,
            _ => unreachable!("the lookup has ended without an entry"),
        }
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
        self.advance_with::<Baseline, PAUSES>(index)
    }

    #[inline(always)]
    fn advance_with<C: CountAtMost, const PAUSES: bool>(
        &mut self,
        index: &IndexTree,
    ) -> LookupProgress {
        if PAUSES && let IndexLookupStage::Probable(probable) = self.stage {
            return self.confirm::<C>(probable, index);
        }
        loop {
            if let Ok(progress) = self.try_advance::<C, PAUSES>(index) {
                return progress;
            }
            self.stage = IndexLookupStage::Start;
        }
    }

    /// Ends a lookup that has found an entry with the key's head and fingerprint. Since it was found
    /// it may have been removed, as may every record between its lookup and its use.
    #[inline(never)]
    fn confirm<C: CountAtMost>(
        &mut self,
        probable: HeldKey<'g>,
        index: &IndexTree,
    ) -> LookupProgress {
        if probable.has_bytes(self.key.bytes) {
            return LookupProgress::Found(probable.rid());
        }
        match index.find_with::<C>(&self.key, self.operation) {
            Ok(rid) => LookupProgress::Found(rid),
            Err(place) => {
                self.stage = IndexLookupStage::Absent(place);
                LookupProgress::Absent
            }
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
        let ReachedNode { mut node, mut parent, mut is_prefetched } = match self.stage {
            IndexLookupStage::Reached(reached) if PAUSES => reached,
            _ => {
                let node = index.unchecked_root(self.operation);
                ReachedNode { node, parent: None, is_prefetched: false }
            }
        };
        loop {
            if PAUSES && !is_prefetched && index.is_cold(node.level()) {
                let lines = node.group_lines(node.group::<C>(node.relative_head(key)));
                lines.into_iter().for_each(sched::prefetch);
                if node.has_prefix() && !node.has_prefix_of_range() {
                    sched::prefetch(&raw const node.prefix);
                }
                let reached = ReachedNode { node, parent, is_prefetched: true };
                self.stage = IndexLookupStage::Reached(reached);
                return Ok(LookupProgress::Paused);
            }
            let version = node.latch.version()?;
            // The node keeps its range as long as the link to it has not changed.
            match parent {
                Some((parent, version)) => parent.latch.validate(version)?,
                None => index.check_root(node)?,
            }
            if node.level() == 0 {
                if PAUSES
                    && index.is_cold(0)
                    && let Some(probable) = node.probable_cell::<C>(key)
                {
                    node.latch.validate(version)?;
                    probable.prefetch(key.bytes.len());
                    self.stage = IndexLookupStage::Probable(probable);
                    return Ok(LookupProgress::Paused);
                }
                let found = node.find::<C>(key);
                node.latch.validate(version)?;
                return Ok(match found {
                    Ok(rid) => LookupProgress::Found(rid),
                    Err(place) => {
                        let place = InsertionPlace { leaf: node, version, place };
                        self.stage = IndexLookupStage::Absent(place);
                        LookupProgress::Absent
                    }
                });
            }
            let child = node.child(node.child_place::<C>(key), version)?;
            (node, parent, is_prefetched) = (child, Some((node, version)), false);
            if PAUSES && index.is_cold(child.level()) {
                sched::prefetch(child.reference().pointer());
                self.stage = IndexLookupStage::Reached(ReachedNode { node, parent, is_prefetched });
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
        self.find_with::<Baseline>(&SearchKey { head, tag, bytes }, operation)
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
            let child = node.child(node.child_place::<C>(key), version)?;
            let child_version = child.latch.version()?;
            // The child keeps its range as long as the link to it has not changed.
            node.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
        let found = node.find::<C>(key);
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
        node.changed();
        self.insert_entry(&node, place, &SearchKey::new(key), rid);
        true
    }
}
