//! Space made ready ahead of the log: segments created, the first of a small log made longer, and zero-written, so that a flush
//! overwrites blocks the file system has already committed to, which is a third faster. A file that
//! was a segment before has such blocks already. While flushes are so large that this no longer
//! matters, space is only created: zeros would take half of the disk.
//!
//! One worker at a time does this, by asynchronous operations issued from its turns. What fails before
//! a segment has its name leaves nothing behind, and no block of the log was to be there yet: it is
//! refused to those who wait for it, and tried again when it is asked for again. What fails later
//! fails the log. Invariant: zeros go only past the end of the
//! prepared space, log writes only below.

use std::sync::Arc;

use super::extent::{BlockPurpose, DueExtension};
use super::flush::PREPARE_TOKEN;
use super::segment::{SegmentFile, Segments};
use super::{LogError, Lsn};
use crate::io::{
    AlignedBuffer, Completion, Device, File, MappedPointer, Operation, SECTOR_BYTES, WriteSource,
};
use crate::sync::OnceLock;

/// By how much less is made ready where logs and segments are small.
const SCALE_DIVISOR: u64 = if cfg!(braid_simulation) { 32 } else { 1 };
/// Zeros are written in pieces of this when the log waits for them.
const PIECE_BYTES: u64 = (1 << 20) / SCALE_DIVISOR;
/// Else a piece of this at a time, so that a flush never finds many before it at the disk; and so much
/// between two syncs.
const SMALL_PIECE_BYTES: u64 = (128 << 10) / SCALE_DIVISOR;
const STEP_BYTES: u64 = (4 << 20) / SCALE_DIVISOR;
/// How far ahead of the tail space is made ready; less until the log has grown by as much.
const MAX_PREPARED_BYTES: u64 = (16 << 20) / SCALE_DIVISOR;
/// Where this much waits to be flushed, flushes are large.
const MIN_LARGE_BACKLOG_BYTES: u64 = (1 << 20) / SCALE_DIVISOR;
/// No segment is made before it is asked for where so many would not fit on the disk.
const MIN_FREE_SEGMENTS: u64 = 4;

/// One step of preparation, in the hands of one worker.
#[derive(Debug)]
pub(super) struct Preparation {
    stage: PreparationStage,
    /// Operations of this stage under way.
    outstanding: usize,
    failed: Option<LogError>,
}

#[derive(Debug)]
enum PreparationStage {
    /// The header of a segment is being written; durably, if its file was another segment before.
    Header { index: u64, segment: SegmentFile, due: DueExtension },
    /// A new file is being made durable: its length, and its header, which says it.
    File { index: u64, segment: SegmentFile, due: DueExtension },
    /// The name of a new file is being made durable.
    Name { index: u64, segment: SegmentFile, due: DueExtension },
    /// The last file, which ends at `to` now, is being made durable at that length.
    Length { to: Lsn, file: Arc<File>, due: DueExtension },
    /// Its header is being written durably, which says so.
    LengthInHeader { to: Lsn, file: Arc<File>, due: DueExtension },
    /// Zeros up to `at` are being written, to be followed by those up to `to`.
    Zeros { at: Lsn, to: Lsn, file: Arc<File> },
    /// Zeros up to `to` are being made durable.
    Sync { to: Lsn, file: Arc<File> },
}

/// What the log is extended by.
enum LogAddition {
    /// A file, to become the next segment.
    Segment(SegmentFile),
    /// What the last file was made longer by; where it ends now.
    Length(Arc<File>, Lsn),
}

/// What is to be prepared next.
enum PreparationStep {
    /// The log is to be extended.
    Extend(DueExtension),
    /// What is there past the prepared space is to be prepared.
    MakeReady,
}

impl Preparation {
    fn new(stage: PreparationStage, outstanding: usize) -> Option<Self> {
        Some(Self { stage, outstanding, failed: None })
    }

    /// Takes the completion of one of its operations.
    pub(super) fn complete(&mut self, completion: Completion) {
        assert!(self.outstanding > 0, "completions are of operations under way");
        self.outstanding -= 1;
        if let Err(error) = completion.result {
            let (PreparationStage::Header { segment: SegmentFile { file, .. }, .. }
            | PreparationStage::File { segment: SegmentFile { file, .. }, .. }
            | PreparationStage::Name { segment: SegmentFile { file, .. }, .. }
            | PreparationStage::Length { file, .. }
            | PreparationStage::LengthInHeader { file, .. }
            | PreparationStage::Zeros { file, .. }
            | PreparationStage::Sync { file, .. }) = &self.stage;
            self.failed = Some(LogError::io("prepare", file.path(), 0, error));
        }
    }
}

