//! The end of the log: whether it may end after its last block, and how it continues.
//!
//! At the first position `p` without a valid block:
//!
//! | contents after `p` | verdict |
//! |---|---|
//! | nothing, or contents of an earlier segment of the file | the log ends at `p` |
//! | bytes, no valid block at a sector | a flush torn by a crash; it was never acknowledged as durable |
//! | valid blocks, none of which knows a durable position past `p` | flushes in flight at a crash |
//! | a valid block written when the log was durable past `p` | durable bytes are missing: corruption |
//!
//! Every flush starts with a block at a sector, and every block states the durable LSN when it was
//! filled. The search therefore looks for blocks at sectors, and follows them from there.
//!
//! Before the log continues, sectors after `p` are zeroed, up to the last one in which some word
//! names its own LSN. Otherwise a later reader could find a stale block at the LSN it claims,
//! directly after new ones. (Blocks of an earlier segment in the same file claim other LSNs.) Then
//! a skip block fills the sector of `p`. That sector contains nothing acknowledged; otherwise its
//! flush would be complete and end at a sector.

use crate::types::OnDisk;
use std::sync::Arc;

use super::block::{BlockHeader, BlockKind, HEADER_BYTES};
use super::record::BLOCK_ALIGNMENT;
use super::ring::MAX_RING;
use super::segment::{LogTail, Segments};
use super::window::LogWindow;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, SECTOR_BYTES};
use crate::planted::{Bug, is_planted};

const SECTOR: u64 = SECTOR_BYTES as u64;
const READ_BYTES: u64 = 1 << 20;

/// Examines everything after `end`, where no block is.
pub(super) fn examine(segments: &Arc<Segments>, end: Lsn) -> Result<LogTail, LogError> {
    let mut tail = LogTail { end, stale_until: end };
    if segments.fresh {
        return Ok(tail);
    }
    let last = segments.end();
    let mut window = LogWindow::new(segments.clone());
    let mut buffer = AlignedBuffer::zeroed(READ_BYTES as usize);
    let mut base = Lsn(end.0 / SECTOR * SECTOR);
    // Blocks are not searched before this position, which was already examined.
    let mut look_from = Lsn(end.0 + 1);
    while base < last {
        segments.read(base, &mut buffer)?;
        for (number, sector) in buffer.chunks_exact(SECTOR_BYTES).enumerate() {
            let at = Lsn(base.0 + number as u64 * SECTOR);
            if !names_itself(sector, at, end) {
                continue;
            }
            tail.stale_until = Lsn(at.0 + SECTOR);
            if at >= look_from && BlockHeader::plausible(sector, at).is_some() {
                look_from = follow(segments, &mut window, at, end)?;
            }
        }
        base = Lsn(base.0 + READ_BYTES);
    }
    Ok(tail)
}

/// Follows blocks from `at` on and returns their end. Fails if one of them knows that the log was
/// durable past `end`.
fn follow(segments: &Segments, window: &mut LogWindow, at: Lsn, end: Lsn) -> Result<Lsn, LogError> {
    let mut at = at;
    while let Some(block) = window.block(at)? {
        if block.durable > end {
            let reason = format!(
                "no valid block is here, but the log was durable up to {} when the block at {} \
                 was written",
                block.durable, block.lsn
            );
            return Err(LogError::corrupt(segments.place(end), end, reason));
        }
        at = block.end;
    }
    Ok(Lsn(at.0.max(1)))
}

/// Returns whether a block could begin in the sector at `at`, at or after `end`, where no block is.
fn names_itself(sector: &[u8], at: Lsn, end: Lsn) -> bool {
    let words =
        sector.as_chunks::<BLOCK_ALIGNMENT>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.zip((at.0..).step_by(BLOCK_ALIGNMENT)).any(|(word, lsn)| word == lsn && lsn >= end.0)
}

/// Makes the log end at a sector, with no block after it. Returns the start of new blocks.
pub(super) fn close(segments: &Segments, tail: LogTail) -> Result<Lsn, LogError> {
    let LogTail { end, stale_until } = tail;
    let end = if is_planted(Bug::WrongTail) { Lsn(end.0 / SECTOR * SECTOR) } else { end };
    let next = if end.0.is_multiple_of(SECTOR) {
        end
    } else {
        Lsn((end.0 + HEADER_BYTES as u64).next_multiple_of(SECTOR))
    };
    segments.extend_now(next)?;
    if stale_until > end {
        let (path, offset) = segments.place(end);
        tracing::warn!(
            "the log ends at LSN {end} ({} at offset {offset}); up to {} bytes after it belong to \
             commits that were not complete, and are discarded",
            path.display(),
            stale_until.0 - end.0
        );
    }
    // The blocks read may have been written and never synced; from now on they count as durable.
    segments.sync_from(Lsn(end.0.saturating_sub(MAX_RING)), end)?;
    // Zeros come first: until the end is padded, these bytes are past the end.
    let mut at = Lsn(end.0.next_multiple_of(SECTOR));
    while at < stale_until {
        let zeros = AlignedBuffer::zeroed((stale_until.0 - at.0).min(READ_BYTES) as usize);
        segments.write(at, &zeros)?;
        at = Lsn(at.0 + zeros.len() as u64);
    }
    if next > end {
        let from = Lsn(end.0 / SECTOR * SECTOR);
        let mut sectors = AlignedBuffer::zeroed((next.0 - from.0) as usize);
        segments.read(from, &mut sectors)?;
        let bytes = (next.0 - end.0) as usize;
        let header = BlockHeader::new(end, bytes, from, (0, 0), BlockKind::Skip);
        let start = (end.0 - from.0) as usize;
        sectors[start..].fill(0);
        sectors[start..start + HEADER_BYTES].copy_from_slice(header.as_bytes());
        segments.write(from, &sectors)?;
    }
    Ok(next)
}
