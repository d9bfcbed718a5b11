//! Preparation of space ahead of the log. Segments are created, the first file of a small log is
//! extended, and both are filled with zeros. A flush then overwrites allocated blocks of the file
//! system, which is a third faster. The file of a reused segment already has such blocks. While
//! flushes are so large that this does not matter, space is only allocated: writing zeros would
//! take half of the disk bandwidth.
//!
//! One worker at a time does this, with asynchronous operations issued from its turns. If a step
//! fails before the segment has its name, nothing of it remains. No log block was to be written
//! there yet, so the demands for it are refused, and the next demand tries again. A later failure
//! fails the log. Invariant: zeros are written only beyond the end of the prepared space, and log
//! blocks only below it.

use std::sync::Arc;
use std::time::Instant;

use super::extent::{BlockPurpose, DueExtension};
use super::segment::Segments;
use super::segment_file::SegmentFile;
use super::{LogError, Lsn};
use crate::io::{
    AlignedBuffer, Completion, Device, File, MappedPointer, Operation, SECTOR_BYTES, WriteSource,
};
use crate::sched;
use crate::sync::OnceLock;

/// Token of operations that prepare space, which are operations of the log.
pub(super) const PREPARE_TOKEN: u64 = sched::HOUSEKEEPING_TOKEN | 1 << 62;

/// Divisor of the prepared space for simulations, where logs and segments are small.
const SCALE_DIVISOR: u64 = if cfg!(braid_simulation) { 32 } else { 1 };
/// Size of a write of zeros when the log waits for it, in bytes.
const PIECE_BYTES: u64 = (1 << 20) / SCALE_DIVISOR;
/// Size of a write of zeros otherwise, so that a flush never queues behind many of them. Also the
/// amount between two syncs.
const SMALL_PIECE_BYTES: u64 = (128 << 10) / SCALE_DIVISOR;
const STEP_BYTES: u64 = (4 << 20) / SCALE_DIVISOR;
/// Bytes prepared ahead of the tail. Until this many were logged since the log was opened: as many
/// as were logged, at least one piece.
const MAX_PREPARED_BYTES: u64 = (16 << 20) / SCALE_DIVISOR;
/// With this many bytes waiting for a flush, flushes are large.
const MIN_LARGE_BACKLOG_BYTES: u64 = (1 << 20) / SCALE_DIVISOR;
/// If fewer than this many segments fit on the disk, segments are created only on demand. Otherwise
/// the log is extended ahead of need by at most this part of the free space.
const MIN_FREE_SEGMENTS: u64 = 4;

/// One preparation step, owned by one worker.
#[derive(Debug)]
pub(super) struct Preparation {
    stage: PreparationStage,
    /// Operations of this stage in flight.
    outstanding: usize,
    failed: Option<LogError>,
}

#[derive(Debug)]
enum PreparationStage {
    /// The header of a segment is being written; durably, if its file was another segment before.
    Header { index: u64, segment: SegmentFile, due: DueExtension },
    /// A new file is being made durable: its length, and the header that states it.
    File { index: u64, segment: SegmentFile, due: DueExtension },
    /// The name of a new file is being made durable.
    Name { index: u64, segment: SegmentFile, due: DueExtension },
    /// The new length of the last file, which ends at `to`, is being made durable.
    Length { to: Lsn, file: Arc<File>, due: DueExtension },
    /// The header that states this length is being written durably.
    LengthInHeader { to: Lsn, file: Arc<File>, due: DueExtension },
    /// Zeros up to `at` are being written; zeros up to `to` follow.
    Zeros { at: Lsn, to: Lsn, file: Arc<File> },
    /// Zeros up to `to` are being made durable.
    Sync { to: Lsn, file: Arc<File> },
}

/// An extension of the log.
enum LogAddition {
    /// A file that becomes the next segment.
    Segment(SegmentFile),
    /// A longer last file, with its new end.
    Length(Arc<File>, Lsn),
}

