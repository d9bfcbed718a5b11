//! loom model of committing, flushing, preparing space and waiting, in every interleaving of two
//! workers that sleep whenever possible. A worker whose transactions wait for a commit to become
//! durable is woken once it is. The space, the flush leader, the prepared space and the flags of
//! waiting workers are the log's own code; only the drivers of a worker and its device are
//! modelled.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::leader::{Leader, LeaderStep};
use super::prepared::PreparedSpace;
use super::space::Space;
use super::tracker::InFlightMarks;
use super::{Lsn, WaitingWorkers};
use crate::sync::yield_thread;

const WORKERS: usize = 2;
const BLOCK: u64 = 8;
/// The alignment of a flush's end.
const SECTOR: u64 = 2 * BLOCK;

/// A modelled case.
#[derive(Clone, Copy)]
struct Case {
    /// Number of blocks that each worker commits.
    commits: [usize; WORKERS],
    flush_unit: u64,
    /// Bytes prepared in one step. If this is less than a flush, the preparing worker may have to
    /// continue for a tail that it did not see.
    step: u64,
    /// Maximum number of preemptions.
    switches: usize,
}

struct Log {
    space: Space<InFlightMarks>,
    leader: Leader,
    prepared: PreparedSpace,
    waiting: WaitingWorkers,
    /// Wakes a worker that sleeps, or is about to.
    doorbells: [Notify; WORKERS],
    step: u64,
}

impl Log {
    fn new(Case { flush_unit, step, .. }: Case) -> Self {
        let marks = InFlightMarks::new(WORKERS + 1);
        let space = Space::new(WORKERS, Space::<InFlightMarks>::min_ring_bytes(WORKERS), marks);
        let (leader, prepared) = (Leader::new(flush_unit), PreparedSpace::default());
        space.start(Lsn::FIRST, Lsn::FIRST);
        leader.start(Lsn::FIRST);
        prepared.advance(Lsn::FIRST);
        let doorbells = [Notify::new(), Notify::new()];
        Self { space, leader, prepared, waiting: WaitingWorkers::new(WORKERS), doorbells, step }
    }

    /// Like the log's own function, with a block without bytes.
    fn pad(&self) -> Lsn {
        let (lsn, padding) = self.space.reserve_padding(WORKERS, SECTOR, BLOCK);
        let Some(bytes) = padding else { return lsn };
        self.space.filled(WORKERS, lsn, bytes, Lsn::FIRST);
        Lsn(lsn.0 + bytes)
    }
}

/// A preparation step.
#[derive(Clone, Copy, PartialEq)]
enum Preparation {
    UnderWay,
    Complete,
}

struct Worker {
    log: Arc<Log>,
    number: usize,
    seen_durable: Lsn,
    /// Flushes with a write in flight on this worker's device.
    flights: Vec<u64>,
    preparation: Option<Preparation>,
    completed: bool,
}

impl Worker {
    fn new(log: Arc<Log>, number: usize) -> Self {
        let (flights, preparation) = (Vec::new(), None);
        Self { log, number, seen_durable: Lsn::FIRST, flights, preparation, completed: false }
    }

    /// Commits a block and waits until it is durable.
    fn commit(&mut self) {
        let log = self.log.clone();
        let lsn = log.space.reserve(self.number, BLOCK);
        log.space.filled(self.number, lsn, BLOCK, Lsn::FIRST);
        let is_durable = || lsn < log.space.released();
        while !is_durable() {
            log.waiting.raise(self.number);
            while !is_durable() {
                let repeat = self.turn(true);
                if is_durable() {
                    break;
                } else if repeat {
                    yield_thread();
                } else if !self.complete() {
                    log.doorbells[self.number].wait();
                }
            }
        }
        log.waiting.lower(self.number);
    }

    /// Runs a worker without transactions until it would sleep.
    fn end(&mut self) {
        loop {
            let repeat = self.turn(false);
            if !self.complete() && !repeat {
                return;
            }
            yield_thread();
        }
    }

    /// Runs a turn of housekeeping. Returns whether it must be repeated.
    fn turn(&mut self, wanted: bool) -> bool {
        self.prepare();
        let Log { space, leader, prepared, waiting, doorbells, .. } = &*self.log;
        let mut repeat = false;
        if leader.is_due(space, prepared, wanted) {
            match leader.next(space, prepared, || self.log.pad(), |_, _| vec![()]) {
                LeaderStep::Rest => {}
                LeaderStep::Repeat => repeat = true,
                LeaderStep::Submit(flush) => self.flights.push(flush.number),
            }
        }
        let durable = space.released();
        if durable > self.seen_durable {
            self.seen_durable = durable;
            if std::mem::take(&mut self.completed) {
                waiting.others(self.number).for_each(|other| doorbells[other].notify());
            }
        }
        repeat
    }

    fn prepare(&mut self) {
        let (tail, prepared) = (self.log.space.tail(), &self.log.prepared);
        loop {
            match self.preparation.take() {
                None if prepared.begin(|| prepared.end() < tail) => {
                    self.preparation = Some(Preparation::UnderWay);
                }
                None => return,
                Some(Preparation::UnderWay) => {
                    self.preparation = Some(Preparation::UnderWay);
                    return;
                }
                Some(Preparation::Complete) => {
                    prepared.advance(Lsn(prepared.end().0 + self.log.step));
                    prepared.finish();
                }
            }
        }
    }

    /// Completes all operations in flight on this worker's device. Returns whether there were any.
    fn complete(&mut self) -> bool {
        let preparing = self.preparation == Some(Preparation::UnderWay);
        if self.flights.is_empty() && !preparing {
            return false;
        }
        if preparing {
            self.preparation = Some(Preparation::Complete);
        }
        for number in self.flights.drain(..) {
            self.log.leader.complete(&self.log.space, number, |_| true);
        }
        self.completed = true;
        true
    }
}

/// Commits, and then finishes the remaining work.
fn work(log: Arc<Log>, number: usize, commits: usize) {
    let mut worker = Worker::new(log, number);
    (0..commits).for_each(|_| worker.commit());
    worker.end();
}

fn every_waiter_is_woken(case: Case) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(case.switches);
    model.check(move || {
        let log = Arc::new(Log::new(case));
        let other = log.clone();
        let other = thread::spawn(move || work(other, 1, case.commits[1]));
        work(log.clone(), 0, case.commits[0]);
        other.join().unwrap();
        let blocks = case.commits.iter().sum::<usize>() as u64;
        assert!(log.space.released() >= Lsn(Lsn::FIRST.0 + blocks * BLOCK));
    });
}

#[test]
fn model_a_flush_is_carried_on_by_who_prepares_its_space() {
    every_waiter_is_woken(Case { commits: [1, 0], flush_unit: 0, step: SECTOR, switches: 4 });
}

#[test]
fn model_space_is_prepared_up_to_a_tail_that_who_prepares_did_not_see() {
    every_waiter_is_woken(Case { commits: [1, 0], flush_unit: 0, step: BLOCK, switches: 4 });
}

#[test]
fn model_every_waiter_is_woken() {
    every_waiter_is_woken(Case { commits: [1, 1], flush_unit: 0, step: SECTOR, switches: 2 });
}

#[test]
fn model_every_waiter_is_woken_where_flushes_gather() {
    let case = Case { commits: [1, 1], flush_unit: u64::MAX, step: SECTOR, switches: 2 };
    every_waiter_is_woken(case);
}
