//! Tests of the hole trackers against models: with one thread for all fillers the prefix is exact,
//! and with many threads it never runs ahead.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::space::Space;
use super::super::tracker::*;
use super::super::*;
use crate::common::{PART_SECONDS, with_limit};

const FILLERS: usize = 3;
const RING: u64 = 4096;

/// Blocks that are reserved and not filled, by filler, and filled blocks beyond the prefix.
#[derive(Default)]
struct Holes {
    reserved: BTreeMap<usize, Range<u64>>,
    filled: BTreeMap<u64, u64>,
    prefix: u64,
}

impl Holes {
    fn fill(&mut self, block: Range<u64>) {
        self.filled.insert(block.start, block.end);
        while let Some(end) = self.filled.remove(&self.prefix) {
            self.prefix = end;
        }
    }
}

/// Reserves, fills and searches in any order; `exact` if the tracker knows every hole.
fn holes_are_found(tracker: &impl Tracker, start: u64, steps: &[(usize, u64)], exact: bool) {
    let tail = crate::sync::atomic::AtomicU64::new(start);
    tracker.start(start);
    let mut holes = Holes { prefix: start, ..Holes::default() };
    let mut durable = start;
    for &(filler, units) in steps {
        let bytes = units * 8;
        if filler == FILLERS {
            let found = tracker.prefix(tail.load(Ordering::SeqCst));
            assert!(found <= holes.prefix, "a hole before the prefix");
            assert!(!exact || found == holes.prefix, "{found} is not {}", holes.prefix);
            // Flushed space may be reused.
            durable = found;
        } else if let Some(block) = holes.reserved.remove(&filler) {
            tracker.end(filler, block.clone(), durable);
            holes.fill(block);
        } else if tail.load(Ordering::SeqCst) + bytes <= durable + RING {
            let lsn = tracker.reserve(filler, &tail, bytes);
            holes.reserved.insert(filler, lsn..lsn + bytes);
        }
    }
    for (filler, block) in std::mem::take(&mut holes.reserved) {
        tracker.end(filler, block.clone(), durable);
        holes.fill(block);
    }
    assert_eq!(tracker.prefix(tail.load(Ordering::SeqCst)), tail.load(Ordering::SeqCst));
}

proptest! {
    #[test]
    fn every_hole_is_found(
        start in 1_u64..1000,
        steps in prop::collection::vec((0..=FILLERS, 1_u64..24), 0..600),
    ) {
        with_limit(PART_SECONDS, move |_| {
            let start = start * 8;
            holes_are_found(&InFlightMarks::new(FILLERS), start, &steps, false);
            holes_are_found(&BitmapScan::new(RING), start, &steps, true);
            // Ranges much smaller than blocks, similar to blocks, larger, and larger than the ring.
            for exponent in [4, 6, 9, 13] {
                holes_are_found(&Grasshopper::new(FILLERS, RING, exponent), start, &steps, true);
            }
        });
    }
}

#[test]
fn grasshopper_crawls_when_near_and_hops_when_far() {
    with_limit(PART_SECONDS, |_| {
        let tracker = Grasshopper::new(1, RING, 6);
        let mut advances = Vec::new();
        for blocks in [1, 60] {
            let tail = crate::sync::atomic::AtomicU64::new(tracker.prefix(0));
            for _ in 0..blocks {
                let lsn = tracker.reserve(0, &tail, 24);
                tracker.end(0, lsn..lsn + 24, lsn.saturating_sub(RING));
            }
            assert_eq!(tracker.prefix(tail.load(Ordering::SeqCst)), tail.load(Ordering::SeqCst));
            advances.push(tracker.advances());
        }
        assert_eq!(advances[0], Advances { crawled: 24, hopped: 0 });
        let far = advances[1];
        assert!(far.hopped > 1200 && far.crawled < 200, "{far:?}");
    });
}

#[test]
#[should_panic(expected = "garbage collection never passes the durable LSN")]
fn grasshopper_knows_that_durable_never_goes_back() {
    with_limit(PART_SECONDS, |_| {
        let tracker = Grasshopper::new(1, RING, 6);
        for (lsn, durable) in [(0, 0), (8, 8), (16, 16), (24, 0)] {
            tracker.end(0, lsn..lsn + 8, durable);
        }
    });
}

/// A ring of plain memory. A sanitizer and the checks below detect conflicting accesses.
struct Cells(Box<[UnsafeCell<u64>]>);

// SAFETY: the tests verify which thread accesses which cell at which time.
unsafe impl Sync for Cells {}

impl Cells {
    fn at(&self, lsn: u64) -> *mut u64 {
        self.0[(lsn / 8) as usize % self.0.len()].get()
    }
}

/// Threads fill blocks and lead in turn; the leader reads everything that is reported as filled.
fn never_runs_ahead(kind: HoleTracker, threads: usize) {
    const BLOCKS: u64 = 3000;
    let ring = Space::<AnyTracker>::min_ring_bytes(threads).next_power_of_two();
    let space = Space::new(threads, ring, AnyTracker::new(kind, threads, ring));
    space.start(Lsn::FIRST, Lsn::FIRST);
    let cells = Cells((0..ring / 8).map(|_| UnsafeCell::new(0)).collect());
    let (leading, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let lead = || {
        if leading.swap(true, Ordering::Acquire) {
            return;
        }
        let (mut at, end) = (space.released().0, space.buffered().0);
        while at < end {
            // SAFETY: filled, and no thread fills it again before it is released below.
            let (lsn, units) = unsafe { (*cells.at(at), *cells.at(at + 8)) };
            assert_eq!(lsn, at, "{kind}: a hole before the prefix");
            if at + units * 8 > end {
                // For the last block, a bitmap may have reported only a part.
                assert_eq!(kind, HoleTracker::BitmapScan, "the prefix ends with a block");
                break;
            }
            at += units * 8;
            read.fetch_add(1, Ordering::Relaxed);
        }
        space.release(Lsn(at));
        leading.store(false, Ordering::Release);
    };
    let work = |worker: usize| {
        let mut random = fastrand::Rng::with_seed(worker as u64);
        for _ in 0..BLOCKS {
            let units = random.u64(2..2000);
            while !space.admits(units * 8, BlockPurpose::Change) {
                lead();
                std::thread::yield_now();
            }
            let lsn = space.reserve(worker, units * 8);
            // SAFETY: reserved, so only this thread accesses it until it is filled.
            unsafe { (*cells.at(lsn.0), *cells.at(lsn.0 + 8)) = (lsn.0, units) };
            space.filled(worker, lsn, units * 8, space.released());
            if random.u8(0..16) == 0 {
                lead();
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..threads {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
    lead();
    assert_eq!(read.into_inner(), threads as u64 * BLOCKS, "{kind}");
}

#[test]
fn threads_never_see_the_prefix_run_ahead() {
    with_limit(PART_SECONDS, |_| {
        for kind in HoleTracker::ALL {
            never_runs_ahead(kind, 4);
        }
    });
}
