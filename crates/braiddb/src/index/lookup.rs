//! Looking a key up: the path that everything else is measured against.

use super::key::SearchKey;
use super::latch::Restart;
use super::tree::Index;
use crate::rid::Rid;
use crate::sched;

impl Index {
    /// The record id of `key`.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8]) -> Option<Rid> {
        let key = SearchKey::new(key);
        loop {
            if let Ok(found) = self.try_get(&key).await {
                return found;
            }
        }
    }

    #[inline]
    async fn try_get(&self, key: &SearchKey<'_>) -> Result<Option<Rid>, Restart> {
        let (mut node, mut version) = self.root()?;
        loop {
            // SAFETY: linked when it was loaded from a node that was validated afterwards, under
            // the caller's guard.
            let here = unsafe { node.get() };
            let group = here.group(key.head);
            if self.is_cold(node.level()) {
                here.group_lines(group).into_iter().for_each(sched::prefetch);
                sched::suspend_memory().await;
            }
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
            // SAFETY: as above: the link was validated.
            let child_version = unsafe { child.get() }.latch.version()?;
            // The child has its range for as long as the link has not changed.
            here.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
    }
}
