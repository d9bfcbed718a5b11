//! loom model of reserving, filling and finding the prefix, in every interleaving. A flush takes
//! only ranges that are filled, completely and visibly, and no thread reserves space that is still
//! needed.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::Lsn;
use super::extent::BlockPurpose;
use super::space::Space;
use super::tracker::{
    BitmapScan, ConsolidationArray, GlobalLock, Grasshopper, InFlightMarks, Tracker,
};

/// A log whose blocks are cells. loom reports a cell that is read while it is written, or before
/// the write is visible.
struct Model<T> {
    space: Space<T>,
    cells: Vec<UnsafeCell<u64>>,
}

// SAFETY: loom checks every access to the cells, which is the purpose; the space is shared as the
// log shares it.
unsafe impl<T> Sync for Model<T> {}
// SAFETY: it owns its space and its cells, and loom checks every access to them by any thread.
unsafe impl<T> Send for Model<T> {}

const BLOCK: u64 = 8;

fn marks(workers: usize, blocks: usize) -> Arc<Model<InFlightMarks>> {
    Model::new(workers, blocks, InFlightMarks::new(workers + 1))
}

impl<T: Tracker> Model<T> {
    fn new(workers: usize, blocks: usize, tracker: T) -> Arc<Self> {
        let space = Space::new(workers, Space::<T>::min_ring_bytes(workers), tracker);
        space.start(Lsn::FIRST, Lsn::FIRST);
        Arc::new(Self { space, cells: (0..blocks).map(|_| UnsafeCell::new(0)).collect() })
    }

    fn place(lsn: Lsn) -> usize {
        ((lsn.0 - Lsn::FIRST.0) / BLOCK) as usize
    }

    fn fill(&self, filler: usize, lsn: Lsn) {
        // SAFETY: loom checks.
        self.cells[Self::place(lsn)].with_mut(|cell| unsafe { *cell = lsn.0 });
        self.space.filled(filler, lsn, BLOCK, Lsn::FIRST);
    }

    fn commit(&self, worker: usize) {
        let lsn = self.space.reserve(worker, BLOCK);
        self.fill(worker, lsn);
    }

    /// Reads everything that is buffered.
    fn check(&self) -> Lsn {
        let buffered = self.space.buffered();
        for place in 0..Self::place(buffered) {
            // SAFETY: loom checks.
            let lsn = self.cells[place].with(|cell| unsafe { *cell });
            assert_eq!(lsn, Lsn::FIRST.0 + place as u64 * BLOCK, "a hole before the prefix");
        }
        buffered
    }
}

/// Runs a flusher while two workers commit. Counts how often it found some commits and not all.
fn prefix_has_no_holes<T: Tracker + 'static>(
    tracker: fn() -> T,
    commits: [usize; 2],
    switches: usize,
) {
    let blocks = commits[0] + commits[1];
    let end = Lsn(Lsn::FIRST.0 + blocks as u64 * BLOCK);
    let parts_seen = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = parts_seen.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || {
        let log = Model::new(2, blocks, tracker());
        let workers: Vec<_> = (commits.into_iter().enumerate())
            .map(|(worker, commits)| {
                let log = log.clone();
                thread::spawn(move || (0..commits).for_each(|_| log.commit(worker)))
            })
            .collect();
        // Spawned last, so that it first runs last: loom explores reads ahead of a write more
        // thoroughly when it has seen them after the write.
        let flusher = {
            let (log, seen) = (log.clone(), seen.clone());
            thread::spawn(move || {
                let first = log.check();
                let part = first > Lsn::FIRST && first < end;
                seen.fetch_add(usize::from(part), Relaxed);
            })
        };
        flusher.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(log.check(), end);
    });
    assert!(parts_seen.load(Relaxed) > 0, "the prefix was looked at while it grew");
}

// Three preemptions suffice for any race of marks. The other trackers have more preemption points,
// and more states.

#[test]
fn model_marks() {
    prefix_has_no_holes(|| InFlightMarks::new(3), [2, 1], 3);
}

#[test]
fn model_grasshopper_crawls() {
    prefix_has_no_holes(|| Grasshopper::new(3, 1 << 10, 7), [1, 1], 2);
}

#[test]
fn model_grasshopper_hops() {
    // Every block is a range.
    prefix_has_no_holes(|| Grasshopper::new(3, 1 << 10, 3), [1, 1], 2);
}

#[test]
fn model_grasshopper_hops_across_blocks() {
    // Every second boundary of ranges lies within a block.
    prefix_has_no_holes(|| Grasshopper::new(3, 1 << 10, 2), [1, 1], 2);
}

#[test]
fn model_bitmap_scan() {
    prefix_has_no_holes(|| BitmapScan::new(1 << 10), [2, 1], 3);
}

#[test]
fn model_global_lock() {
    prefix_has_no_holes(GlobalLock::new, [2, 1], 2);
}

#[test]
fn model_consolidation_array() {
    prefix_has_no_holes(|| ConsolidationArray::new(3), [2, 1], 2);
}

#[test]
fn model_padding_takes_its_place_among_commits() {
    loom::model(|| {
        let log = marks(1, 4);
        let worker = {
            let log = log.clone();
            thread::spawn(move || {
                log.commit(0);
                log.commit(0);
            })
        };
        let (lsn, bytes) = log.space.reserve_padding(1, 2 * BLOCK, BLOCK);
        if let Some(bytes) = bytes {
            // A padding with the size of two blocks fills both cells.
            for place in (0..bytes).step_by(BLOCK as usize) {
                let at = Lsn(lsn.0 + place);
                // SAFETY: loom checks.
                log.cells[Model::<InFlightMarks>::place(at)]
                    .with_mut(|cell| unsafe { *cell = at.0 });
            }
            log.space.filled(1, lsn, bytes, Lsn::FIRST);
            assert!((lsn.0 + bytes).is_multiple_of(2 * BLOCK));
        }
        log.check();
        worker.join().unwrap();
        log.check();
    });
}

#[test]
fn model_large_blocks_leave_room_for_common_ones() {
    use super::block::{MAX_COMMON_BLOCK_BYTES, MAX_LARGE_BLOCK_BYTES};
    loom::model(|| {
        let log = marks(2, 0);
        let bound = Lsn::FIRST.0 + Space::<InFlightMarks>::min_ring_bytes(2);
        let common = {
            let log = log.clone();
            thread::spawn(move || {
                for _ in 0..4 {
                    if log.space.admits(MAX_COMMON_BLOCK_BYTES as u64, BlockPurpose::Change) {
                        let lsn = log.space.reserve(0, MAX_COMMON_BLOCK_BYTES as u64);
                        log.space.filled(0, lsn, MAX_COMMON_BLOCK_BYTES as u64, Lsn::FIRST);
                    }
                }
            })
        };
        if log.space.admits(MAX_LARGE_BLOCK_BYTES as u64, BlockPurpose::Change) {
            let lsn = log.space.reserve(1, MAX_LARGE_BLOCK_BYTES as u64);
            log.space.filled(1, lsn, MAX_LARGE_BLOCK_BYTES as u64, Lsn::FIRST);
        }
        common.join().unwrap();
        assert!(log.space.tail().0 <= bound, "the ring is overrun");
    });
}
