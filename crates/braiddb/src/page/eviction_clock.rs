//! State of the clock algorithm by which `evict` selects pages.

use super::map::PageId;

/// State of the clock algorithm.
#[derive(Debug, Default)]
pub(super) struct EvictionClock {
    /// Clock hand: number of frames with memory that it has not passed in this round.
    pub(super) hand: usize,
    /// Frames of dirty pages that the hand has passed, to be written together.
    pub(super) dirty: Vec<u32>,
    /// Frames passed since the last eviction or the last end of a write, and the number of ended
    /// writes at that time.
    pub(super) in_vain: u64,
    pub(super) writes_ended: u64,
    /// Pages that must stay resident, with one entry for each holder.
    pub(super) held: Vec<PageId>,
}

impl EvictionClock {
    pub(super) fn hold(&mut self, pages: &[PageId]) {
        self.held.extend(pages);
    }

    pub(super) fn release(&mut self, pages: &[PageId]) {
        for page in pages {
            let position = self.held.iter().position(|held| held == page);
            self.held.swap_remove(position.expect("held until now"));
        }
    }

    pub(super) fn holds(&self, page: PageId) -> bool {
        self.held.contains(&page)
    }
}
