//! Which part of the log is flushed next, and when a flush is over: decided by one worker at a time,
//! the leader, under a lock that is never waited for before a flush.
//!
//! What is not done now is done by a worker that is certain to take a turn:
//!
//! | a flush does not go on, because | who carries it on |
//! |---|---|
//! | another worker holds the lock | the caller, which repeats its turn |
//! | a block before its end is being filled | the caller; a worker that fills a block does not suspend |
//! | its space is being prepared | the worker that prepares, at the end (`prepared`) |
//! | its space is not prepared, by nobody | the caller, whose next turn prepares |
//! | as many flushes as may be are under way, or too little has gathered | the worker whose completion ends one: it wakes every worker with transactions that wait for the log, and each of those takes a turn |

use std::collections::VecDeque;

use super::Lsn;
use super::prepared::{PreparedSpace, SpaceAvailability};
use super::space::Space;
use super::tracker::Tracker;
use crate::sync::ModelMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Flushes under way at a time.
const MAX_IN_FLIGHT_FLUSHES: usize = 2;
/// So much goes to disk even if nobody asks.
const MIN_EAGER_FLUSH_BYTES: u64 = 1 << 20;

/// One flush under way.
#[derive(Debug)]
struct InFlightFlush {
    number: u64,
    from: Lsn,
    to: Lsn,
    /// Writes not yet complete.
    writes: usize,
}

/// What the flush leader holds.
///
/// Invariants: `durable <= flights in order <= submitted <= target <= tail`; all but the tail are
/// multiples of a sector.
#[derive(Debug)]
struct LeaderState {
    submitted: Lsn,
    /// The end of the next flush, padded already, not yet submitted.
    target: Option<Lsn>,
    flights: VecDeque<InFlightFlush>,
    flights_made: u64,
}

/// A flush to be submitted.
#[derive(Debug)]
pub(super) struct Flush<W> {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) writes: Vec<W>,
}

/// What a worker that would lead a flush is to do.
#[derive(Debug)]
pub(super) enum LeaderStep<W> {
    /// Nothing; another worker carries on what is left.
    Rest,
    /// To repeat its turn soon.
    Repeat,
    /// To submit the writes.
    Submit(Flush<W>),
}

/// The state of flushing.
#[derive(Debug)]
pub(super) struct Leader {
    state: ModelMutex<LeaderState>,
    /// A copy, to look at without the lock.
    submitted: AtomicU64,
    /// While one flush is under way, the next waits for this much: small ones share.
    flush_unit: u64,
}

impl Leader {
    pub(super) fn new(flush_unit: u64) -> Self {
        let flights = VecDeque::with_capacity(MAX_IN_FLIGHT_FLUSHES);
        let state = LeaderState { submitted: Lsn::FIRST, target: None, flights, flights_made: 0 };
        Self { state: ModelMutex::new(state), submitted: AtomicU64::new(Lsn::FIRST.0), flush_unit }
    }

    /// Starts where everything before is durable; before there are workers.
    pub(super) fn start(&self, lsn: Lsn) {
        self.state.lock().submitted = lsn;
        // Release as in `next`; the workers that will look are started later.
        self.submitted.store(lsn.0, Ordering::Release);
    }

    /// Everything before is on its way to disk, or there; an earlier answer may be late.
    pub(super) fn submitted(&self) -> Lsn {
        // Acquire pairs with the Release in `next`: a tail read afterwards is not before this.
        Lsn(self.submitted.load(Ordering::Acquire))
    }

    /// Whether something is to be flushed; `wanted` says that transactions of the caller's wait.
    /// They committed, or saw committed, what the tail read here is past, so nothing they wait for
    /// is missed: what a late `submitted` leaves out is submitted already.
    pub(super) fn is_due<T: Tracker>(
        &self,
        space: &Space<T>,
        prepared: &PreparedSpace,
        wanted: bool,
    ) -> bool {
        let submitted = self.submitted();
        let unsubmitted = space.tail().0 - submitted.0;
        (wanted && unsubmitted > 0)
            || unsubmitted >= MIN_EAGER_FLUSH_BYTES
            || prepared.is_announced()
    }

    /// Leads a flush if one can start. `pad` ends the tail at a sector and returns its end; `writes`
    /// makes the writes of a range.
    pub(super) fn next<T: Tracker, W>(
        &self,
        space: &Space<T>,
        prepared: &PreparedSpace,
        pad: impl FnOnce() -> Lsn,
        writes: impl FnOnce(Lsn, Lsn) -> Vec<W>,
    ) -> LeaderStep<W> {
        let Some(mut state) = self.state.try_lock() else { return LeaderStep::Repeat };
        let target = match state.target {
            Some(target) => target,
            None => {
                let unsubmitted = space.tail().0 - state.submitted.0;
                let flights = state.flights.len();
                if unsubmitted == 0
                    || flights >= MAX_IN_FLIGHT_FLUSHES
                    || (flights > 0 && unsubmitted < self.flush_unit)
                {
                    return LeaderStep::Rest;
                }
                let target = pad();
                state.target = Some(target);
                prepared.announce();
                target
            }
        };
        if space.buffered() < target {
            return LeaderStep::Repeat;
        }
        match prepared.find(target) {
            SpaceAvailability::Prepared => {}
            SpaceAvailability::UnderPreparation => return LeaderStep::Rest,
            SpaceAvailability::Missing => return LeaderStep::Repeat,
        }
        let (from, number) = (state.submitted, state.flights_made);
        let writes = writes(from, target);
        state.flights.push_back(InFlightFlush { number, from, to: target, writes: writes.len() });
        state.flights_made += 1;
        state.submitted = target;
        state.target = None;
        // Release pairs with the Acquire in `submitted`.
        self.submitted.store(target.0, Ordering::Release);
        prepared.withdraw();
        LeaderStep::Submit(Flush { number, bytes: target.0 - from.0, writes })
    }

    /// Takes the completion of a write of flush `number`; `check` is called with where the flush
    /// starts, under the lock, and says whether the log is in order. Durable advances over complete
    /// flushes in order, and stands still once anything has failed: what was acknowledged stays
    /// true, and nothing else is.
    pub(super) fn complete<T: Tracker>(
        &self,
        space: &Space<T>,
        number: u64,
        check: impl FnOnce(Lsn) -> bool,
    ) {
        let mut state = self.state.lock();
        let flight = state.flights.iter_mut().find(|flight| flight.number == number);
        let flight = flight.expect("a flight stays until its writes complete");
        flight.writes -= 1;
        let in_order = check(flight.from);
        while in_order && state.flights.front().is_some_and(|flight| flight.writes == 0) {
            let flight = state.flights.pop_front().expect("seen just now");
            assert_eq!(flight.from, space.released(), "flights are contiguous");
            space.release(flight.to);
        }
    }
}
