//! Reads of single records from segments: the log as the store of records that are not in memory.

use crate::types::OnDisk;
use std::sync::{Arc, Weak};

use super::record::{RECORD_HEADER_BYTES, RecordHeader, RecordView, split_record};
use super::segment::Segments;
use super::{LogError, Lsn, MAX_LARGE_BLOCK_BYTES, WeakLogFiles};
use crate::io::{AlignedBuffer, SECTOR_BYTES};
use crate::sched;

/// The durable part of a log, as a store of records at positions. It does not keep the log open;
/// the reading transactions do.
#[derive(Clone, Debug)]
pub(crate) struct ColdStore(Weak<Segments>);

/// A record read from a segment, with a verified checksum.
#[derive(Debug)]
pub(crate) struct ColdRecord {
    memory: AlignedBuffer,
    start: usize,
}

impl ColdRecord {
    pub(crate) fn view(&self) -> RecordView<'_> {
        split_record(&self.memory[self.start..]).expect("checked when it was read").0
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }
}

/// A range of the log that was read in one operation.
#[derive(Debug)]
pub(crate) struct ColdSpan {
    memory: AlignedBuffer,
    at: Lsn,
}

impl ColdSpan {
    /// Returns the memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Returns the record at a position, if it is complete and its checksum matches.
    pub(crate) fn record(&self, lsn: Lsn) -> Option<RecordView<'_>> {
        let start = lsn.0.checked_sub(self.at.0)?;
        whole_record(self.memory.get(start as usize..)?)
    }
}

/// Returns the record at the start of `bytes`, if it is complete and its checksum matches.
fn whole_record(bytes: &[u8]) -> Option<RecordView<'_>> {
    let (header, _) = RecordHeader::ref_from_prefix(bytes)?;
    let (record, _) = split_record(bytes)?;
    header.verifies(bytes).then_some(record)
}

/// Returns the sector of a position, and the offset in the sector.
fn sector_of(lsn: Lsn) -> (Lsn, usize) {
    let place = lsn.0 % SECTOR_BYTES as u64;
    (Lsn(lsn.0 - place), place as usize)
}

impl ColdStore {
    /// Returns the other files in the log's directory.
    pub(crate) fn files(&self) -> WeakLogFiles {
        WeakLogFiles::new(self.0.clone())
    }

    pub(super) fn new(segments: &Arc<Segments>) -> Self {
        Self(Arc::downgrade(segments))
    }

    fn segments(&self) -> Arc<Segments> {
        self.0.upgrade().expect("an active transaction keeps the log open")
    }

    /// Reads the record at a durable position. `bytes` is the size of the first read.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if no complete record is there.
    pub(crate) async fn read(&self, lsn: Lsn, bytes: usize) -> Result<ColdRecord, LogError> {
        let ColdSpan { memory, .. } = self.read_span(lsn, lsn, bytes).await?;
        let (_, start) = sector_of(lsn);
        if whole_record(&memory[start..]).is_none() {
            return Err(self.damaged(lsn, "a record's checksum is wrong"));
        }
        Ok(ColdRecord { memory, start })
    }

    /// Reads the log from the record at `first` to the record at `last`. The range must be durable,
    /// and its segments must exist. `bytes` is the assumed size of the last record for the first
    /// read.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if a segment is missing, or the last record is longer than
    /// any valid one.
    pub(crate) async fn read_span(
        &self,
        first: Lsn,
        last: Lsn,
        bytes: usize,
    ) -> Result<ColdSpan, LogError> {
        let (mut bytes, mut needed) = (bytes.max(RECORD_HEADER_BYTES), RECORD_HEADER_BYTES);
        let (at, _) = sector_of(first);
        let start = (last.0 - at.0) as usize;
        loop {
            let (memory, read) = self.read_sectors(at, start + needed, start + bytes).await?;
            let header = RecordHeader::ref_from_prefix(&memory[start..]);
            let (header, _) = header.expect("read at least a header");
            let whole = header.record_bytes();
            if whole > MAX_LARGE_BLOCK_BYTES {
                return Err(self.damaged(last, "a record is longer than the maximum"));
            }
            if start + whole <= read {
                return Ok(ColdSpan { memory, at });
            }
            (bytes, needed) = (whole, whole);
        }
    }

    /// Returns the size of a page of paged tables, in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.segments().identity.page_bytes
    }

    /// Returns the size of a segment in bytes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments().segment_bytes()
    }

    /// Reads the log from one durable position to a later one, up to the end of the segment.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if the segment is missing.
    pub(crate) async fn read_segment_span(&self, from: Lsn, to: Lsn) -> Result<ColdSpan, LogError> {
        let (at, _) = sector_of(from);
        let bytes = to.0.saturating_sub(at.0).clamp(1, self.rest_on_disk(at));
        Ok(ColdSpan { memory: self.read_piece(at, bytes as usize).await?, at })
    }

    /// Returns the error for damaged data at `lsn`.
    pub(crate) fn damaged(&self, lsn: Lsn, reason: &str) -> LogError {
        LogError::corrupt(self.segments().place(lsn), lsn, reason)
    }

    /// Reads from a sector on, and returns the bytes with their number: at least `needed`, and up
    /// to `bytes` if available. Everything beyond `needed` is read-ahead. It may lie in a segment
    /// that is being freed, so failures there are ignored.
    pub(super) async fn read_sectors(
        &self,
        from: Lsn,
        needed: usize,
        bytes: usize,
    ) -> Result<(AlignedBuffer, usize), LogError> {
        let piece = self.read_piece(from, bytes.min(self.rest_on_disk(from) as usize)).await?;
        let mut done = piece.len();
        if done >= bytes {
            return Ok((piece, done));
        }
        // A record may extend into the following segments.
        let mut whole = AlignedBuffer::zeroed(bytes);
        whole[..done].copy_from_slice(&piece);
        while done < bytes {
            let at = Lsn(from.0 + done as u64);
            let most = (bytes - done).min(self.rest_on_disk(at) as usize);
            match self.read_piece(at, most).await {
                Ok(piece) => {
                    let length = piece.len().min(whole.len() - done);
                    whole[done..done + length].copy_from_slice(&piece[..length]);
                    done += length;
                }
                Err(_) if done >= needed => break,
                Err(error) => return Err(error),
            }
        }
        Ok((whole, done))
    }

    /// Returns the bytes that can be read in one segment from a position on. The result is at least
    /// one, so that a read of a missing segment fails.
    fn rest_on_disk(&self, lsn: Lsn) -> u64 {
        self.segments().rest_on_disk(lsn).max(1)
    }

    /// Reads bytes of one segment, rounded up to whole sectors.
    async fn read_piece(&self, from: Lsn, bytes: usize) -> Result<AlignedBuffer, LogError> {
        let Some((file, offset)) = self.segments().locate(from) else {
            return Err(self.damaged(from, "a segment that holds records is missing"));
        };
        let buffer = AlignedBuffer::zeroed(bytes);
        let wanted = buffer.len();
        let (result, buffer) = sched::read(file.clone(), offset, buffer).await;
        let segments = self.segments();
        match result {
            Ok(read) => {
                segments.check_current(&file, from).await?;
                if read == wanted {
                    return Ok(buffer);
                }
                Err(self.damaged(from, "the segment is cut short"))
            }
            Err(error) => Err(segments.unreadable(&segments.place(from).0, offset, error)),
        }
    }
}
