//! Reading what a scan meets in the log: records that lie side by side there at once, and beyond them.
//!
//! Records that were written in the order of their keys lie in the log in that order, so a scan over what was
//! evicted meets stretches of the log. Each is read in one piece, bounded by [`MAX_BYTES`], and admitted as
//! any other read; and while batch after batch goes on where the last one ended, more is read than the batch
//! needs, twice as much each time. What was read beyond is kept, in place of copies, until a batch has
//! no use for it.
//!
//! Invariants: a stretch ends before what was durable when its read was asked for, so all that is in it is
//! as it was written, and stays so: a position of the log is never written again. A record that is not
//! found in a stretch as it should be is read by itself, which tells what is wrong with it.

use super::context::Transaction;
use super::error::OperationError;
use super::scan::Direction;
use crate::log::{ColdRecord, ColdSpan, Lsn};
use crate::memory::{Kind, MemoryCounters};
use crate::record::{ColdVersion, Records};
use crate::rid::Rid;
use crate::sched;

/// Bytes of a stretch, at most.
const MAX_BYTES: u64 = 256 << 10;
/// Bytes that are read beyond a batch at first.
const FIRST_AHEAD: u64 = 16 << 10;
/// Bytes between two records that cost less than a read of their own would.
const GAP: u64 = 4096;

/// A record to be read, and its number in its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) number: usize,
    pub(super) rid: Rid,
    pub(super) cold: ColdVersion,
}

impl Wanted {
    fn start(&self) -> u64 {
        self.cold.address.lsn().0
    }

    fn end(&self) -> u64 {
        self.start() + self.bytes()
    }

    fn bytes(&self) -> u64 {
        self.cold.address.read_bytes() as u64
    }
}

/// Some records, and the stretch of the log that they are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'w> {
    pub(super) wanted: &'w [Wanted],
    low: u64,
    high: u64,
}

/// What was read beyond what a scan has met so far.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    span: Option<ColdSpan>,
    /// How much to read beyond the next batch.
    ahead: u64,
    /// The last stretch that was read.
    last: Option<(u64, u64)>,
}

/// The stretches that some records are in, in their order, none in more than one segment.
pub(super) fn stretches(mut wanted: &[Wanted], segment_bytes: u64) -> Vec<Stretch<'_>> {
    let mut stretches = Vec::new();
    while let Some(first) = wanted.first() {
        let (mut low, mut high, mut count) = (first.start(), first.end(), 1);
        let segment = low / segment_bytes;
        for next in &wanted[1..] {
            let wider = (low.min(next.start()), high.max(next.end()));
            let near = next.start() <= high + GAP && low <= next.end() + GAP;
            let elsewhere = next.start() / segment_bytes != segment;
            if !near || elsewhere || wider.1 - wider.0 > MAX_BYTES {
                break;
            }
            ((low, high), count) = (wider, count + 1);
        }
        let (these, rest) = wanted.split_at(count);
        stretches.push(Stretch { wanted: these, low, high });
        wanted = rest;
    }
    stretches
}

impl Stretch<'_> {
    /// Bytes that are read for it.
    pub(super) fn bytes(&self) -> u64 {
        self.high - self.low
    }

    /// Whether it is worth to be read in one piece.
    fn is_piece(&self) -> bool {
        self.bytes() <= MAX_BYTES
            && (self.wanted.len() > 1 || self.bytes() > self.wanted[0].bytes())
    }
}

impl ReadAhead {
    /// The value of a record, if it was read ahead.
    pub(super) fn find(&self, table: &Records, wanted: &Wanted) -> Option<&[u8]> {
        table.value_in(self.span.as_ref()?, wanted.rid, wanted.cold)
    }

    /// Widens the last of the stretches that a batch needs, in the direction of the scan, if the first goes
    /// on where the last read ended. `expected` records will be asked for, at most, these among them.
    pub(super) fn widen(
        &mut self,
        stretches: &mut [Stretch<'_>],
        direction: Direction,
        expected: u64,
        segment_bytes: u64,
    ) {
        let Some(first) = stretches.first() else { return };
        let goes_on = self.last.is_some_and(|(low, high)| match direction {
            Direction::Forward => high.abs_diff(first.low) <= GAP,
            Direction::Reverse => low.abs_diff(first.high) <= GAP,
        });
        self.ahead = if goes_on { (2 * self.ahead).clamp(FIRST_AHEAD, MAX_BYTES) } else { 0 };
        let last = stretches.last_mut().expect("there is a first");
        let records = last.wanted.len() as u64;
        let beyond = expected.saturating_sub(records).saturating_mul(last.bytes() / records);
        let room = MAX_BYTES.saturating_sub(last.bytes());
        let ahead = self.ahead.min(beyond).min(room);
        match direction {
            Direction::Forward => last.high += ahead,
            Direction::Reverse => last.low -= ahead.min(last.low % segment_bytes),
        }
        self.last = Some((last.low, last.high));
    }

    /// Keeps a piece in place of what is kept, if there is something in it beyond what was asked for.
    pub(super) fn keep(&mut self, memory: &MemoryCounters, span: Option<ColdSpan>) {
        let bytes =
            |span: &Option<ColdSpan>| span.as_ref().map_or(0, ColdSpan::memory_bytes) as i64;
        let span = span.filter(|_| self.ahead > 0);
        memory.count(Kind::Copy, bytes(&span) - bytes(&self.span));
        self.span = span;
    }
}

impl Transaction {
    /// Reads a stretch in one piece, if that is worth it; `None` also if it could not be read.
    async fn read_piece(&self, table: &Records, stretch: &Stretch<'_>) -> Option<ColdSpan> {
        if !stretch.is_piece() {
            return None;
        }
        let durable = self.engine().log.durable();
        table.fetch_span(Lsn(stretch.low), Lsn(stretch.high).min(durable)).await.ok()
    }

    /// Reads stretches side by side, which were admitted.
    pub(super) async fn read_pieces(
        &self,
        table: &Records,
        stretches: &[Stretch<'_>],
    ) -> Vec<Piece> {
        // A record alone is read with the others, so that none waits for them.
        let reads = stretches.iter().map(|stretch| async move {
            match self.read_piece(table, stretch).await {
                Some(span) => Piece::Span(span),
                None if let [one] = stretch.wanted => {
                    Piece::Record(self.fetch_admitted(table, one.rid, one.cold).await)
                }
                None => Piece::Unread,
            }
        });
        sched::Interleaved::new(reads).await
    }
}

/// What came of a stretch.
#[derive(Debug)]
pub(super) enum Piece {
    Span(ColdSpan),
    /// Of a single record.
    Record(Result<ColdRecord, OperationError>),
    /// Each record is to be read by itself.
    Unread,
}
