//! Leaf walk: lists the leaves of a tree in key order.
//!
//! If the image of a leaf is current and settled, the walk lists its place without reading the
//! leaf. The parent page defines the range of keys. For any other leaf the walk writes an image. If
//! the leaf is settled, that image becomes the leaf's newest image, as in a write-back. Otherwise
//! only the checkpoint uses it.
//!
//! The walk ensures in three steps that a listed place has the correct image:
//!
//! 1. It marks the place as listed by the next checkpoint.
//! 2. It checks that the map or the leaf's frame still has this place.
//! 3. It validates that the parent page has not changed.
//!
//! So at step 2 the place had the complete image and the leaf had that range. From step 1 on, no
//! write reuses the place.
//!
//! A walk ends although writers append keys faster than it lists them. Keys that were inserted
//! after the checkpoint began are replayed from the log, so the walk need not list them. It ends at
//! a key that was above all keys at some time after the checkpoint began (`end`).

use std::cell::Cell;
use std::sync::Arc;

use super::committed::CommittedLeaf;
use super::image_writes::ImageWrites;
use super::{ListedLeaf, Listing};
use crate::latch::{LatchVersion, Restart};
use crate::page::error::{Interrupted, PageError};
use crate::page::large::LargeValues;
use crate::page::layout::{
    KeyBytes, KeySlot, KeySuffix, Page, PageCopy, PageFormat, PageWord, StoredOnPage,
};
use crate::page::map::{DiskPlace, PageId, PageLocation};
use crate::page::resident_set::HeldPages;
use crate::page::space::PageSpace;
use crate::page::table::PagedTable;
use crate::page::tree::{LatchedLeaf, LeafRoom, PageTree, start_again};
use crate::page::value::LargeRef;
use crate::page::zone::RUN_SLOTS;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::sched::{self, WaitCause};
use crate::version::{Undecided, View};

/// Maximum number of leaves that are listed without suspending.
const MAX_CONCURRENT: usize = if cfg!(any(test, braid_simulation)) { RUN_SLOTS } else { 256 };
/// Maximum number of leaves that are latched without suspending. An undecided bulk operation may
/// leave many leaves with no committed record, so the number of listed leaves does not bound the
/// work.
const MAX_LATCHED: usize = RUN_SLOTS;
/// Number of leaves by which a tree may grow during a walk before the walk gets an end.
const MAX_ADDED_LEAVES: u64 = if cfg!(any(test, braid_simulation)) { 1 } else { 64 };

/// A walk over the leaves of a tree.
#[derive(Debug)]
pub(crate) struct LeafWalk<'t> {
    tree: &'t PageTree,
    /// Table of the records; `None` for pieces of large values, which have no versions.
    table: Option<&'t PagedTable>,
    /// Lowest key that is not listed yet; `None` at the end.
    next: Option<KeyBytes>,
    /// Keys from here on were inserted after the checkpoint began, and are not listed.
    end: Option<KeyBytes>,
    /// Number of leaves to pass before `end` is set, if it was not set at the start.
    before_end: u64,
    /// Large values whose pieces are listed. Unless it has unlisted values, no key is above `end`.
    large: Option<&'t LargeValues>,
    /// The leaves from this key to `next` have no committed records; one image is written for all
    /// of them.
    nothing_from: Option<KeyBytes>,
    images: ImageWrites,
    /// Maximum number of image writes in flight.
    max_writes: usize,
    /// Large values that the written images omit.
    left_out: Vec<LargeRef>,
}

impl PagedTable {
    /// Returns a walk over the leaves of the table.
    pub(crate) fn walk_leaves(&self) -> LeafWalk<'_> {
        LeafWalk::new(self.tree(), Some(self))
    }

    /// Returns the last key, which may belong to a deleted record; `None` in an empty tree.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn last_key(&self) -> Result<Option<KeyBytes>, PageError> {
        self.tree().last_key().await
    }
}

impl LargeValues {
    /// Returns a walk over the leaves with pieces of large values that were named before
    /// [`LargeValues::begin_listing`].
    pub(crate) fn walk_leaves(&self) -> LeafWalk<'_> {
        let (end, large) = (self.end_of_listed(), Some(self));
        LeafWalk { end, large, ..LeafWalk::new(self.tree(), None) }
    }
}

impl<'t> LeafWalk<'t> {
    pub(super) fn new(tree: &'t PageTree, table: Option<&'t PagedTable>) -> Self {
        let (end, large, nothing_from, images, left_out) = Default::default();
        let before_end = tree.pages_by_level()[0] + MAX_ADDED_LEAVES;
        let (next, max_writes) = (Some(KeyBytes::new()), 1);
        Self {
            tree,
            table,
            next,
            end,
            before_end,
            large,
            nothing_from,
            images,
            max_writes,
            left_out,
        }
    }

