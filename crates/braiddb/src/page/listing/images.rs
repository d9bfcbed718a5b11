//! Reading of listed images, for tests and models.

use std::cell::RefCell;
use std::rc::Rc;

use super::ListedLeaf;
use crate::page::layout::{Page, PageCopy};
use crate::page::space::PageSpace;

/// Calls `look` with the image of each listed leaf, after checking its page number and range.
pub(super) fn each_image(
    space: &PageSpace,
    leaves: &[ListedLeaf],
    mut look: impl FnMut(Page<'_, std::cell::Cell<u64>>),
) {
    let zones = space.zones.as_ref().expect("zones exist");
    for (number, leaf) in leaves.iter().enumerate() {
        let image = Rc::new(RefCell::new(None));
        let read = image.clone();
        zones.read_then(leaf.place, move |bytes| *read.borrow_mut() = Some(bytes.unwrap()));
        let image = image.borrow_mut().take().expect("the read has completed");
        let copy = PageCopy::zeros(space.page_bytes());
        let page = copy.page();
        page.read_image(&image[..space.page_bytes()], leaf.page.number()).unwrap();
        let high = leaves.get(number + 1).map(|next| next.low.clone());
        assert_eq!((page.low_fence(), page.high_fence()), (leaf.low.clone(), high));
        assert_eq!(page.stored(), leaf.stored);
        look(page);
    }
}
