//! Latching a leaf to change it.

use super::attached;
use super::descend::Target;
use super::leaf::{LatchedLeaf, Room};
use super::split::Wanted;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::{Interrupted, PageError};
use crate::page::frame::ResidentPage;

impl PageTree {
    /// Latches the leaf in whose range `key` is, with room for what the caller is about to need. May
    /// suspend before, never after it has the latch.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) async fn latch(&self, key: &[u8], room: Room) -> Result<LatchedLeaf<'_>, PageError> {
        match self.latch_if_in_memory(key, room).await {
            Ok(latched) => Ok(latched),
            Err(why) => self.space.retry(self.needs(0), why, || self.try_latch(key, room)).await,
        }
    }

    /// The same, as far as all of it is in memory: it suspends for cache lines, and waits for no page.
    ///
    /// # Errors
    /// When a page cannot be had now; never `Restart`.
    pub(crate) async fn latch_if_in_memory(
        &self,
        key: &[u8],
        room: Room,
    ) -> Result<LatchedLeaf<'_>, Interrupted> {
        loop {
            let leaf = self.leaf(Target::Key(key)).await;
            let latched =
                leaf.and_then(|(_, leaf, version)| self.latch_leaf(leaf, version, key, room));
            match latched {
                Err(Interrupted::Restart) => start_again(),
                result => return result,
            }
        }
    }

    /// The same without suspensions.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) fn try_latch(&self, key: &[u8], room: Room) -> Result<LatchedLeaf<'_>, Interrupted> {
        loop {
            let path = self.path(key, 0);
            let latched = path.and_then(|path| {
                let leaf = path.last().expect("a path ends in a leaf");
                self.latch_leaf(leaf.page, leaf.version, key, room)
            });
            match latched {
                Err(Interrupted::Restart) => start_again(),
                result => return result,
            }
        }
    }

    /// Latches a leaf if it has not changed; without room on it, makes some and says that the caller is
    /// to start again.
    fn latch_leaf<'t>(
        &'t self,
        leaf: ResidentPage<'t>,
        version: LatchVersion,
        key: &[u8],
        room: Room,
    ) -> Result<LatchedLeaf<'t>, Interrupted> {
        assert!(key.len() <= self.max_key_bytes());
        let latched = leaf.acquire(version)?;
        if room.is_on(latched.resident(), key) {
            return Ok(LatchedLeaf::new(self, latched));
        }
        // What was undecided when the room was reserved may be decided by now.
        attached::reserve_for_undo(&latched);
        if room.is_on(latched.resident(), key) {
            return Ok(LatchedLeaf::new(self, latched));
        }
        drop(latched);
        self.make_room(key, 0, &Wanted::Slot(room))?;
        Err(Interrupted::Restart)
    }
}
