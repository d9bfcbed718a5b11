//! Lookup of a key: the most performance-critical path of the index.

use super::key::{HeldKey, SearchKey};
use super::node::HeldNode;
use super::tree::IndexTree;
use crate::latch::{LatchVersion, Restart};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;

impl IndexTree {
    /// Returns the record id of `key`. The id is not reused at least as long as the guard lasts.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], operation: &OperationGuard) -> Option<Rid> {
        let key = SearchKey::new(key);
        loop {
            if let Ok(found) = self.try_get(&key, operation).await {
                return found;
            }
        }
    }

    /// Takes each node's version only after the suspension for its cache lines. No suspension
    /// occurs between a version and its validation, so tasks of one worker on the same leaf do not
    /// restart each other. Across a suspension only the parent's version must stay valid, and only
    /// splits and removals of nodes change it.
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
            // The node keeps its range as long as the link to it has not changed.
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
