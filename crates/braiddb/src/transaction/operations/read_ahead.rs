//! Read-ahead: a scan reads neighboring log records in one piece, and more beyond them.
//!
//! Records that were written in key order are adjacent in the log, so a scan over evicted records
//! meets contiguous spans of the log. Each span is read in one piece of at most [`MAX_SPAN_BYTES`], and
//! admitted like any other read. While each batch continues where the last one ended, the scan
//! reads more than the batch needs, twice as much each time. The extra span is kept, instead of
//! copies, until a batch does not use it.
//!
//! Invariants: a span ends before the durable LSN at the time of its read. So its contents are
//! complete and never change: a position of the log is never written again. A record that is not
//! found intact in a span is read separately, and that read reports the error.

use super::scan_bounds::Direction;
use crate::log::{ColdRecord, ColdSpan, Lsn};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::record::{ColdVersion, MemoryRecords};
use crate::rid::Rid;
use crate::sched;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;

/// Maximum size of a span in bytes.
const MAX_SPAN_BYTES: u64 = 256 << 10;
/// Initial number of bytes that are read beyond a batch.
const INITIAL_READ_AHEAD_BYTES: u64 = 16 << 10;
/// Gap between two records, in bytes, that costs less to read than a separate read.
const MAX_GAP_BYTES: u64 = 4096;

/// A record to read, and its number in its batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct RecordToRead {
    pub(in crate::transaction) number: usize,
    pub(in crate::transaction) rid: Rid,
    pub(in crate::transaction) cold: ColdVersion,
}

impl RecordToRead {
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

/// Some records, and the span of the log that contains them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSpan<'w> {
    pub(in crate::transaction) wanted: &'w [RecordToRead],
    low: u64,
    high: u64,
}

/// The span that was read beyond the records met so far.
#[derive(Debug, Default)]
pub(in crate::transaction) struct ReadAhead {
    span: Option<ColdSpan>,
    /// Bytes to read beyond the next batch.
    ahead: u64,
    /// The last span that was read.
    last: Option<(u64, u64)>,
}

/// Groups records into spans, in order; no span crosses a segment boundary.
pub(super) fn read_spans(mut wanted: &[RecordToRead], segment_bytes: u64) -> Vec<ReadSpan<'_>> {
    let mut read_spans = Vec::new();
    while let Some(first) = wanted.first() {
        let (mut low, mut high, mut count) = (first.start(), first.end(), 1);
        let segment = low / segment_bytes;
        for next in &wanted[1..] {
            let wider = (low.min(next.start()), high.max(next.end()));
            let near = next.start() <= high + MAX_GAP_BYTES && low <= next.end() + MAX_GAP_BYTES;
            let elsewhere = next.start() / segment_bytes != segment;
            if !near || elsewhere || wider.1 - wider.0 > MAX_SPAN_BYTES {
                break;
            }
            ((low, high), count) = (wider, count + 1);
        }
        let (these, rest) = wanted.split_at(count);
        read_spans.push(ReadSpan { wanted: these, low, high });
        wanted = rest;
    }
    read_spans
}

impl ReadSpan<'_> {
    /// Number of bytes in the span.
    pub(in crate::transaction) fn bytes(&self) -> u64 {
        self.high - self.low
    }

    /// Returns whether reading the span in one piece is worthwhile.
    fn is_piece(&self) -> bool {
        self.bytes() <= MAX_SPAN_BYTES
            && (self.wanted.len() > 1 || self.bytes() > self.wanted[0].bytes())
    }
}

impl ReadAhead {
    /// The value of a record, if it was read ahead.
    pub(in crate::transaction) fn find(
        &self,
        table: &MemoryRecords,
        wanted: &RecordToRead,
    ) -> Option<&[u8]> {
        table.value_in(self.span.as_ref()?, wanted.rid, wanted.cold)
    }

    /// Extends the last span of a batch in scan direction, if the first continues where the last
    /// read ended. `expected` is the maximum number of records still requested, including these.
    pub(super) fn widen(
        &mut self,
        read_spans: &mut [ReadSpan<'_>],
        direction: Direction,
        expected: u64,
        segment_bytes: u64,
    ) {
        let Some(first) = read_spans.first() else { return };
        let goes_on = self.last.is_some_and(|(low, high)| match direction {
            Direction::Forward => high.abs_diff(first.low) <= MAX_GAP_BYTES,
            Direction::Reverse => low.abs_diff(first.high) <= MAX_GAP_BYTES,
        });
        self.ahead = if goes_on {
            (2 * self.ahead).clamp(INITIAL_READ_AHEAD_BYTES, MAX_SPAN_BYTES)
        } else {
            0
        };
        let last = read_spans.last_mut().expect("there is a first");
        let records = last.wanted.len() as u64;
        let beyond = expected.saturating_sub(records).saturating_mul(last.bytes() / records);
        let room = MAX_SPAN_BYTES.saturating_sub(last.bytes());
        let ahead = self.ahead.min(beyond).min(room);
        match direction {
            Direction::Forward => last.high += ahead,
            Direction::Reverse => last.low -= ahead.min(last.low % segment_bytes),
        }
        self.last = Some((last.low, last.high));
    }

    /// Replaces the kept span, if the new one contains more than was requested.
    pub(in crate::transaction) fn keep(&mut self, memory: &MemoryCounters, span: Option<ColdSpan>) {
        let bytes =
            |span: &Option<ColdSpan>| span.as_ref().map_or(0, ColdSpan::memory_bytes) as i64;
        let span = span.filter(|_| self.ahead > 0);
        memory.count(MemoryKind::Copy, bytes(&span) - bytes(&self.span));
        self.span = span;
    }
}

impl ActiveTransaction {
    /// Reads a span in one piece, if worthwhile; `None` also if the read failed.
    async fn read_piece(&self, table: &MemoryRecords, stretch: &ReadSpan<'_>) -> Option<ColdSpan> {
        if !stretch.is_piece() {
            return None;
        }
        let durable = self.engine().log.durable();
        table.fetch_span(Lsn(stretch.low), Lsn(stretch.high).min(durable)).await.ok()
    }

    /// Reads admitted spans concurrently.
    pub(super) async fn read_pieces(
        &self,
        table: &MemoryRecords,
        read_spans: &[ReadSpan<'_>],
    ) -> Vec<SpanRead> {
        // A single record is read together with the spans, so that none waits for another.
        let reads = read_spans.iter().map(|stretch| async move {
            if let Some(span) = self.read_piece(table, stretch).await {
                return SpanRead::Span(span);
            }
            let [one] = stretch.wanted else { return SpanRead::Unread };
            SpanRead::Record(self.fetch_admitted(table, one.rid, one.cold).await)
        });
        sched::Interleaved::new(reads).await
    }
}

/// The result of reading a span.
#[derive(Debug)]
pub(super) enum SpanRead {
    Span(ColdSpan),
    /// The result for a single record.
    Record(Result<ColdRecord, OperationError>),
    /// Each record must be read separately.
    Unread,
}
