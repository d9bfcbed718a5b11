//! The disk reserve: space held by a file without contents, for the operations that recover from a
//! full disk.
//!
//! The reserve covers the estimated size of the next checkpoint, and the part of the following one
//! that the next one does not free. It grows as pages become dirty. Once the log has several
//! segments, the reserve also covers another segment, or several small ones. Compaction can fill it
//! with copies before it frees other segments. With fewer segments, it covers an extension of the
//! log for deletions, once the disk is nearly full.
//!
//! The log is extended for transactions only while the reserve is complete. A checkpoint or
//! compaction that finds no space borrows the reserve. It restores the reserve when it has freed
//! space, or when it ends. Excess reserve is released after a checkpoint, when the log is extended,
//! and at opening.
//!
//! Invariants: `whole` is true only if the file has at least the required bytes, all allocated. A
//! borrowed reserve is restored only by its borrower.

use super::error::says_full;
use super::extent::BlockPurpose;
use super::identity::RESERVE_NAME;
use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{File, OpenMode, SECTOR_BYTES};
use crate::sync::atomic::Ordering;

/// Minimum number of segments for which a segment is reserved for compaction. With fewer segments,
/// compaction cannot free space.
const MIN_SEGMENTS: usize = 4;

/// An excess up to this factor is kept, because it will soon be needed again.
pub(super) const EXTRA_SEGMENTS: u64 = 2;

/// With free disk space for this many reserves, recovery does not use the reserve.
const MIN_FREE_RESERVES: u64 = 8;

impl Segments {
    /// Returns the number of segments to reserve. Three quarters of their space is available to
    /// copies.
    fn segments_for_copies(&self) -> u64 {
        (self.extent.slack() + self.segment_bytes() / 4 * 3).div_ceil(self.segment_bytes())
    }

    /// Returns the bytes to reserve for copies.
    fn bytes_for_copies(&self) -> u64 {
        let segments = if self.count() < MIN_SEGMENTS { 0 } else { self.segments_for_copies() };
        segments * self.file_space()
    }

    /// Returns the bytes to reserve for the deletions whose log a checkpoint cannot free: with few
    /// segments, an extension of the log, once the disk is nearly full.
    fn bytes_for_deletions(&self) -> u64 {
        let is_due = self.count() < MIN_SEGMENTS && self.is_disk_tight();
        if is_due { self.next_bytes() } else { 0 }
    }

    fn reserve_target(&self) -> u64 {
        let bytes =
            self.reserve.for_checkpoints() + self.bytes_for_copies() + self.bytes_for_deletions();
        bytes.next_multiple_of(SECTOR_BYTES as u64)
    }

    /// Returns the bytes by which the reserve is smaller than upkeep needs.
    pub(super) fn missing_reserve(&self) -> u64 {
        let needed = self.reserve.for_checkpoints() + self.bytes_for_copies();
        needed.saturating_sub(self.reserve.held())
    }

    /// Returns whether `bytes` of disk space are available beside the space that upkeep needs in
    /// any case. While the reserve is lent, its space counts as free, and what its borrower has
    /// written so far counts as needed again.
    pub(super) fn has_room_beside_upkeep(&self, bytes: u64) -> bool {
        let least = self.reserve.least() + self.bytes_for_copies();
        let free = self.directory.available_bytes().saturating_add(self.reserve.held());
        free >= least.saturating_add(bytes)
    }

    /// Frees `bytes` of disk space, from the reserve as far as necessary. Returns `false` if upkeep
    /// needs them. If the reserve is then incomplete, admits no more changes until it is complete.
    pub(super) fn yield_reserve(&self, bytes: u64) -> bool {
        let file = self.reserve.file.lock();
        // Relaxed: as in `hold_reserve`.
        if self.reserve.lent.load(Ordering::Relaxed) || !self.has_room_beside_upkeep(bytes) {
            return false;
        }
        let taken = bytes.saturating_sub(self.directory.available_bytes());
        let Some(file) = file.as_ref().filter(|_| taken > 0) else { return taken == 0 };
        let sectors = taken.next_multiple_of(SECTOR_BYTES as u64);
        let left = self.reserve.held().saturating_sub(sectors);
        let yielded = file.truncate(left).is_ok();
        if yielded {
            // Relaxed, here and below: as in `hold_back`.
            self.reserve.held.store(left, Ordering::Relaxed);
            if left < self.reserve_target() {
                self.reserve.whole.store(false, Ordering::Relaxed);
                self.reserve.lacking.store(true, Ordering::Relaxed);
                self.extent.withdraw(BlockPurpose::Change);
            }
        }
        yielded
    }

