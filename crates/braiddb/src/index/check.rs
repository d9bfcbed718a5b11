//! Checking a whole tree against its invariants, for tests that have it to themselves.

use std::cmp::Ordering as Order;

use super::insert::with_bytes;
use super::key::SearchKey;
use super::node::NodeRef;
use super::tree::Index;
use crate::sync::atomic::Ordering;

/// The range of a node's keys: from the first, up to and without the second; `None` is no bound.
type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

impl Index {
    /// Panics if the tree is not in order. Nobody changes it meanwhile.
    pub(super) fn check(&self) {
        // Relaxed: nobody changes it.
        let root = NodeRef(self.root.load(Ordering::Relaxed));
        let mut nodes = vec![0; root.level() as usize + 1];
        check_node(root, &(None, None), &mut nodes);
        assert_eq!(nodes, self.nodes_by_level(), "nodes are counted");
    }
}

fn key_of(node: NodeRef, place: usize) -> Vec<u8> {
    // SAFETY: nobody changes the tree, so what is linked is alive.
    unsafe { with_bytes(node.get().head(place), node.key_word(place), <[u8]>::to_vec) }
}

fn check_node(node: NodeRef, (low, high): &Range, nodes: &mut [u64]) {
    nodes[node.level() as usize] += 1;
    // SAFETY: nobody changes the tree, so what is linked is alive.
    let here = unsafe { node.get() };
    let count = here.count();
    assert!(here.latch.version().is_ok(), "what is linked is not obsolete");
    let first = usize::from(node.level() > 0);
    assert!(count >= first, "an inner node has children");
    let keys: Vec<_> = (first..count).map(|place| key_of(node, place)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "entries are sorted and distinct");
    assert!(low.as_ref().is_none_or(|low| keys.first().is_none_or(|key| key >= low)));
    assert!(high.as_ref().is_none_or(|high| keys.last().is_none_or(|key| key < high)));
    for (place, key) in (first..).zip(&keys) {
        let search = SearchKey::new(key);
        // SAFETY: as above.
        let order = unsafe { search.compare(here.head(place), node.key_word(place)) };
        assert_eq!(order, Order::Equal, "a head and a word tell the key");
        // SAFETY: as above.
        assert_eq!(unsafe { node.lower_bound(&search) }, (place, true), "a search finds it");
    }
    if node.level() == 0 {
        return;
    }
    let bound = |place: usize| place.checked_sub(1).and_then(|place| keys.get(place)).cloned();
    for place in 0..count {
        let child = here.child(place);
        assert_eq!(child.level(), node.level() - 1, "leaves are equally deep");
        let range =
            (bound(place).or_else(|| low.clone()), bound(place + 1).or_else(|| high.clone()));
        check_node(child, &range, nodes);
    }
}
