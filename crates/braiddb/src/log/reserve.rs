//! The reserve: disk space that is held back, as a file without meaning, for what leads out of a
//! full disk.
//!
//! It has room for the next checkpoint, as large as that is estimated to be, and for what the one after it
//! takes beyond the room that the next one makes: otherwise there would be none for that. Once the log has
//! several segments, it has room for one more, or for several small ones, which compaction may fill with copies
//! before it frees others. The log is extended for transactions only while the reserve is whole; a checkpoint or
//! compaction that finds no room is lent it, and gives it back when it has made room, or is over. What is held
//! back beyond need is given up after a checkpoint, when the log is extended, and at opening.
//!
//! Invariants: `whole` is said only of a file that has at least the bytes asked for, all allocated;
//! what is lent is taken back by nobody else.

use super::error::says_full;
use super::identity::RESERVE_NAME;
use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{File, OpenMode, SECTOR_BYTES};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Segments from which on a segment is held back for compaction: where there are fewer, it has
/// nothing to gain.
const MIN_SEGMENTS: usize = 4;

/// Up to so many times what should be held back is kept: the rest is needed again before long.
pub(super) const EXTRA_SEGMENTS: u64 = 2;

/// The state of the reserve.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    file: Mutex<Option<File>>,
    /// Bytes that are held back.
    held: AtomicU64,
    /// Bytes that the next checkpoint will take, about.
    next_checkpoint: AtomicU64,
    /// Bytes that the one after it will take, without those that the next one makes room for.
    checkpoint_after: AtomicU64,
    whole: AtomicBool,
    /// A checkpoint or compaction uses it.
    lent: AtomicBool,
}

impl Reserve {
    /// Bytes that are held back.
    pub(super) fn held(&self) -> u64 {
        // Relaxed: changed under the lock of the file, read as a statistic.
        self.held.load(Ordering::Relaxed)
    }

    /// Closes the file, and leaves it where it is.
    pub(super) fn forget(&self) {
        self.file.lock().take();
    }

    /// Takes down what the next checkpoint will take, about, and how much more the one after it.
    pub(super) fn expect_checkpoints(&self, next: u64, after: u64) {
        // Relaxed: estimates.
        self.next_checkpoint.store(next, Ordering::Relaxed);
        self.checkpoint_after.store(after, Ordering::Relaxed);
    }

    /// Bytes that the next checkpoint will take, about.
    pub(super) fn next_checkpoint(&self) -> u64 {
        // Relaxed: an estimate.
        self.next_checkpoint.load(Ordering::Relaxed)
    }

    /// What is to be held back for checkpoints.
    fn for_checkpoints(&self) -> u64 {
        // Relaxed: an estimate.
        self.next_checkpoint() + self.checkpoint_after.load(Ordering::Relaxed)
    }

    /// Whether all is held back that should be, as far as was last tried.
    pub(super) fn is_whole(&self) -> bool {
        // Relaxed: a hint.
        self.whole.load(Ordering::Relaxed)
    }
}

impl Segments {
    /// How many segments are held back: of so many, three quarters of one or more are left to copies.
    fn segments_for_copies(&self) -> u64 {
        (self.extent.slack() + self.segment_bytes() / 4 * 3).div_ceil(self.segment_bytes())
    }

    fn reserve_target(&self) -> u64 {
        let segments = if self.count() < MIN_SEGMENTS { 0 } else { self.segments_for_copies() };
        (self.reserve.for_checkpoints() + segments * self.file_bytes())
            .next_multiple_of(SECTOR_BYTES as u64)
    }

    /// Holds back what should be, for an extension of the log.
    ///
    /// # Errors
    /// If there is no room, or it is lent; what was held back before is then held back still.
    pub(super) fn hold_reserve(&self) -> Result<(), LogError> {
        // Looked at under the lock under which it is lent: what is lent just now is taken back by nobody else.
        let mut file = self.reserve.file.lock();
        // Relaxed: written under the lock, but for the end of a loan; the lender's next attempt, at the latest, sees that.
        if self.reserve.lent.load(Ordering::Relaxed) {
            let path = self.directory.path().join(RESERVE_NAME);
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(LogError::io("extend the log while compaction uses", &path, 0, full));
        }
        self.hold_back(&mut file)
    }

    /// Holds back what should be, for whom it was lent to.
    ///
    /// # Errors
    /// If there is no room; what was held back before is then held back still.
    pub(super) fn reclaim_reserve(&self) -> Result<(), LogError> {
        self.hold_back(&mut self.reserve.file.lock())
    }

    /// Takes over what an earlier opening held back, if it has its room on the disk. Otherwise nothing is held back, until
    /// that is tried for the next time.
    pub(super) fn adopt_reserve(&self) {
        let mut file = self.reserve.file.lock();
        match self.open_earlier_reserve() {
            Ok((earlier, bytes)) => {
                *file = Some(earlier);
                // Relaxed: as in `hold_back`.
                self.reserve.held.store(bytes, Ordering::Relaxed);
            }
            Err(error) => tracing::debug!("nothing is held back yet: {error}"),
        }
    }

