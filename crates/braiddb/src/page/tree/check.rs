//! Consistency check of a whole tree, for tests. No other thread may change the tree during the
//! check.

use super::PageTree;
use crate::page::layout::KeyBytes;
use crate::page::map::PageId;

impl PageTree {
    /// Panics if the tree violates an invariant. The tree must not change during the call.
    pub(super) fn check_all(&self) {
        let mut pages = Vec::new();
        self.check_page(self.root, None, &KeyBytes::new(), None, &mut pages);
        assert_eq!(pages, self.pages_by_level(), "pages are counted");
    }

    /// Checks a page and all pages below it. `level`, `low` and `high` come from the page above.
    fn check_page(
        &self,
        id: PageId,
        level: Option<u8>,
        low: &[u8],
        high: Option<&[u8]>,
        pages: &mut Vec<u64>,
    ) {
        let resident = self.space.resident(id).expect("a linked page is resident");
        let version = resident.version(id).expect("the frame holds the page");
        let page = resident.page;
        page.check();
        assert_eq!((page.number(), page.table()), (id.number(), self.table));
        assert_eq!(resident.shape(), page.shape(), "the frame has a copy of the shape");
        assert_eq!(page.low_fence().as_slice(), low, "the separator is the low fence");
        assert_eq!(page.high_fence().as_deref(), high, "the next separator is the high fence");
        assert!(level.is_none_or(|level| level == page.level()), "leaves are equally deep");
        let level = page.level();
        pages.resize(pages.len().max(usize::from(level) + 1), 0);
        pages[usize::from(level)] += 1;
        if level > 0 {
            let count = page.count();
            assert!(count > 0, "an inner page has children");
            for place in 0..count {
                let low = if place == 0 { KeyBytes::from_slice(low) } else { page.key(place) };
                let next = (place + 1 < count).then(|| page.key(place + 1));
                let child = PageId::new(page.child(place));
                self.check_page(child, Some(level - 1), &low, next.as_deref().or(high), pages);
            }
        }
        resident.validate(version).expect("no thread changes the tree");
    }
}
