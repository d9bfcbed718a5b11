//! A consolidation array (Johnson et al., Aether, 2010). Threads that reserve at the same time meet
//! in a slot. The first of them reserves for all under the log's lock, each fills its part, and the
//! last one to finish ends the group.
//!
//! Invariants:
//!
//! - A slot moves through FREE → open → closed → FREE.
//! - The thread that moves `state` from open without bytes is the group's leader, and the only one
//!   to close it.
//! - `left` is the number of unfilled bytes of a closed group. Only the thread that lowers it to 0
//!   ends the group and frees the slot.
//! - Groups end in the order of their positions, so every block before `filled` is filled.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::Tracker;
use super::wait::wait_until;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Slots in which threads meet; each filler has a preferred one.
const SLOT_COUNT: usize = 4;
/// A slot in a state below `OPEN` cannot be joined.
const FREE: u64 = 0;
const CLOSED: u64 = 1;
/// Base value of the open state; the bytes of the joined threads are added to it.
const OPEN: u64 = 2;
/// No position, or no slot.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
struct ConsolidationSlot {
    state: AtomicU64,
    /// The position of the group, once it is reserved.
    base: AtomicU64,
    /// Bytes of the group that are not filled yet.
    left: AtomicU64,
    /// Bytes of the group.
    bytes: AtomicU64,
    /// The meeting place at which it was opened.
    place: AtomicU64,
}

#[derive(Debug)]
pub(in crate::log) struct ConsolidationArray {
    /// The open slot of each meeting place.
    places: [CachePadded<AtomicU64>; SLOT_COUNT],
    slots: Box<[CachePadded<ConsolidationSlot>]>,
    lock: RawLock,
    /// The slot of each filler's block, or `NONE` for a block that was reserved alone.
    joined: Box<[CachePadded<AtomicU64>]>,
    filled: CachePadded<AtomicU64>,
}

impl ConsolidationArray {
    pub(in crate::log) fn new(fillers: usize) -> Self {
        // Each filler occupies at most one slot, so one can always be opened.
        let slots = (0..fillers + 2 * SLOT_COUNT).map(|number| {
            let state = if number < SLOT_COUNT { OPEN } else { FREE };
            CachePadded::new(ConsolidationSlot {
                state: AtomicU64::new(state),
                base: AtomicU64::new(NONE),
                left: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                place: AtomicU64::new(number as u64),
            })
        });
        Self {
            places: std::array::from_fn(|number| CachePadded::new(AtomicU64::new(number as u64))),
            slots: slots.collect(),
            lock: RawLock::new(),
            joined: (0..fillers).map(|_| CachePadded::new(AtomicU64::new(NONE))).collect(),
            filled: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Joins an open group. Returns its slot, and the bytes of the threads that joined before.
    fn join(&self, filler: usize, bytes: u64) -> (usize, u64) {
        let mut found = None;
        wait_until(|| {
            // Acquire, both, pairs with the Release that opened the slot.
            let number = self.places[filler % SLOT_COUNT].load(Ordering::Acquire);
            let state = &self.slots[number as usize].state;
            let before = state.load(Ordering::Acquire);
            // AcqRel: the leader sees the members' earlier writes, as their blocks come after it.
            // Relaxed on failure: the caller tries again.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if before >= OPEN
                && state.compare_exchange(before, before + bytes, order.0, order.1).is_ok()
            {
                found = Some((number as usize, before - OPEN));
            }
            found.is_some()
        });
        found.expect("waited for")
    }

    /// Opens a free slot at a meeting place.
    fn open(&self, place: u64) {
        let mut opened = None;
        wait_until(|| {
            let free = |slot: &ConsolidationSlot| {
                // The slot belongs to this thread from here on, and cannot be joined yet. Acquire
                // pairs with the Release that freed it. Relaxed on failure: another slot is tried.
                let order = (Ordering::Acquire, Ordering::Relaxed);
                slot.state.compare_exchange(FREE, CLOSED, order.0, order.1).is_ok()
            };
            opened = self.slots.iter().position(|slot| free(slot));
            opened.is_some()
        });
        let number = opened.expect("waited for");
        let slot = &self.slots[number];
        // Relaxed, both: no other thread has the slot before it is opened by the Release below.
        slot.place.store(place, Ordering::Relaxed);
        slot.base.store(NONE, Ordering::Relaxed);
        // Release, both, pairs with the Acquire of threads that join.
        slot.state.store(OPEN, Ordering::Release);
        self.places[place as usize].store(number as u64, Ordering::Release);
    }

    /// Reserves for all threads that have joined before the lock is acquired.
    fn lead(&self, slot: &ConsolidationSlot, tail: &AtomicU64) {
        self.lock.acquire();
        // Relaxed: stored before the slot was opened, whose Release the leader acquired when it joined.
        self.open(slot.place.load(Ordering::Relaxed));
        // AcqRel: see `join`.
        let bytes = slot.state.swap(CLOSED, Ordering::AcqRel) - OPEN;
        // SeqCst: the tail is the engine's clock.
        let base = tail.fetch_add(bytes, Ordering::SeqCst);
        // Relaxed, both: published by `base`, which every member waits for.
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.left.store(bytes, Ordering::Relaxed);
        // Release pairs with the Acquire of the members.
        slot.base.store(base, Ordering::Release);
        // SAFETY: acquired above.
        unsafe { self.lock.release() };
    }

    /// Ends a group, or a block outside any group, once all before it have ended.
    fn pass(&self, group: Range<u64>) {
        // Acquire pairs with the Release below, by the previous group. A thread that sees the end
        // of this group, here or in `prefix`, therefore sees the bytes of every earlier group.
        wait_until(|| self.filled.load(Ordering::Acquire) == group.start);
        self.filled.store(group.end, Ordering::Release);
    }
}

impl Tracker for ConsolidationArray {
    fn start(&self, lsn: u64) {
        // Release as in `pass`; the threads that will read it are started later.
        self.filled.store(lsn, Ordering::Release);
    }

    fn reserve(&self, filler: usize, tail: &AtomicU64, bytes: u64) -> u64 {
        let (number, before) = self.join(filler, bytes);
        let slot = &self.slots[number];
        // Relaxed: only this filler accesses the word.
        self.joined[filler].store(number as u64, Ordering::Relaxed);
        if before == 0 {
            self.lead(slot, tail);
        }
        let mut base = NONE;
        wait_until(|| {
            // Acquire pairs with the leader's Release.
            base = slot.base.load(Ordering::Acquire);
            base != NONE
        });
        base + before
    }

    fn begin(&self, filler: usize, _: u64) {
        // Relaxed: only this filler accesses the word.
        self.joined[filler].store(NONE, Ordering::Relaxed);
    }

    fn end(&self, filler: usize, block: Range<u64>, _: u64) {
        // Relaxed: only this filler accesses the word.
        let number = self.joined[filler].load(Ordering::Relaxed);
        if number == NONE {
            return self.pass(block);
        }
        let slot = &self.slots[number as usize];
        let bytes = block.end - block.start;
        // AcqRel: the last thread passes on the bytes of all.
        if slot.left.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            // Relaxed, both: this filler acquired the leader's `base` when it reserved, and the
            // slot is not free yet.
            let base = slot.base.load(Ordering::Relaxed);
            self.pass(base..base + slot.bytes.load(Ordering::Relaxed));
            // Release pairs with the Acquire in `open`.
            slot.state.store(FREE, Ordering::Release);
        }
    }

    fn prefix(&self, _: u64) -> u64 {
        // Acquire pairs with the Release in `pass`: the bytes of every block before.
        self.filled.load(Ordering::Acquire)
    }
}
