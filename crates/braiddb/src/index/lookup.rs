//! Looking a key up: the path that everything else is measured against.

use super::key::{HeldKey, SearchKey};
use super::node::HeldNode;
use super::tree::Index;
use crate::latch::{LatchVersion, Restart};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;

impl Index {
    /// The record id of `key`; it stays that record's at least as long as the guard lasts.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], operation: &OperationGuard) -> Option<Rid> {
        let key = SearchKey::new(key);
        loop {
            if let Ok(found) = self.try_get(&key, operation).await {
                return found;
            }
        }
    }

    /// Takes each node's version only after suspending for its lines: between the version and its
    /// validation nothing suspends, so that tasks of one worker that work on the same leaf do not
    /// make each other start again. What holds across the suspension is the parent's version, which
    /// only splits and removals of nodes change.
    #[inline]
    async fn try_get(
        &self,
        key: &SearchKey<'_>,
        operation: &OperationGuard,
    ) -> Result<Option<Rid>, Restart> {
        let (mut node, _) = self.root(operation)?;
        let mut parent: Option<(HeldNode<'_>, LatchVersion)> = None;
        loop {
            if self.is_cold(node.level()) {
                let lines = node.group_lines(node.group(key.head));
                lines.into_iter().for_each(sched::prefetch);
                sched::suspend_memory().await;
            }
            let version = node.latch.version()?;
            // The node has its range for as long as the link to it has not changed.
            match parent {
                Some((parent, version)) => parent.latch.validate(version)?,
                None => self.check_root(node)?,
            }
            let group = node.group(key.head);
            if node.level() == 0 {
                let found = node.find(key, group);
                node.latch.validate(version)?;
                return Ok(found.map(HeldKey::rid));
            }
            let child = node.child(node.child_place(key, group), version)?;
            if self.is_cold(child.level()) {
                sched::touch(child.reference().pointer()).await;
            }
            (node, parent) = (child, Some((node, version)));
        }
    }
}
