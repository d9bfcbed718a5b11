//! Latching of a leaf for a change, with room for a new or longer value.

use super::attached;
use super::descend::DescentTarget;
use super::leaf::{LatchedLeaf, LeafRoom};
use super::split::EntryToFit;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::{Interrupted, PageError};
use crate::page::frame::ResidentPage;

impl PageTree {
    /// Latches the leaf whose range contains `key`, with the room that the caller needs. May
    /// suspend before it has the latch, but never afterwards.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn latch(
        &self,
        key: &[u8],
        room: LeafRoom,
    ) -> Result<LatchedLeaf<'_>, PageError> {
        match self.latch_if_in_memory(key, room).await {
            Ok(latched) => Ok(latched),
            Err(why) => self.space.retry(self.needs(0), why, || self.try_latch(key, room)).await,
        }
    }

    /// Like `latch`, for resident pages only: it suspends for cache lines, and does not wait for
    /// pages.
    ///
    /// # Errors
    /// When a page is not available now; never `Restart`.
    pub(crate) async fn latch_if_in_memory(
        &self,
        key: &[u8],
        room: LeafRoom,
    ) -> Result<LatchedLeaf<'_>, Interrupted> {
        loop {
            let leaf = self.leaf(DescentTarget::Key(key)).await;
            let latched =
                leaf.and_then(|(_, leaf, version)| self.latch_leaf(leaf, version, key, room));
            match latched {
                Err(Interrupted::Restart) => start_again(),
                result => return result,
            }
        }
    }

    /// Like `latch_if_in_memory`, without suspending.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) fn try_latch(
        &self,
        key: &[u8],
        room: LeafRoom,
    ) -> Result<LatchedLeaf<'_>, Interrupted> {
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

    /// Latches a leaf if it has not changed. If it lacks room, makes room and returns `Restart`, so
    /// that the caller repeats the descent.
    fn latch_leaf<'t>(
        &'t self,
        leaf: ResidentPage<'t>,
        version: LatchVersion,
        key: &[u8],
        room: LeafRoom,
    ) -> Result<LatchedLeaf<'t>, Interrupted> {
        assert!(key.len() <= self.max_key_bytes());
        let latched = leaf.acquire(version)?;
        if room.is_on(latched.resident(), key) {
            return Ok(LatchedLeaf::new(self, latched));
        }
        // Changes that were undecided when the bytes were reserved may be decided by now.
        attached::reserve_for_undo(&latched);
        if room.is_on(latched.resident(), key) {
            return Ok(LatchedLeaf::new(self, latched));
        }
        drop(latched);
        self.make_room(key, 0, &EntryToFit::Slot(room))?;
        Err(Interrupted::Restart)
    }
}