impl Segments {
    /// Carries the preparation on as far as it goes without waiting; whether anything was made
    /// ready. `started` is where this run of the log began, and everything before `submitted` is on
    /// its way to disk.
    pub(super) fn prepare(
        &self,
        state: &mut Option<Preparation>,
        device: &mut dyn Device,
        started: Lsn,
        submitted: Lsn,
        tail: Lsn,
    ) -> Result<PreparationResult, LogError> {
        let mut prepared = PreparationResult::default();
        let ahead = (tail.0 - started.0).clamp(PIECE_BYTES, MAX_PREPARED_BYTES);
        loop {
            match state.take() {
                None => {
                    if !self.prepared.begin(|| self.next_step(tail, ahead).is_some()) {
                        return Ok(prepared);
                    }
                    // Another look: the last preparer may have done it meanwhile.
                    *state = match self.next_step(tail, ahead) {
                        Some(PreparationStep::Extend(due)) => self.extend(due, device),
                        Some(PreparationStep::MakeReady) => {
                            self.begin_ready(device, submitted, tail)
                        }
                        None => None,
                    };
                }
                Some(waits) if waits.outstanding > 0 => {
                    *state = Some(waits);
                    return Ok(prepared);
                }
                Some(Preparation { failed: Some(error), stage, .. }) => {
                    self.give_up(stage, error)?
                }
                Some(Preparation { stage, .. }) => {
                    *state = self.advance(stage, device, &mut prepared)?;
                }
            }
            if state.is_none() {
                self.prepared.finish();
            }
        }
    }

    fn next_step(&self, tail: Lsn, ahead: u64) -> Option<PreparationStep> {
        let prepared = self.prepared.end();
        let unready = prepared.0 < tail.0 + ahead && prepared < self.extent.end();
        match self.extent.due(tail, ahead) {
            // Flushes may wait for what is not ready, and nobody for what is not demanded.
            Some(due) if due.demanded || !unready => Some(PreparationStep::Extend(due)),
            _ => unready.then_some(PreparationStep::MakeReady),
        }
    }

    /// Starts to extend the log; `None` if that is done, or cannot be.
    fn extend(&self, due: DueExtension, device: &mut dyn Device) -> Option<Preparation> {
        match self.addition(due) {
            Ok(Some(LogAddition::Length(file, to))) => {
                device.submit(Operation::Sync { file: file.clone() }, PREPARE_TOKEN);
                Preparation::new(PreparationStage::Length { to, file, due }, 1)
            }
            Ok(Some(LogAddition::Segment(segment))) => {
                let index = self.index(self.extent.end());
                let bytes = self.bytes_when_made(index);
                let header = self.identity.segment_header(self.start(index), bytes);
                let (file, source) = (segment.file.clone(), WriteSource::Buffer(header));
                let write = Operation::Write { file, offset: 0, source, sync: segment.written };
                device.submit(write, PREPARE_TOKEN);
                Preparation::new(PreparationStage::Header { index, segment, due }, 1)
            }
            Ok(None) => None,
            Err(error) => {
                self.refuse(due, error);
                None
            }
        }
    }

    /// What the log is to be extended by; `None` if nothing is needed, or nothing is to be made yet.
    fn addition(&self, due: DueExtension) -> Result<Option<LogAddition>, LogError> {
        let upkeep = due.purpose == BlockPurpose::Upkeep;
        if !upkeep {
            // First, so that the log never takes the room that leads out of a full disk.
            self.hold_reserve()?;
            if self.extent.share() {
                return Ok(None);
            }
        }
        let is_whole = self.missing_bytes() == 0;
        if is_whole && let Some(spare) = self.take_unread_spare() {
            return Ok(Some(LogAddition::Segment(spare)));
        }
        if !due.demanded && self.is_disk_tight() {
            self.extent.stall();
            return Ok(None);
        }
        let make = || match is_whole {
            true => self.create_file(self.index(self.end())).map(LogAddition::Segment),
            false => self.lengthen().map(|(file, to)| LogAddition::Length(file, to)),
        };
        match make() {
            Err(error) if upkeep && error.is_full() && self.lend_reserve() => make().map(Some),
            made => made.map(Some),
        }
    }

    /// Whether the disk is nearly full.
    pub(super) fn is_disk_tight(&self) -> bool {
        self.directory.available_bytes() / self.next_bytes() < MIN_FREE_SEGMENTS
    }

    /// Refuses an extension that cannot be made; one that nobody waits for is put off.
    fn refuse(&self, due: DueExtension, error: LogError) {
        if due.demanded {
            self.extent.refuse(due.purpose, LogError::cannot_grow(error));
        } else {
            self.extent.stall();
        }
    }

    /// Gives up a step that failed.
    ///
    /// # Errors
    /// The failure, if the log cannot go on after it.
    fn give_up(&self, stage: PreparationStage, error: LogError) -> Result<(), LogError> {
        let (PreparationStage::Header { index, segment, due }
        | PreparationStage::File { index, segment, due }) = stage
        else {
            return Err(error);
        };
        if segment.written {
            // Nobody knows which segment its header says that it is.
            let name = segment.name();
            drop(segment);
            if self.directory.remove(&name).is_err() {
                return Err(error);
            }
        } else {
            drop(segment);
            self.remove_unfinished(index);
        }
        self.refuse(due, error);
        Ok(())
    }

