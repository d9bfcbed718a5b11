//! The lists of a filler (ELEDA §4.1): a queue with one producer, the filler, and one consumer, the
//! leader.
//!
//! Access as its table 2 has it: `tail` is written by the producer and read by the consumer, the
//! head is the consumer's alone. Invariant (its Spec 1): the head never passes the tail, which
//! counts only nodes that are linked.

use std::sync::{Arc, OnceLock};

use crate::sync::atomic::{AtomicU64, Ordering};

/// A node, and the way to the next one.
#[derive(Debug)]
pub(super) struct Node<T> {
    /// How many nodes came before it.
    number: u64,
    pub(super) value: T,
    next: OnceLock<Arc<Self>>,
}

impl<T> Node<T> {
    pub(super) fn next(&self) -> Option<&Arc<Self>> {
        self.next.get()
    }
}

impl<T> Drop for Node<T> {
    fn drop(&mut self) {
        // One after the other: a list may be longer than the stack is deep.
        let mut next = self.next.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.next.take();
        }
    }
}

/// The end where nodes are appended.
#[derive(Debug)]
pub(super) struct Producer<T> {
    last: Arc<Node<T>>,
}

/// The end where they are taken.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    /// The node that was taken last.
    head: Arc<Node<T>>,
}

/// An empty list; `before` stands for what came before its first node.
pub(super) fn list<T>(before: T) -> (Producer<T>, Consumer<T>) {
    let node = Arc::new(Node { number: 0, value: before, next: OnceLock::new() });
    (Producer { last: node.clone() }, Consumer { head: node })
}

impl<T> Producer<T> {
    /// The node that was appended last.
    pub(super) fn last(&self) -> &Arc<Node<T>> {
        &self.last
    }

    pub(super) fn append(&mut self, tail: &AtomicU64, value: T) {
        let number = self.last.number + 1;
        let node = Arc::new(Node { number, value, next: OnceLock::new() });
        assert!(self.last.next.set(node.clone()).is_ok(), "the last node has no next one");
        self.last = node;
        // Release pairs with the Acquire in `peek`: the node, and the bytes of its block.
        tail.store(number, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// The node that was taken last.
    pub(super) fn head(&self) -> &T {
        &self.head.value
    }

    fn first(&self, tail: &AtomicU64) -> Option<&Arc<Node<T>>> {
        // Spec 1: where head and tail are the same node, the head stays.
        if self.head.number >= tail.load(Ordering::Acquire) {
            return None;
        }
        Some(self.head.next.get().expect("linked before the tail counts it"))
    }

    /// The first node that is pending.
    pub(super) fn peek(&self, tail: &AtomicU64) -> Option<&T> {
        self.first(tail).map(|node| &node.value)
    }

    /// Takes the first pending node.
    pub(super) fn take(&mut self, tail: &AtomicU64) {
        let first = self.first(tail).expect("the head never passes the tail").clone();
        self.head = first;
    }

    /// Takes everything up to `node`, which the producer has appended.
    pub(super) fn take_to(&mut self, node: Arc<Node<T>>, tail: &AtomicU64) {
        assert!(node.number <= tail.load(Ordering::Acquire), "the head never passes the tail");
        if node.number > self.head.number {
            self.head = node;
        }
    }
}
