//! State of the disk reserve for checkpoints and deletions (`transaction/commit/disk_room.rs`).

use crate::sync::Mutex;
use crate::sync::statistic::AtomicU64;

/// State of the adjustments of the disk reserve.
#[derive(Debug)]
pub(in crate::transaction) struct DiskRoom {
    /// The number of demanded images at which the reserve is adjusted again.
    pub(in crate::transaction) adjust_at: AtomicU64,
    /// Pages may become dirty without a look at the log while fewer images are demanded. At most
    /// one more than `adjust_at`; 0 while changes are refused.
    pub(in crate::transaction) room_until: AtomicU64,
    /// Number of checkpoints that had begun when the engine's own work last waited for one without
    /// effect.
    pub(in crate::transaction) without_effect: AtomicU64,
    /// Held while the sizes of the next checkpoints are computed and reported.
    pub(in crate::transaction) adjusting: Mutex<()>,
}

impl DiskRoom {
    pub(in crate::transaction) fn new(has_log: bool) -> Self {
        let first = if has_log { 0 } else { u64::MAX };
        let [adjust_at, room_until] = [first; 2].map(AtomicU64::new);
        let without_effect = AtomicU64::new(u64::MAX);
        Self { adjust_at, room_until, without_effect, adjusting: Mutex::new(()) }
    }
}