    /// Starts to make more of what is there ready.
    fn begin_ready(
        &self,
        device: &mut dyn Device,
        submitted: Lsn,
        tail: Lsn,
    ) -> Option<Preparation> {
        let from = self.prepared.end();
        let (file, _) = self.locate(from).expect("the extent is in segments that exist");
        let rest = self.rest_on_disk(from);
        if tail.0 >= submitted.0 + MIN_LARGE_BACKLOG_BYTES || self.was_written(from) {
            self.set_prepared(Lsn(from.0 + MAX_PREPARED_BYTES.min(rest)));
            return None;
        }
        // Little in all, but at once, when the log is already waiting.
        let waits = from.0 < tail.0 + PIECE_BYTES;
        let (step, piece) =
            if waits { (PIECE_BYTES, PIECE_BYTES) } else { (STEP_BYTES, SMALL_PIECE_BYTES) };
        let to = Lsn(from.0 + step.min(rest));
        self.write_zeros(device, file, from, to, piece)
    }

    /// Starts to write zeros from `at` on, a piece, on the way to `to`.
    fn write_zeros(
        &self,
        device: &mut dyn Device,
        file: Arc<File>,
        at: Lsn,
        to: Lsn,
        piece: u64,
    ) -> Option<Preparation> {
        let bytes = piece.min(to.0 - at.0);
        let (_, offset) = self.place(at);
        let (source, target) = (zeros(bytes), file.clone());
        device
            .submit(Operation::Write { file: target, offset, source, sync: false }, PREPARE_TOKEN);
        Preparation::new(PreparationStage::Zeros { at: Lsn(at.0 + bytes), to, file }, 1)
    }

    fn advance(
        &self,
        stage: PreparationStage,
        device: &mut dyn Device,
        prepared: &mut PreparationResult,
    ) -> Result<Option<Preparation>, LogError> {
        match stage {
            PreparationStage::Header { index, segment, due } if !segment.written => {
                device.submit(Operation::Sync { file: segment.file.clone() }, PREPARE_TOKEN);
                Ok(Preparation::new(PreparationStage::File { index, segment, due }, 1))
            }
            PreparationStage::File { index, segment, due } => {
                let named = match self.name_file(index, &segment) {
                    Ok(named) => named,
                    Err(error) => {
                        self.give_up(PreparationStage::File { index, segment, due }, error)?;
                        return Ok(None);
                    }
                };
                let directory = self.directory.handle().clone();
                device.submit(Operation::Sync { file: directory }, PREPARE_TOKEN);
                Ok(Preparation::new(PreparationStage::Name { index, segment: named, due }, 1))
            }
            PreparationStage::Header { index, segment, due }
            | PreparationStage::Name { index, segment, due } => {
                prepared.segments += 1;
                prepared.reused += u64::from(segment.written);
                self.add_file(index, segment);
                self.extent.extend(self.end(), due.purpose);
                Ok(None)
            }
            PreparationStage::Length { to, file, due } => {
                let source = WriteSource::Buffer(self.header_of_length(to));
                let write = Operation::Write { file: file.clone(), offset: 0, source, sync: true };
                device.submit(write, PREPARE_TOKEN);
                Ok(Preparation::new(PreparationStage::LengthInHeader { to, file, due }, 1))
            }
            PreparationStage::LengthInHeader { to, due, .. } => {
                self.set_end(to);
                self.extent.extend(to, due.purpose);
                Ok(None)
            }
            PreparationStage::Zeros { at, to, file } if at < to => {
                Ok(self.write_zeros(device, file, at, to, SMALL_PIECE_BYTES))
            }
            PreparationStage::Zeros { to, file, .. } => {
                device.submit(Operation::Sync { file: file.clone() }, PREPARE_TOKEN);
                Ok(Preparation::new(PreparationStage::Sync { to, file }, 1))
            }
            PreparationStage::Sync { to, .. } => {
                self.set_prepared(to);
                Ok(None)
            }
        }
    }
}

/// What a turn of preparation achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PreparationResult {
    /// Segments that came into use.
    pub(super) segments: u64,
    /// Of these, ones whose file was another segment's before.
    pub(super) reused: u64,
}

/// `bytes` zeros, at most a piece, in memory all preparations share.
fn zeros(bytes: u64) -> WriteSource {
    static ZEROS: OnceLock<Arc<AlignedBuffer>> = OnceLock::new();
    assert!(bytes <= PIECE_BYTES && bytes.is_multiple_of(SECTOR_BYTES as u64));
    let mapping = ZEROS.get_or_init(|| Arc::new(AlignedBuffer::zeroed(PIECE_BYTES as usize)));
    let pointer = MappedPointer(mapping.as_ptr());
    WriteSource::Mapped { mapping: mapping.clone(), pointer, bytes: bytes as usize }
}
