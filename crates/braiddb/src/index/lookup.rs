//! Looking a key up: the path that everything else is measured against.

use super::key::SearchKey;
use super::latch::{NodeVersion, Restart};
use super::node::Node;
use super::tree::Index;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;

impl Index {
    /// The record id of `key`; it stays that record's at least as long as the guard lasts.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], _operation: &OperationGuard) -> Option<Rid> {
        let key = SearchKey::new(key);
        loop {
            if let Ok(found) = self.try_get(&key).await {
                return found;
            }
        }
    }

    /// Takes each node's version only after suspending for its lines: between the version and its
    /// validation nothing suspends, so that tasks of one worker that work on the same leaf do not
    /// make each other start again. What holds across the suspension is the parent's version, which
    /// only splits and removals of nodes change.
    #[inline]
    async fn try_get(&self, key: &SearchKey<'_>) -> Result<Option<Rid>, Restart> {
        let (mut node, _) = self.root()?;
        let mut parent: Option<(&Node, NodeVersion)> = None;
        loop {
            // SAFETY: linked when it was loaded from a node that was validated afterwards, under
            // the caller's guard.
            let here = unsafe { node.get() };
            if self.is_cold(node.level()) {
                let lines = here.group_lines(here.group(key.head));
                lines.into_iter().for_each(sched::prefetch);
                sched::suspend_memory().await;
            }
            let version = here.latch.version()?;
            // The node has its range for as long as the link to it has not changed.
            match parent {
                Some((parent, version)) => parent.latch.validate(version)?,
                None => self.check_root(node)?,
            }
            let group = here.group(key.head);
            if node.level() == 0 {
                // SAFETY: as above; what it finds is used only once validated.
                let word = unsafe { node.find(key, group) };
                here.latch.validate(version)?;
                // SAFETY: as above.
                return Ok(word.map(|word| unsafe { word.rid() }));
            }
            // SAFETY: as above.
            let place = unsafe { node.child_place(key, group) };
            let child = here.child(place);
            here.latch.validate(version)?;
            if self.is_cold(child.level()) {
                sched::touch(child.pointer()).await;
            }
            (node, parent) = (child, Some((here, version)));
        }
    }
}
