//! Space made ready ahead of the log: segments created, and zero-written, so that a flush
//! overwrites blocks the file system has already committed to, which is a third faster. A file that
//! was a segment before has such blocks already. While flushes are so large that this no longer
//! matters, space is only created: zeros would take half of the disk.
//!
//! One worker at a time does this, by asynchronous operations issued from its turns. Invariant:
//! zeros go only past the end of the prepared space, log writes only below.

use std::sync::Arc;

use super::flush::PREPARE_TOKEN;
use super::segment::{SegmentFile, Segments};
use super::{LogError, Lsn};
use crate::io::{
    AlignedBuffer, Completion, Device, File, MappedPointer, Operation, SECTOR_BYTES, WriteSource,
};
use crate::sync::OnceLock;

/// By how much less is made ready where logs and segments are small.
const LESS: u64 = if cfg!(braid_simulation) { 32 } else { 1 };
/// Zeros are written in pieces of this when the log waits for them.
const PIECE_BYTES: u64 = (1 << 20) / LESS;
/// Else a piece of this at a time, so that a flush never finds many before it at the disk; and so much
/// between two syncs.
const SMALL_PIECE_BYTES: u64 = (128 << 10) / LESS;
const STEP_BYTES: u64 = (4 << 20) / LESS;
/// How far ahead of the tail space is made ready; less until the log has grown by as much.
const AHEAD_BYTES: u64 = (16 << 20) / LESS;
/// Where this much waits to be flushed, flushes are large.
const LARGE_BACKLOG: u64 = (1 << 20) / LESS;

/// One step of preparation, in the hands of one worker.
#[derive(Debug)]
pub(super) struct Preparation {
    stage: Stage,
    /// Operations of this stage under way.
    outstanding: usize,
    failed: Option<LogError>,
}

#[derive(Debug)]
enum Stage {
    /// The header of a segment is being written.
    Header { index: u64, segment: SegmentFile },
    /// The name of a new file is being made durable.
    Name { index: u64, segment: SegmentFile },
    /// Zeros up to `at` are being written, to be followed by those up to `to`.
    Zeros { at: Lsn, to: Lsn, file: Arc<File> },
    /// Zeros up to `to` are being made durable.
    Sync { to: Lsn, file: Arc<File> },
}

impl Preparation {
    fn new(stage: Stage, outstanding: usize) -> Option<Self> {
        Some(Self { stage, outstanding, failed: None })
    }

    /// Takes the completion of one of its operations.
    pub(super) fn complete(&mut self, completion: Completion) {
        assert!(self.outstanding > 0, "completions are of operations under way");
        self.outstanding -= 1;
        if let Err(error) = completion.result {
            let (Stage::Header { segment: SegmentFile { file, .. }, .. }
            | Stage::Name { segment: SegmentFile { file, .. }, .. }
            | Stage::Zeros { file, .. }
            | Stage::Sync { file, .. }) = &self.stage;
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
    ) -> Result<Prepared, LogError> {
        let mut prepared = Prepared::default();
        loop {
            match state.take() {
                None => {
                    let ahead = (tail.0 - started.0).clamp(PIECE_BYTES, AHEAD_BYTES);
                    if !self.prepared.begin(Lsn(tail.0 + ahead)) {
                        return Ok(prepared);
                    }
                    *state = self.begin(device, submitted, tail)?;
                }
                Some(waits) if waits.outstanding > 0 => {
                    *state = Some(waits);
                    return Ok(prepared);
                }
                Some(Preparation { failed: Some(error), .. }) => return Err(error),
                Some(Preparation { stage, .. }) => {
                    *state = self.advance(stage, device, &mut prepared)?;
                }
            }
            if state.is_none() {
                self.prepared.finish();
            }
        }
    }

    fn begin(
        &self,
        device: &mut dyn Device,
        submitted: Lsn,
        tail: Lsn,
    ) -> Result<Option<Preparation>, LogError> {
        let from = self.prepared.end();
        let index = self.index(from);
        let Some((file, _)) = self.locate(from) else {
            let segment = match self.spares.take() {
                Some(segment) => segment,
                None => self.create_file(index)?,
            };
            let (file, offset) = (segment.file.clone(), 0);
            let source = WriteSource::Buffer(self.identity.segment_header(self.start(index)));
            device.submit(Operation::Write { file, offset, source, sync: true }, PREPARE_TOKEN);
            return Ok(Preparation::new(Stage::Header { index, segment }, 1));
        };
        if tail.0 >= submitted.0 + LARGE_BACKLOG || self.was_written(from) {
            self.set_prepared(Lsn(from.0 + AHEAD_BYTES.min(self.rest(from))));
            return Ok(None);
        }
        // Little in all, but at once, when the log is already waiting.
        let waits = from.0 < tail.0 + PIECE_BYTES;
        let (step, piece) =
            if waits { (PIECE_BYTES, PIECE_BYTES) } else { (STEP_BYTES, SMALL_PIECE_BYTES) };
        let to = Lsn(from.0 + step.min(self.rest(from)));
        Ok(self.write_zeros(device, file, from, to, piece))
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
        Preparation::new(Stage::Zeros { at: Lsn(at.0 + bytes), to, file }, 1)
    }

    fn advance(
        &self,
        stage: Stage,
        device: &mut dyn Device,
        prepared: &mut Prepared,
    ) -> Result<Option<Preparation>, LogError> {
        match stage {
            Stage::Header { index, segment } if !segment.written => {
                let segment = self.name_file(index)?;
                let directory = self.directory.handle().clone();
                device.submit(Operation::Sync { file: directory }, PREPARE_TOKEN);
                Ok(Preparation::new(Stage::Name { index, segment }, 1))
            }
            Stage::Header { index, segment } | Stage::Name { index, segment } => {
                prepared.segments += 1;
                prepared.reused += u64::from(segment.written);
                self.add_file(index, segment);
                Ok(None)
            }
            Stage::Zeros { at, to, file } if at < to => {
                Ok(self.write_zeros(device, file, at, to, SMALL_PIECE_BYTES))
            }
            Stage::Zeros { to, file, .. } => {
                device.submit(Operation::Sync { file: file.clone() }, PREPARE_TOKEN);
                Ok(Preparation::new(Stage::Sync { to, file }, 1))
            }
            Stage::Sync { to, .. } => {
                self.set_prepared(to);
                Ok(None)
            }
        }
    }
}

/// What a turn of preparation achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prepared {
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