    /// Completes the reserve after the next checkpoint has become larger. On a full disk, admits no
    /// more changes until the reserve is complete, and no more deletions while upkeep might fail.
    /// Returns whether the reserve is complete.
    pub(super) fn follow_checkpoint(&self) -> bool {
        let held = self.hold_reserve();
        if held.is_err() {
            let may_delete = self.has_room_beside_upkeep(0);
            let purpose = if may_delete { BlockPurpose::Change } else { BlockPurpose::Deletion };
            self.extent.withdraw(purpose);
        }
        held.is_ok()
    }

    /// Completes the reserve, before an extension of the log.
    ///
    /// # Errors
    /// An error if the disk has no space, or the reserve is lent. Without enough space, the reserve
    /// takes what is left.
    pub(super) fn hold_reserve(&self) -> Result<(), LogError> {
        // Checked under the lock of the loan: only the borrower may restore a lent reserve.
        let mut file = self.reserve.file.lock();
        // Relaxed: written under the lock, except at the end of a loan, which the next attempt sees
        // at the latest.
        if self.reserve.lent.load(Ordering::Relaxed) {
            let path = self.directory.path().join(RESERVE_NAME);
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(LogError::io("extend the log while compaction uses", &path, 0, full));
        }
        self.hold_back(&mut file)
    }

    /// Completes the reserve again, on behalf of the borrower.
    ///
    /// # Errors
    /// An error if the disk has no space. The reserve then takes what is left.
    pub(super) fn reclaim_reserve(&self) -> Result<(), LogError> {
        self.hold_back(&mut self.reserve.file.lock())
    }

    /// Takes over the reserve of an earlier opening, if its disk space is allocated. Otherwise the
    /// reserve is empty until the next attempt to complete it.
    pub(super) fn adopt_reserve(&self) {
        let mut file = self.reserve.file.lock();
        match self.open_earlier_reserve() {
            Ok((earlier, bytes)) => {
                *file = Some(earlier);
                // Relaxed: as in `hold_back`.
                self.reserve.held.store(bytes, Ordering::Relaxed);
            }
            Err(error) => tracing::debug!("cannot take over the disk reserve yet: {error}"),
        }
    }

    fn open_earlier_reserve(&self) -> Result<(File, u64), LogError> {
        let file = self.directory.open_file(RESERVE_NAME, OpenMode::Existing)?;
        let fail = |error| LogError::io("take over the reserve in", file.path(), 0, error);
        let bytes = file.length().map_err(fail)?;
        if bytes > 0 {
            // In a copy of a database, this file may have no allocated space.
            file.allocate(bytes).map_err(fail)?;
        }
        Ok((file, bytes))
    }

