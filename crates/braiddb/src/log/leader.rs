//! Flush leader: decides which part of the log is flushed next, and when a flush is complete. One
//! worker at a time leads, under a lock that is never waited for before a flush.
//!
//! An action that is not possible now is done by a worker that is certain to take a turn:
//!
//! | reason why a flush does not proceed | worker that continues it |
//! |---|---|
//! | another worker holds the lock | the caller, which repeats its turn |
//! | a block before its end is being filled | the caller; a worker that fills a block does not suspend |
//! | its space is being prepared | the worker that prepares, at the end (`prepared`) |
//! | its space is not prepared, and no worker is doing so | the caller, whose next turn prepares |
//! | the maximum number of flushes is in flight, or too few bytes have gathered | the worker whose completion ends a flush: it wakes every worker with transactions that wait for the log, and each of those takes a turn |

use std::collections::VecDeque;

use super::Lsn;
use super::extent::{MAX_GUEST_BLOCK_BYTES, MAX_GUEST_FILLERS, MIN_COMMON_BYTES, PADDING_BYTES};
use super::prepared::{PreparedSpace, SpaceAvailability};
use super::space::Space;
use super::tracker::Tracker;
use crate::io::SECTOR_BYTES;
use crate::sync::ModelMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of flushes in flight.
const MAX_IN_FLIGHT_FLUSHES: usize = 2;
/// This many bytes are flushed even without a waiter.
const MIN_EAGER_FLUSH_BYTES: u64 = 1 << 20;

const _: () = {
    let padding = 2 * MAX_IN_FLIGHT_FLUSHES as u64 * SECTOR_BYTES as u64;
    let guests = (MAX_GUEST_FILLERS * MAX_GUEST_BLOCK_BYTES) as u64;
    assert!(padding + guests <= PADDING_BYTES && MAX_GUEST_BLOCK_BYTES as u64 <= MIN_COMMON_BYTES);
};

/// One flush in flight.
#[derive(Debug)]
struct InFlightFlush {
    number: u64,
    from: Lsn,
    to: Lsn,
    /// Incomplete writes.
    writes: usize,
}

/// The state of the flush leader.
///
/// Invariants: `durable <= flights in order <= submitted <= target <= tail`; all except the tail
/// are multiples of a sector.
#[derive(Debug)]
struct LeaderState {
    submitted: Lsn,
    /// The end of the next flush: already padded, not yet submitted.
    target: Option<Lsn>,
    flights: VecDeque<InFlightFlush>,
    flights_made: u64,
}

/// A flush to submit.
#[derive(Debug)]
pub(super) struct Flush<W> {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) writes: Vec<W>,
}

/// The next step of a worker that would lead a flush.
#[derive(Debug)]
pub(super) enum LeaderStep<W> {
    /// No action; another worker continues the remaining work.
    Rest,
    /// Repeat the turn soon.
    Repeat,
    /// Submit the writes.
    Submit(Flush<W>),
}

/// The flush state of the log.
#[derive(Debug)]
pub(super) struct Leader {
    state: ModelMutex<LeaderState>,
    /// A copy that is read without the lock.
    submitted: AtomicU64,
    /// While one flush is in flight, the next one waits for this many bytes, so that small ones are
    /// combined.
    flush_unit: u64,
}

impl Leader {
    pub(super) fn new(flush_unit: u64) -> Self {
        let flights = VecDeque::with_capacity(MAX_IN_FLIGHT_FLUSHES);
        let state = LeaderState { submitted: Lsn::FIRST, target: None, flights, flights_made: 0 };
        Self { state: ModelMutex::new(state), submitted: AtomicU64::new(Lsn::FIRST.0), flush_unit }
    }

    /// Starts at an LSN before which everything is durable; called before the workers start.
    pub(super) fn start(&self, lsn: Lsn) {
        self.state.lock().submitted = lsn;
        // Release as in `next`; the workers that will read it are started later.
        self.submitted.store(lsn.0, Ordering::Release);
    }

    /// Returns the LSN before which everything was submitted to disk. The value may be outdated.
    pub(super) fn submitted(&self) -> Lsn {
        // Acquire pairs with the Release in `next`: a tail read afterwards is not before this.
        Lsn(self.submitted.load(Ordering::Acquire))
    }

    /// Returns whether a flush is due. `wanted` states that transactions of the caller wait. Their
    /// own commits, and the commits they saw, are below the tail read here, so everything they wait
    /// for is included: the part that an outdated `submitted` omits is already submitted.
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

    /// Leads a flush if one can start. `pad` ends the tail at a sector boundary and returns its
    /// end; `writes` creates the writes of a range.
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

    /// Handles the completion of a write of flush `number`. `check` is called under the lock with
    /// the start of the flush, and returns whether the log is intact. The durable LSN advances over
    /// complete flushes in order, and stops after any failure. Acknowledged commits thus stay
    /// durable, and no others are acknowledged.
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
