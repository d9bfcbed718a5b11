//! Check that the durable log before a checkpoint exists: recovery does not read it. A file that
//! was replaced by an older copy ends earlier, and its rest is zero or has stale bytes.
//!
//! Invariant: blocks are contiguous, and each begins with its own LSN. So the headers before a
//! durable position form a chain that reaches it.

use super::block::{BlockHeader, HEADER_BYTES, MAX_LARGE_BLOCK_BYTES};
use super::record::BLOCK_ALIGNMENT;
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, SECTOR_BYTES};

/// Bytes that are searched first.
const FIRST_SEARCH_BYTES: u64 = 64 << 10;
/// Bytes that are searched at most; they contain the beginning of a block.
const MAX_SEARCH_BYTES: u64 = MAX_LARGE_BLOCK_BYTES as u64 + FIRST_SEARCH_BYTES;

/// Checks that blocks reach `durable`, where a block began or the log ended when a checkpoint was
/// written, and the ends of the existing segments before it.
///
/// # Errors
/// `Corrupt`; errors of the device.
pub(super) fn check_before(segments: &Segments, durable: Lsn) -> Result<(), LogError> {
    let mut checked_from = check_reaches(segments, durable)?;
    // Another process may free earlier segments at any time.
    if segments.read_only {
        return Ok(());
    }
    let bytes = segments.segment_bytes();
    for index in (0..durable.0 / bytes).rev() {
        let end = Lsn((index + 1) * bytes);
        // The chain of a later end passes this one if it begins before. A large block begins many
        // segments before its end, which are read once.
        if end <= checked_from && segments.locate(Lsn(index * bytes)).is_some() {
            checked_from = check_reaches(segments, end)?;
        }
    }
    Ok(())
}

/// Checks that blocks reach `end`. Returns where a chain begins that does, or `end` if the last
/// block may begin in a segment that does not exist.
fn check_reaches(segments: &Segments, end: Lsn) -> Result<Lsn, LogError> {
    let mut bytes = FIRST_SEARCH_BYTES;
    loop {
        let sector = SECTOR_BYTES as u64;
        let wanted = end.0.saturating_sub(bytes.min(MAX_SEARCH_BYTES)) / sector * sector;
        let wanted = Lsn(wanted).max(Lsn::FIRST);
        let from = existing_from(segments, wanted, end);
        if from >= end {
            return Ok(end);
        }
        let mut log = AlignedBuffer::zeroed((end.0 - from.0) as usize);
        segments.read(from, &mut log)?;
        let log = LogPart { bytes: &log[..(end.0 - from.0) as usize], from, end };
        let chain = log.last_chain();
        if let Some(BlockChain { begin, .. }) = chain.filter(|chain| chain.reached >= end) {
            return Ok(begin);
        }
        let is_whole = from == Lsn::FIRST || end.0 - from.0 >= MAX_SEARCH_BYTES;
        // Contents of a block that begins in a missing segment may look like a header with its own
        // LSN, but hardly like two that are linked.
        let lacks_segments = from > wanted;
        if is_whole || lacks_segments && chain.is_some_and(|chain| chain.is_linked) {
            return Err(segments.ends_early(chain.map_or(from, |chain| chain.reached), end));
        }
        if lacks_segments {
            return Ok(end);
        }
        bytes *= 4;
    }
}

/// Returns the position, `from` or later, from which all segments exist up to `end`.
fn existing_from(segments: &Segments, from: Lsn, end: Lsn) -> Lsn {
    let size = segments.segment_bytes();
    let mut first = end.0;
    while first > from.0 && segments.locate(Lsn(first - 1)).is_some() {
        first = (first - 1) / size * size;
    }
    from.max(Lsn(first))
}

/// Blocks that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockChain {
    begin: Lsn,
    reached: Lsn,
    /// True if it has several blocks.
    is_linked: bool,
}

/// A part of the log.
struct LogPart<'l> {
    bytes: &'l [u8],
    from: Lsn,
    end: Lsn,
}

impl LogPart<'_> {
    /// Returns the last chain of block headers, or an earlier one that reaches the end of the part.
    /// `None` if the part has no header.
    fn last_chain(&self) -> Option<BlockChain> {
        let mut last: Option<BlockChain> = None;
        for place in (0..self.bytes.len()).step_by(BLOCK_ALIGNMENT).rev() {
            let at = Lsn(self.from.0 + place as u64);
            let Some(next) = self.block_end(at) else { continue };
            // Earlier blocks continue at the last chain, unless it begins within one of them.
            if last.is_none_or(|last| next > last.begin) {
                let reached = self.follow(next);
                let chain = BlockChain { begin: at, reached, is_linked: reached > next };
                if reached >= self.end {
                    return Some(chain);
                }
                last.get_or_insert(chain);
            }
            last = last.map(|last| {
                let is_linked = last.is_linked || next == last.begin;
                BlockChain { begin: at, is_linked, ..last }
            });
        }
        last
    }

    fn follow(&self, mut at: Lsn) -> Lsn {
        while at < self.end
            && let Some(next) = self.block_end(at)
        {
            at = next;
        }
        at
    }

    /// Returns the end of the block at `at`, according to its header; `None` if none is there.
    fn block_end(&self, at: Lsn) -> Option<Lsn> {
        let bytes = &self.bytes[(at.0 - self.from.0) as usize..];
        if bytes[..BLOCK_ALIGNMENT] != at.0.to_le_bytes() {
            return None;
        }
        if bytes.len() < HEADER_BYTES {
            // The header continues after the part, so the block does, too.
            return Some(self.end);
        }
        let (header, _) = BlockHeader::plausible(bytes, at)?;
        Some(Lsn(at.0 + header.bytes() as u64))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn header(at: u64, bytes: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&at.to_le_bytes());
        header[16..20].copy_from_slice(&bytes.to_le_bytes());
        header[30] = 1;
        header
    }

    #[test]
    fn a_chain_that_reaches_the_end_is_found() {
        let (from, mut bytes) = (Lsn(8192), vec![0; 4096]);
        let mut put = |at: u64, length: u32| {
            let header = header(at, length);
            let place = (at - 8192) as usize;
            let here = header.len().min(bytes.len() - place);
            bytes[place..][..here].copy_from_slice(&header[..here]);
        };
        put(8400, 600);
        put(9000, 1000);
        // The bytes of a record look like a header.
        put(9400, 40);
        put(10_000, 1000);
        let reached = |bytes: &[u8], end: u64| {
            let bytes = &bytes[..(end - 8192) as usize];
            LogPart { bytes, from, end: Lsn(end) }.last_chain().map(|chain| chain.reached)
        };
        assert_eq!(reached(&bytes, 8400), None);
        assert_eq!(reached(&bytes, 8416), Some(Lsn(8416)), "the header continues");
        assert_eq!(reached(&bytes, 9000), Some(Lsn(9000)));
        assert_eq!(reached(&bytes, 9800), Some(Lsn(10_000)));
        assert_eq!(reached(&bytes, 11_000), Some(Lsn(11_000)));
        assert_eq!(reached(&bytes, 12_000), Some(Lsn(11_000)));
        let is_linked = |from: u64, end: u64| {
            let bytes = &bytes[(from - 8192) as usize..(end - 8192) as usize];
            LogPart { bytes, from: Lsn(from), end: Lsn(end) }
                .last_chain()
                .map(|chain| chain.is_linked)
        };
        assert_eq!(is_linked(8192, 12_000), Some(true));
        assert_eq!(is_linked(9208, 9800), Some(false), "the bytes of a record look like a header");
    }
}