/// The next preparation step.
enum PreparationStep {
    /// Extend the log.
    Extend(DueExtension),
    /// Prepare the existing space beyond the prepared part.
    MakeReady,
}

impl Preparation {
    fn new(stage: PreparationStage, outstanding: usize) -> Option<Self> {
        Some(Self { stage, outstanding, failed: None })
    }

    /// Handles the completion of one of its operations.
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
    /// Continues the preparation as far as possible without waiting. Returns whether space became
    /// ready. `started` is where this run of the log began; everything before `submitted` was
    /// submitted to disk.
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
            // An extension that ended in this turn may have begun a pause.
            prepared.paused_until = self.pace.paused_until();
            let is_paused = prepared.paused_until.is_some();
            match state.take() {
                None => {
                    if !self.prepared.begin(|| self.next_step(tail, ahead, is_paused).is_some()) {
                        return Ok(prepared);
                    }
                    // A second check: the previous preparer may have done it in between.
                    *state = match self.next_step(tail, ahead, is_paused) {
                        Some(PreparationStep::Extend(due)) => self.extend(due, is_paused, device),
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

    /// Returns whether the disk has space for an extension. Without it, a pause is no use, and upkeep
    /// must learn that the extension fails.
    fn has_room(&self) -> bool {
        !self.extent.is_withdrawn() && !self.extent.is_short() && !self.is_disk_tight()
    }

    /// Returns the next step. While `is_paused`, that is no extension for changes.
    fn next_step(&self, tail: Lsn, ahead: u64, is_paused: bool) -> Option<PreparationStep> {
        let prepared = self.prepared.end();
        let unready = prepared.0 < tail.0 + ahead && prepared < self.extent.end();
        // A small log should not take the space of a segment long before it needs it.
        let ahead_on_disk = ahead.min(self.count() as u64 * self.segment_bytes() / 8);
        let waits = |due: &DueExtension| {
            is_paused && due.purpose == BlockPurpose::Change && self.has_room()
        };
        match self.extent.due(tail, ahead_on_disk).filter(|due| !waits(due)) {
            // Flushes may wait for unprepared space, but no transaction waits for an extension
            // without demand.
            Some(due) if due.demanded || !unready => Some(PreparationStep::Extend(due)),
            _ => unready.then_some(PreparationStep::MakeReady),
        }
    }

    /// Starts an extension of the log. Returns `None` if it is already complete, or failed.
    fn extend(
        &self,
        due: DueExtension,
        is_paused: bool,
        device: &mut dyn Device,
    ) -> Option<Preparation> {
        match self.addition(due, is_paused) {
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

    /// Returns the extension to make; `None` if none is necessary, or none may be made yet. While
    /// `is_paused`, changes get no share of an extension for deletions.
    fn addition(
        &self,
        due: DueExtension,
        is_paused: bool,
    ) -> Result<Option<LogAddition>, LogError> {
        let upkeep = due.purpose == BlockPurpose::Upkeep;
        if !upkeep {
            // The reserve comes first, so that the log never takes the space needed to recover from
            // a full disk. Deletions need only what upkeep takes to free their space.
            let bytes = if self.spares.count() > 0 { 0 } else { self.next_bytes() };
            let (held, deletes) = (self.hold_reserve(), due.purpose == BlockPurpose::Deletion);
            let admitted = match &held {
                Ok(()) if deletes && is_paused => BlockPurpose::Deletion,
                Ok(()) => BlockPurpose::Change,
                Err(_) if deletes && self.has_room_beside_upkeep(0) => BlockPurpose::Deletion,
                Err(_) => return held.map(|()| None),
            };
            if self.paced(|| self.extent.share(admitted)) {
                return Ok(None);
            }
            // A complete reserve covers an extension for deletions too.
            let may_extend =
                if held.is_err() || deletes { self.yield_reserve(bytes) } else { true };
            if held.is_err() && !may_extend {
                return held.map(|()| None);
            }
        }
        // A segment after the tail cannot be freed, but a spare file can.
        if !due.demanded {
            let room = self.room_ahead();
            if room < self.next_bytes() {
                self.extent.stall();
                return Ok(None);
            }
            if room < due.ahead {
                self.extent.limit_ahead(room);
                return Ok(None);
            }
        }
        let is_whole = self.missing_bytes() == 0;
        if is_whole && let Some(spare) = self.take_unread_spare() {
            return Ok(Some(LogAddition::Segment(spare)));
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

    /// Makes space usable. The pause begins if changes get some and no larger block waits for more.
    fn paced<R>(&self, extend: impl FnOnce() -> R) -> R {
        let before = self.extent.limit(BlockPurpose::Change);
        let result = extend();
        let bytes = self.extent.limit(BlockPurpose::Change).saturating_sub(before);
        if bytes > 0 && !self.extent.is_demanded(BlockPurpose::Change) {
            self.pace.note_extension(bytes);
        }
        result
    }

    /// Returns whether the disk is nearly full once the reserve is complete.
    pub(super) fn is_disk_tight(&self) -> bool {
        self.room_ahead() < self.next_bytes()
    }

    /// Returns the maximum number of bytes by which the log is extended ahead of need: a small part
    /// of the disk space that is free once the reserve is complete.
    fn room_ahead(&self) -> u64 {
        let free = self.directory.available_bytes().saturating_sub(self.missing_reserve());
        free / MIN_FREE_SEGMENTS
    }

    /// Refuses an extension that failed. An extension without demand is postponed.
    fn refuse(&self, due: DueExtension, error: LogError) {
        if due.demanded {
            self.extent.refuse(due.purpose, LogError::cannot_grow(error));
        } else {
            self.extent.stall();
        }
    }

    /// Abandons a failed step.
    ///
    /// # Errors
    /// The failure, if the log cannot continue after it.
    fn give_up(&self, stage: PreparationStage, error: LogError) -> Result<(), LogError> {
        let (PreparationStage::Header { index, segment, due }
        | PreparationStage::File { index, segment, due }) = stage
        else {
            return Err(error);
        };
        if segment.written {
            // It is unknown which segment the file's header names.
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

    /// Starts to prepare more of the existing space.
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
        // If the log already waits, prepares a small amount immediately.
        let waits = from.0 < tail.0 + PIECE_BYTES;
        let (step, piece) =
            if waits { (PIECE_BYTES, PIECE_BYTES) } else { (STEP_BYTES, SMALL_PIECE_BYTES) };
        let to = Lsn(from.0 + step.min(rest));
        self.write_zeros(device, file, from, to, piece)
    }

    /// Starts to write one piece of zeros at `at`, on the way to `to`.
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
                self.paced(|| self.extent.extend(self.end(), due.purpose));
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
                self.paced(|| self.extent.extend(to, due.purpose));
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

/// The result of a preparation turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PreparationResult {
    /// Segments that came into use.
    pub(super) segments: u64,
    /// Segments among these with a reused file.
    pub(super) reused: u64,
    /// The end of the pause for which an extension may have been withheld.
    pub(super) paused_until: Option<Instant>,
}

/// Returns `bytes` zeros, at most one piece, in memory shared by all preparations.
fn zeros(bytes: u64) -> WriteSource {
    static ZEROS: OnceLock<Arc<AlignedBuffer>> = OnceLock::new();
    assert!(bytes <= PIECE_BYTES && bytes.is_multiple_of(SECTOR_BYTES as u64));
    let mapping = ZEROS.get_or_init(|| Arc::new(AlignedBuffer::zeroed(PIECE_BYTES as usize)));
    let pointer = MappedPointer(mapping.as_ptr());
    WriteSource::Mapped { mapping: mapping.clone(), pointer, bytes: bytes as usize }
}
