//! A filler's crawling list (ELEDA §4.1): its filled blocks in order, from one producer, the
//! filler, to one consumer, the leader. Nodes are stored in chunks, so that one allocation and one
//! cache miss serve many of them.
//!
//! Access follows table 2 of the paper: the producer writes the tail and the consumer reads it;
//! only the consumer accesses the head. Invariant (its Spec 1): the head never passes the tail,
//! which counts only written nodes.

use std::sync::{Arc, Weak};

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Nodes per chunk: they cover at least a few pages of log. Models use few, to cross chunk
/// boundaries.
const CHUNK_NODES: usize = if cfg!(loom) { 1 } else { 60 };

/// A filled block that may not be durable yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingBlock {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A node. It is written once, before the tail counts it; relaxed accesses are ordered by the tail.
#[derive(Debug, Default)]
struct CrawlingNode {
    start: AtomicU64,
    end: AtomicU64,
}

impl CrawlingNode {
    fn get(&self) -> PendingBlock {
        let (start, end) = (&self.start, &self.end);
        // Relaxed, both: the producer's own stores, or seen by a consumer that acquired the tail in
        // `peek`.
        PendingBlock { start: start.load(Ordering::Relaxed), end: end.load(Ordering::Relaxed) }
    }
}

#[derive(Debug)]
struct NodeChunk {
    nodes: [CrawlingNode; CHUNK_NODES],
    next: OnceLock<Arc<Self>>,
}

impl NodeChunk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            nodes: std::array::from_fn(|_| CrawlingNode::default()),
            next: OnceLock::new(),
        })
    }
}

impl Drop for NodeChunk {
    fn drop(&mut self) {
        // Freed iteratively: recursion over a long list could overflow the stack.
        let mut next = self.next.take();
        while let Some(mut chunk) = next.and_then(Arc::into_inner) {
            next = chunk.next.take();
        }
    }
}

/// A position between two nodes: before node `number`, which is in `chunk` or would be at its end.
#[derive(Clone, Debug)]
struct ListPosition {
    chunk: Arc<NodeChunk>,
    number: u64,
}

/// A position that does not keep its nodes alive.
#[derive(Clone, Debug, Default)]
pub(super) struct ListMark {
    chunk: Weak<NodeChunk>,
    number: u64,
    /// The node before the position.
    before: PendingBlock,
}

impl ListPosition {
    fn step(&mut self) {
        self.number += 1;
        if self.number.is_multiple_of(CHUNK_NODES as u64) {
            let next = self.chunk.next.get().expect("linked before the tail counts its end");
            self.chunk = next.clone();
        }
    }

    fn node(&self) -> &CrawlingNode {
        &self.chunk.nodes[(self.number % CHUNK_NODES as u64) as usize]
    }
}

/// The filler's end of the list.
#[derive(Debug)]
pub(super) struct Producer {
    end: ListPosition,
    /// The node before the end.
    last: PendingBlock,
    /// Nodes before this position are freed; `collected` is the end of the last freed one.
    gc: ListPosition,
    collected: u64,
}

/// The leader's end.
#[derive(Debug)]
pub(super) struct Consumer {
    head: ListPosition,
    /// The node that was taken last.
    taken: PendingBlock,
}

/// Creates an empty list.
pub(super) fn list() -> (Producer, Consumer) {
    let start = ListPosition { chunk: NodeChunk::new(), number: 0 };
    let producer = Producer {
        end: start.clone(),
        last: PendingBlock::default(),
        gc: start.clone(),
        collected: 0,
    };
    (producer, Consumer { head: start, taken: PendingBlock::default() })
}

impl Producer {
    /// Returns the position of the next node.
    pub(super) fn mark(&self) -> ListMark {
        ListMark {
            chunk: Arc::downgrade(&self.end.chunk),
            number: self.end.number,
            before: self.last,
        }
    }

    pub(super) fn append(&mut self, tail: &AtomicU64, pending: PendingBlock) {
        let node = self.end.node();
        // Relaxed: published by the tail.
        node.start.store(pending.start, Ordering::Relaxed);
        node.end.store(pending.end, Ordering::Relaxed);
        if (self.end.number + 1).is_multiple_of(CHUNK_NODES as u64) {
            let linked = self.end.chunk.next.set(NodeChunk::new());
            assert!(linked.is_ok(), "the last chunk has no next one");
        }
        self.end.step();
        self.last = pending;
        // Release pairs with the Acquire in `peek`: the node, and the bytes of its block.
        tail.store(self.end.number, Ordering::Release);
    }

    /// Frees durable nodes, which the head has passed.
    pub(super) fn collect(&mut self, durable: u64) {
        while self.gc.number < self.end.number {
            let pending = self.gc.node().get();
            if pending.end > durable {
                break;
            }
            self.collected = pending.end;
            self.gc.step();
        }
        // Spec 2: if the point of collection equals the durable LSN, it stays.
        assert!(self.collected <= durable, "garbage collection never passes the durable LSN");
    }
}

impl Consumer {
    /// Returns the node that was taken last.
    pub(super) fn taken(&self) -> PendingBlock {
        self.taken
    }

    /// Returns the first pending node.
    pub(super) fn peek(&self, tail: &AtomicU64) -> Option<PendingBlock> {
        // Spec 1: if head and tail are equal, the head stays. Acquire pairs with the Release in
        // `append`.
        (self.head.number < tail.load(Ordering::Acquire)).then(|| self.head.node().get())
    }

    /// Takes the first pending node.
    pub(super) fn take(&mut self, tail: &AtomicU64) {
        self.taken = self.peek(tail).expect("the head never passes the tail");
        self.head.step();
    }

    /// Advances to a mark, if it is ahead and its nodes are not freed yet.
    pub(super) fn go_to(&mut self, mark: &ListMark, tail: &AtomicU64) {
        // Acquire pairs with the Release in `append`, which came before the mark was queued.
        assert!(mark.number <= tail.load(Ordering::Acquire), "the head never passes the tail");
        if let Some(chunk) = mark.chunk.upgrade().filter(|_| mark.number > self.head.number) {
            self.head = ListPosition { chunk, number: mark.number };
            self.taken = mark.before;
        }
    }
}