    /// Shrinks the reserve to the required size, if it exceeds that size by more than the factor
    /// `times`.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn shrink_reserve(&self, times: u64) -> Result<(), LogError> {
        let file = self.reserve.file.lock();
        let (Some(file), target) = (&*file, self.reserve_target()) else { return Ok(()) };
        if self.reserve.held() / times > target {
            let fail = |error| LogError::io("shrink the reserve in", file.path(), 0, error);
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
        // Relaxed, here and below: written under the lock of the file, except at the end of a loan.
        // Readers without the lock use them as hints and statistics.
        if held < target || held / EXTRA_SEGMENTS > target {
            self.reserve.whole.store(false, Ordering::Relaxed);
            let file = self.open_reserve(file)?;
            let resize = || match held > target {
                true => file.truncate(target),
                false => file.allocate(target).inspect_err(|_| {
                    // Frees a partial allocation. If that fails, the excess is not counted.
                    _ = file.truncate(held);
                }),
            };
            let mut resized = resize();
            // Spare segment files are useless while the reserve is incomplete.
            while resized.as_ref().is_err_and(says_full) && self.remove_spare() {
                resized = resize();
            }
            if resized.as_ref().is_err_and(says_full) {
                // Page writes must not take the space that is left, because the next checkpoint
                // needs it.
                let free = self.directory.available_bytes() / SECTOR_BYTES as u64 / 16 * 15;
                let part = (held + free * SECTOR_BYTES as u64).min(target);
                if file.allocate(part).is_ok() {
                    // Relaxed: as above.
                    self.reserve.held.store(part, Ordering::Relaxed);
                }
            }
            self.reserve.lacking.store(resized.is_err(), Ordering::Relaxed);
            resized.map_err(|error| {
                let error = self.cannot_grow_by(target.saturating_sub(held), error);
                LogError::io("extend the reserve in", file.path(), 0, error)
            })?;
            // Relaxed, here and below: as above.
            self.reserve.held.store(target, Ordering::Relaxed);
        }
        self.reserve.whole.store(true, Ordering::Relaxed);
        self.reserve.lacking.store(false, Ordering::Relaxed);
        self.reserve.lent.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Lends the reserve to an operation that frees space, until it restores the reserve or ends
    /// the loan. Returns whether there was a reserve.
    pub(super) fn lend_reserve(&self) -> bool {
        let file = self.reserve.file.lock();
        // Relaxed, here and below: as in `reclaim_reserve`.
        self.reserve.whole.store(false, Ordering::Relaxed);
        self.reserve.lent.store(true, Ordering::Relaxed);
        self.reserve.lacking.store(true, Ordering::Relaxed);
        let (Some(file), true) = (&*file, self.reserve.held() > 0) else { return false };
        if let Err(error) = file.truncate(0) {
            tracing::warn!("cannot release {}: {error}", file.path().display());
            return false;
        }
        // Relaxed: as in `reclaim_reserve`.
        self.reserve.held.store(0, Ordering::Relaxed);
        tracing::info!("the disk is full: the reserve in {} is used", file.path().display());
        true
    }

    /// Frees the reserve for the page writes of recovery, unless the disk has far more space. Each
    /// write reduces the images that the next checkpoint needs. A reserve that could not be
    /// completed took most of the space that was free. Called before [`Self::adopt_reserve`].
    pub(super) fn free_reserve_for_recovery(&self) {
        let Ok(file) = self.directory.open_file(RESERVE_NAME, OpenMode::Existing) else { return };
        let plenty = MIN_FREE_RESERVES.saturating_mul(file.length().unwrap_or(u64::MAX));
        let is_needed = self.is_disk_tight() || self.directory.available_bytes() < plenty;
        if is_needed && let Err(error) = file.truncate(0) {
            tracing::warn!("cannot release {}: {error}", file.path().display());
        }
    }

    /// Ends the loan, whether the reserve can be restored or not. If not, the next extension of the
    /// log tries again.
    pub(super) fn end_loan(&self) {
        if self.reclaim_reserve().is_err() {
            // Relaxed: see `hold_reserve`.
            self.reserve.lent.store(false, Ordering::Relaxed);
        }
        self.extent.resume();
    }

    /// Returns the bytes that upkeep may still log, including the reserve but without the space for
    /// a checkpoint.
    pub(super) fn room_for_upkeep(&self, tail: Lsn) -> u64 {
        let free = self.directory.available_bytes().saturating_add(self.reserve.held());
        let free = free.saturating_sub(self.reserve.least());
        // The last file is completed first.
        let missing = self.missing_bytes();
        let more = free.checked_sub(self.missing_space()).map_or(0, |free| {
            let segments = free / self.file_space() + self.spares.count() as u64;
            segments.saturating_mul(self.segment_bytes()).saturating_add(missing)
        });
        let end = self.extent.end().0.saturating_add(more);
        end.saturating_sub(tail.0 + self.extent.slack())
    }

    /// Returns the size of a segment's file in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        HEADER_BYTES + self.segment_bytes()
    }
}