    fn space(&self) -> &'t Arc<PageSpace> {
        self.tree.space()
    }

    /// Lists some of the next leaves, and begins to write their images. At the end of the walk all
    /// images are written. Lists none if the examined leaves
    /// have no committed records. Returns `false` at the end. `view` belongs to a transaction that
    /// began after the checkpoint.
    ///
    /// # Errors
    /// When a page is not available or cannot be written.
    pub(crate) async fn list_some(
        &mut self,
        listing: &mut Listing,
        view: View<'_>,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<bool, PageError> {
        if self.end.is_none() && self.before_end == 0 {
            self.end = Some(self.key_above_all().await?);
            self.continue_at(self.next.clone());
        }
        let mut needs = self.tree.needs(0);
        let (mut held, mut latched) = (None::<HeldPages>, 0);
        while self.should_continue(latched, out) {
            let listed = self.list_span(listing, view, &mut latched, out);
            drop(held.take());
            match listed {
                Ok(()) => {}
                Err(WalkStop::Undecided) => sched::yield_now(WaitCause::Undecided).await,
                Err(WalkStop::Failed(error)) => return Err(error),
                Err(WalkStop::Interrupted(why)) => {
                    let key = self.next.as_deref().unwrap_or_default();
                    // Leaves with settled images are listed without being loaded.
                    let is_unsettled = |id| {
                        let whereabouts = self.space().map.get(id);
                        matches!(whereabouts, PageLocation::OnDisk(place) if !place.is_settled())
                    };
                    let there = self.tree.hold_pages_ahead(&mut needs, key, why, is_unsettled);
                    held = Some(there.await?);
                }
            }
        }
        drop(held);
        if self.next.is_none() {
            self.end_nothing(None, listing, out)?;
        }
        self.images.begin(listing, out, self.max_writes).await?;
        let left = if self.next.is_some() { self.max_writes - 1 } else { 0 };
        self.images.finish(self.space(), left).await?;
        Ok(self.next.is_some())
    }

    /// Waits until the places of images that are still being written are free again, after an error.
    pub(crate) async fn give_up(&mut self) {
        self.images.give_up().await;
    }

    /// Lets this number of image writes be in flight at the same time.
    pub(crate) fn allow_writes(&mut self, max_writes: usize) {
        self.max_writes = max_writes;
    }

    /// Returns a key above all keys of the tree.
    async fn key_above_all(&self) -> Result<KeyBytes, PageError> {
        let mut key = self.tree.last_key().await?.unwrap_or_default();
        if !is_planted(Bug::ListingEndsEarly) {
            key.push(0);
        }
        Ok(key)
    }

    /// Passes the leaves below `next`.
    fn continue_at(&mut self, next: Option<KeyBytes>) {
        self.before_end = self.before_end.saturating_sub(1);
        let is_listed = |next: &KeyBytes| self.end.as_ref().is_none_or(|end| next < end);
        match next {
            Some(next) if !is_listed(&next) => {
                self.nothing_from.get_or_insert(next);
                self.next = None;
            }
            next => self.next = next,
        }
    }

    /// Returns whether a leaf whose range ends at `high` may have keys that are not listed.
    fn may_pass_end(&self, high: Option<&KeyBytes>) -> bool {
        self.end.as_ref().is_some_and(|end| high.is_none_or(|high| high > end))
            && self.large.is_none_or(LargeValues::has_unlisted)
    }

    /// Returns the large values that images omit, and resets the list.
    pub(crate) fn take_left_out(&mut self) -> Vec<LargeRef> {
        std::mem::take(&mut self.left_out)
    }

    /// Lists leaves without suspending, until a limit is reached. Counts the leaves that it latches
    /// in `latched`.
    fn list_span(
        &mut self,
        listing: &mut Listing,
        view: View<'_>,
        latched: &mut usize,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), WalkStop> {
        while self.should_continue(*latched, out) {
            match self.list_settled(listing, out) {
                Ok(()) => {}
                Err(WalkStop::Interrupted(Interrupted::Restart)) => {
                    start_again();
                    continue;
                }
                Err(why) => return Err(why),
            }
            if self.should_continue(*latched, out) {
                self.list_latched(listing, view, out)?;
                *latched += 1;
            }
        }
        Ok(())
    }

    /// Returns whether more leaves follow, and the limits allow listing another one.
    fn should_continue(&self, latched: usize, out: &[ListedLeaf]) -> bool {
        self.next.is_some()
            && out.len() < MAX_CONCURRENT
            && self.images.pending() < RUN_SLOTS
            && latched < MAX_LATCHED
    }

    /// Lists the places of leaves below one parent, up to the first leaf that needs a new image.
    fn list_settled(
        &mut self,
        listing: &mut Listing,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), WalkStop> {
        let Some(next) = self.next.clone() else { return Ok(()) };
        let above = self.tree.above_leaf(&next)?;
        let Some((above, version)) = above else { return Ok(()) };
        let (page, shape) = (above.page, above.shape());
        let first = page.child_place(shape, &KeySuffix::new(&next, shape.prefix_bytes));
        for place in first..shape.count {
            if out.len() >= MAX_CONCURRENT {
                break;
            }
            let low = if place == 0 { page.low_fence() } else { page.key(place) };
            let high = match place + 1 < shape.count {
                true => Some(page.key(place + 1)),
                false => page.high_fence(),
            };
            let id = PageId::new(page.child(place));
            above.validate(version)?;
            let may_pass_end = || self.may_pass_end(high.as_ref());
            if self.next.as_ref() != Some(&low) || listing.has(id) || may_pass_end() {
                break;
            }
            // An image that became complete in the meantime may have pieces of a new value.
            let validate = || match may_pass_end() {
                true => Err(Restart),
                false => above.validate(version),
            };
            let Some((place, stored)) = self.keep_settled(id, listing, validate)? else {
                break;
            };
            self.list(ListedLeaf { low, page: id, place, stored }, listing, out)?;
            self.continue_at(high);
        }
        Ok(())
    }

    /// Returns the place of a leaf if its image is current and settled, and marks the place as
    /// listed by the next checkpoint. `validate` checks that the leaf is still the intended one.
    fn keep_settled(
        &self,
        id: PageId,
        listing: &Listing,
        validate: impl Fn() -> Result<(), Restart>,
    ) -> Result<Option<(DiskPlace, StoredOnPage)>, Restart> {
        let (space, zones) = (self.space(), listing.zones());
        let kept = match space.map.get(id) {
            PageLocation::OnDisk(place) if place.is_settled() => {
                zones.list(place.slot, true);
                let is_there = || space.map.get(id) == PageLocation::OnDisk(place);
                let stored = is_there().then(|| space.map.stored(id));
                let is_it = stored.is_some() && is_there() && validate().is_ok();
                if !is_it {
                    zones.list(place.slot, false);
                    return Err(Restart);
                }
                stored.map(|stored| (place, stored))
            }
            PageLocation::Frame(number) => {
                let frame = space.frame(number);
                // The page is not changed: the latch only excludes writers.
                let latched = frame.acquire(frame.version(id)?)?;
                let place = latched.place().filter(|place| place.is_settled());
                let Some(place) = place.filter(|_| !latched.frame.is_dirty()) else {
                    return Ok(None);
                };
                zones.list(place.slot, true);
                if validate().is_err() {
                    zones.list(place.slot, false);
                    return Err(Restart);
                }
                Some((place, space.map.stored(id)))
            }
            PageLocation::Free => return Err(Restart),
            PageLocation::OnDisk(_) | PageLocation::Loading => None,
        };
        Ok(kept)
    }

    /// Lists the next leaf with a new image.
    fn list_latched(
        &mut self,
        listing: &mut Listing,
        view: View<'_>,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), WalkStop> {
        let Some(low) = self.next.clone() else { return Ok(()) };
        let operation = self.table.map(|_| reclaim::enter());
        let mut leaf = self.tree.try_latch(&low, LeafRoom::NONE)?;
        if let Some(table) = self.table {
            table.remove_settled_changes(&mut leaf, view.status);
        }
        let (page, high) = (leaf.page(), leaf.high_fence());
        let (id, begins_here) = (page.id(), page.page.low_fence() == low);
        let passed_end = self.end.as_ref().filter(|end| match &high {
            Some(high) => high > end,
            None => first_from(page.page, end) < page.page.count(),
        });
        if page.may_be_listed() && begins_here && !listing.has(id) && passed_end.is_none() {
            if let Some(place) = page.place().filter(|place| place.is_settled())
                && !page.frame.is_dirty()
            {
                listing.zones().list(place.slot, true);
                let stored = self.space().map.stored(id);
                self.list(ListedLeaf { low, page: id, place, stored }, listing, out)?;
            } else {
                let from = Some((page.number, page.version_after()));
                self.add_image(page.page, id, low, from, listing, out)?;
            }
        } else {
            let committed = match self.table.zip(operation.as_ref()) {
                Some((table, operation)) => table.committed_copy(&leaf, view, operation)?,
                None => CommittedLeaf { page: page.page.copy(), left_out: Vec::new() },
            };
            let copy = committed.page.page();
            self.left_out.extend(committed.left_out);
            // Only the checkpoint uses the new image. Without this, the page would keep two places.
            if let Some(outdated) = page.take_outdated() {
                listing.zones().free(outdated.slot);
            }
            if let Some(end) = passed_end {
                (first_from(copy, end)..copy.count()).rev().for_each(|place| copy.remove(place));
                self.add_part(&leaf, copy, &low, None, listing, out)?;
                self.next = None;
                return Ok(());
            }
            self.add_part(&leaf, copy, &low, high.as_deref(), listing, out)?;
        }
        self.continue_at(high);
        Ok(())
    }

    /// Adds an image of the records of a leaf's copy from `low` upwards. Adds several images if
    /// they do not fit on one, because `low` may be a longer fence than the leaf's own.
    fn add_part(
        &mut self,
        leaf: &LatchedLeaf<'_>,
        copy: Page<'_, Cell<u64>>,
        low: &[u8],
        high: Option<&[u8]>,
        listing: &mut Listing,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), WalkStop> {
        let first = first_from(copy, low);
        if first == copy.count() {
            self.nothing_from.get_or_insert_with(|| KeyBytes::from_slice(low));
            return Ok(());
        }
        let own = (!listing.has(leaf.page_id())).then(|| leaf.page_id());
        let (mut from, mut low) = (first, KeyBytes::from_slice(low));
        let mut id = own;
        while from < copy.count() {
            let mut to = copy.count();
            let mut end = high.map(KeyBytes::from_slice);
            while !copy.fits_between(from..to, &low, end.as_deref()) {
                to -= 1;
                assert!(to > from, "a page has room for one entry of any size");
                end = Some(copy.separator_before(to));
            }
            let page = match id.take() {
                Some(id) => id,
                None => listing.make_up_id()?,
            };
            let part = PageCopy::zeros(copy.bytes());
            let format = copy.part(page.number(), &low, end.as_deref());
            part.page().become_part(copy, from..to, &format);
            self.add_image(part.page(), page, low, None, listing, out)?;
            (from, low) = (to, end.unwrap_or_default());
        }
        Ok(())
    }

    /// Adds an image of a page.
    fn add_image<W: PageWord>(
        &mut self,
        page: Page<'_, W>,
        id: PageId,
        low: KeyBytes,
        from: Option<(u32, LatchVersion)>,
        listing: &mut Listing,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), PageError> {
        self.end_nothing(Some(&low), listing, out)?;
        let (checksum, stored) = (self.images.push(page, out.len(), from), page.stored());
        // The write sets the final slot.
        let place = DiskPlace::new(0, checksum, true);
        self.list(ListedLeaf { low, page: id, place, stored }, listing, out)
    }

    /// Ends the current range of leaves without committed records, if one exists, at the key where
    /// the next leaf begins.
    fn end_nothing(
        &mut self,
        high: Option<&KeyBytes>,
        listing: &mut Listing,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), PageError> {
        let Some(low) = self.nothing_from.take() else { return Ok(()) };
        let id = listing.make_up_id()?;
        let page = PageCopy::zeros(listing.page_bytes());
        let high = high.map(|high| &high[..]);
        let (page, number, table) = (page.page(), id.number(), self.tree.table());
        page.format(&PageFormat { level: 0, page: number, table, low: &low, high });
        self.add_image(page, id, low, None, listing, out)
    }

    fn list(
        &mut self,
        leaf: ListedLeaf,
        listing: &mut Listing,
        out: &mut Vec<ListedLeaf>,
    ) -> Result<(), PageError> {
        self.end_nothing(Some(&leaf.low), listing, out)?;
        listing.add(leaf.page);
        out.push(leaf);
        Ok(())
    }
}

/// Returns the place of the first entry of a leaf from a key on, which is in the leaf's range.
fn first_from<W: PageWord>(page: Page<'_, W>, key: &[u8]) -> usize {
    match page.find(key) {
        KeySlot::At(place) | KeySlot::Before(place) => place,
    }
}

/// Reason why listing without suspending stopped early.
#[derive(Debug)]
enum WalkStop {
    Interrupted(Interrupted),
    /// Another worker decides the outcome of a change.
    Undecided,
    Failed(PageError),
}

impl From<Interrupted> for WalkStop {
    fn from(why: Interrupted) -> Self {
        Self::Interrupted(why)
    }
}

impl From<Restart> for WalkStop {
    fn from(Restart: Restart) -> Self {
        Self::Interrupted(Interrupted::Restart)
    }
}

impl From<Undecided> for WalkStop {
    fn from(Undecided: Undecided) -> Self {
        Self::Undecided
    }
}

impl From<PageError> for WalkStop {
    fn from(error: PageError) -> Self {
        Self::Failed(error)
    }
}