    fn open_earlier_reserve(&self) -> Result<(File, u64), LogError> {
        let file = self.directory.open_file(RESERVE_NAME, OpenMode::Existing)?;
        let fail = |error| LogError::io("take over space in", file.path(), 0, error);
        let bytes = file.length().map_err(fail)?;
        if bytes > 0 {
            // A copy of a database may have a file here that takes no room.
            file.allocate(bytes).map_err(fail)?;
        }
        Ok((file, bytes))
    }

    /// Gives up what is held back beyond what should be, if it is more than so many `times` that.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn shrink_reserve(&self, times: u64) -> Result<(), LogError> {
        let file = self.reserve.file.lock();
        let (Some(file), target) = (&*file, self.reserve_target()) else { return Ok(()) };
        if self.reserve.held() / times > target {
            let fail = |error| LogError::io("give space back in", file.path(), 0, error);
            file.truncate(target).map_err(fail)?;
            // Relaxed: as in `hold_back`.
            self.reserve.held.store(target, Ordering::Relaxed);
        }
        Ok(())
    }

    fn open_reserve<'f>(&self, file: &'f mut Option<File>) -> Result<&'f File, LogError> {
        Ok(match file {
            Some(file) => file,
            none => none.insert(self.directory.open_file(RESERVE_NAME, OpenMode::ExistingOrNew)?),
        })
    }

    fn hold_back(&self, file: &mut Option<File>) -> Result<(), LogError> {
        let (target, held) = (self.reserve_target(), self.reserve.held());
        // Relaxed, here and below: written under the lock of the file, but for the end of a loan; to those who read them
        // without it, hints and statistics.
        if held < target || held / EXTRA_SEGMENTS > target {
            self.reserve.whole.store(false, Ordering::Relaxed);
            let file = self.open_reserve(file)?;
            let resize = || match held > target {
                true => file.truncate(target),
                false => file.allocate(target).inspect_err(|_| {
                    // What was allocated of it, if anything, is given back, or is at least counted
                    // by nobody.
                    _ = file.truncate(held);
                }),
            };
            let mut resized = resize();
            // Files that are kept for the log to come are of no use to it while this is not whole.
            while resized.as_ref().is_err_and(says_full) && self.remove_spare() {
                resized = resize();
            }
            resized.map_err(|error| {
                let error = self.cannot_grow_by(target.saturating_sub(held), error);
                LogError::io("hold space back in", file.path(), 0, error)
            })?;
            // Relaxed, here and below: as above.
            self.reserve.held.store(target, Ordering::Relaxed);
        }
        self.reserve.whole.store(true, Ordering::Relaxed);
        self.reserve.lent.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Lends what was held back to those who make room, until they take it back or end the loan;
    /// whether there was anything.
    pub(super) fn lend_reserve(&self) -> bool {
        let file = self.reserve.file.lock();
        // Relaxed, here and below: as in `reclaim_reserve`.
        self.reserve.whole.store(false, Ordering::Relaxed);
        self.reserve.lent.store(true, Ordering::Relaxed);
        let (Some(file), true) = (&*file, self.reserve.held() > 0) else { return false };
        if let Err(error) = file.truncate(0) {
            tracing::warn!("cannot give up {}: {error}", file.path().display());
            return false;
        }
        // Relaxed: as in `reclaim_reserve`.
        self.reserve.held.store(0, Ordering::Relaxed);
        tracing::info!("the disk is full: the space in {} is used", file.path().display());
        true
    }

    /// Ends the loan of what was held back, whether it can be taken back or not: then it is tried again
    /// when the log is to be extended.
    pub(super) fn end_loan(&self) {
        if self.reclaim_reserve().is_err() {
            // Relaxed: see `hold_reserve`.
            self.reserve.lent.store(false, Ordering::Relaxed);
        }
        self.extent.resume();
    }

    /// Bytes that upkeep may yet log, the reserve included, a checkpoint's room left out.
    pub(super) fn room_for_upkeep(&self, tail: Lsn) -> u64 {
        let free = self.directory.available_bytes().saturating_add(self.reserve.held());
        let free = free.saturating_sub(self.reserve.next_checkpoint());
        // First the last file is made whole.
        let missing = self.missing_bytes();
        let more = free.checked_sub(missing).map_or(0, |free| {
            let segments = free / self.file_bytes() + self.spares.count() as u64;
            segments.saturating_mul(self.segment_bytes()).saturating_add(missing)
        });
        let end = self.extent.end().0.saturating_add(more);
        end.saturating_sub(tail.0 + self.extent.slack())
    }

    /// Bytes of a segment's file.
    pub(super) fn file_bytes(&self) -> u64 {
        HEADER_BYTES + self.segment_bytes()
    }
}
