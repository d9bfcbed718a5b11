//! Consistency check of a whole tree, for tests. No other thread may change the tree during the
//! check.

use std::cmp::Ordering as Order;

use super::key::SearchKey;
use super::node::{FANOUT, HeldNode, NodeRef};
use super::prefix::common_bytes;
use super::search::Baseline;
use super::tree::IndexTree;
use crate::sync::atomic::Ordering;

/// Range of a node's keys: includes the first key and excludes the second; `None` is no bound.
type NodeKeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

impl IndexTree {
    /// Panics if the tree violates an invariant. The tree must not change during the call.
    pub(super) fn check(&self) {
        // Relaxed: no thread changes it.
        let root = NodeRef(self.root.load(Ordering::Relaxed));
        // SAFETY: no thread changes the tree, so none of its nodes is freed.
        let root = unsafe { root.hold() };
        let mut nodes = vec![0; root.level() as usize + 1];
        check_node(root, &(None, None), &mut nodes);
        assert_eq!(nodes, self.nodes_by_level(), "nodes are counted");
    }
}

fn check_node(node: HeldNode<'_>, (low, high): &NodeKeyRange, nodes: &mut [u64]) {
    nodes[node.level() as usize] += 1;
    let count = node.count();
    let version = node.latch.version().expect("a linked node is not obsolete");
    let first = usize::from(node.level() > 0);
    assert!(count >= first, "an inner node has children");
    let keys: Vec<_> =
        (first..count).map(|place| node.key(place).with_bytes(<[u8]>::to_vec)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "entries are sorted and distinct");
    assert!(low.as_ref().is_none_or(|low| keys.first().is_none_or(|key| key >= low)));
    assert!(high.as_ref().is_none_or(|high| keys.last().is_none_or(|key| key < high)));
    let is_empty = |place: usize| (node.head(place), node.key_word(place).tag()) == (u64::MAX, 0);
    assert!((count..FANOUT).all(is_empty), "places past the last entry are empty");
    if node.has_prefix_of_range() {
        let (low, high) = (low.as_ref().expect("a fence"), high.as_ref().expect("a fence"));
        assert!(common_bytes(low, high) >= node.prefix_bytes(), "all keys of the range have it");
    }
    for (place, key) in (first..).zip(&keys) {
        let search = SearchKey::new(key);
        let order = node.compare(&search, place);
        assert_eq!(order, Order::Equal, "a head and a word define the key");
        assert_eq!(node.lower_bound::<Baseline>(&search), (place, true), "a search finds it");
    }
    if node.level() == 0 {
        return;
    }
    let bound = |place: usize| place.checked_sub(1).and_then(|place| keys.get(place)).cloned();
    for place in 0..count {
        let child = node.child(place, version).expect("no thread changes the tree");
        assert_eq!(child.level(), node.level() - 1, "leaves are equally deep");
        let range =
            (bound(place).or_else(|| low.clone()), bound(place + 1).or_else(|| high.clone()));
        check_node(child, &range, nodes);
    }
}
