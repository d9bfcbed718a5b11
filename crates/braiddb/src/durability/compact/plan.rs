//! Choice of segments to free: those with the fewest live bytes.

use std::collections::BTreeMap;

use crate::log::Lsn;

/// Maximum amount moved between two checkpoints, unless an eighth of the live data is more. Bytes,
/// because copies occupy disk space twice; and records, because each is listed in memory.
const MAX_MOVED: LiveData = LiveData { bytes: 512 << 20, records: 250_000 };
/// Number of segments beyond the live bytes that are tolerated.
const SLACK_SEGMENTS: u64 = 4;

/// Live bytes and records of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LiveData {
    bytes: u64,
    records: u64,
}

impl LiveData {
    fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, records: self.records + other.records }
    }

    fn exceeds(self, most: Self) -> bool {
        self.bytes > most.bytes || self.records > most.records
    }
}

/// Live data of the log's segments at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSegments {
    by_segment: BTreeMap<u64, LiveData>,
}

impl LiveSegments {
    /// Counts a record of `bytes` at `lsn` in every segment that contains a part of it.
    pub(crate) fn add(&mut self, lsn: Lsn, bytes: u64, segment_bytes: u64) {
        let (mut at, end) = (lsn.0, lsn.0 + bytes);
        while at < end {
            let segment = at / segment_bytes;
            let here = end.min((segment + 1) * segment_bytes);
            let alive = self.by_segment.entry(segment).or_default();
            alive.bytes += here - at;
            alive.records += 1;
            at = here;
        }
    }

    /// Returns the number of live bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.all().bytes
    }

    fn all(&self) -> LiveData {
        self.by_segment.values().fold(LiveData::default(), |sum, alive| sum.and(*alive))
    }

    fn of(&self, segment: u64) -> LiveData {
        self.by_segment.get(&segment).copied().unwrap_or_default()
    }
}

/// Returns those of `candidates`, which recovery does not replay, that have no live bytes.
pub(super) fn dead(candidates: &[u64], live: &LiveSegments) -> Vec<u64> {
    candidates.iter().copied().filter(|segment| live.of(*segment).bytes == 0).collect()
}

/// Returns the live bytes of some segments.
pub(super) fn live_bytes_in(segments: &[u64], live: &LiveSegments) -> u64 {
    segments.iter().map(|segment| live.of(*segment).bytes).sum()
}

/// Returns the maximum size of the log before segments are freed.
pub(super) fn max_size(segment_bytes: u64, live: &LiveSegments) -> u64 {
    2 * live.bytes() + SLACK_SEGMENTS * segment_bytes
}

/// Limits of a compaction on a full disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullDiskLimits {
    /// Maximum bytes of copies.
    pub(super) room: u64,
    /// True while the compaction has gained almost nothing.
    pub(super) nothing_gained: bool,
}

/// Chooses victims among `candidates`, which recovery does not replay.
///
/// Segments are freed when the log takes more than twice its live bytes, until it takes one and a
/// half times as much. Then each byte is written about three times in its life, and the disk has at
/// most twice the live bytes and a few segments. On a full disk, all segments are chosen whose
/// copies fit. While that has gained nothing, segments that are almost completely live are chosen
/// too, because no other way out exists.
pub(super) fn victims(
    candidates: &[u64],
    segment_bytes: u64,
    live: &LiveSegments,
    scarce: Option<FullDiskLimits>,
) -> Vec<u64> {
    let all = live.all();
    let most = LiveData {
        bytes: match scarce {
            // Copies have separate blocks, and some are made twice.
            Some(FullDiskLimits { room, .. }) => room / 8 * 7,
            None => MAX_MOVED.bytes.max(all.bytes / 8),
        },
        records: MAX_MOVED.records.max(all.records / 8),
    };
    let most_alive = match scarce {
        Some(FullDiskLimits { nothing_gained: true, .. }) => segment_bytes / 16 * 15,
        _ => segment_bytes / 4 * 3,
    };
    let is_scarce = scarce.is_some();
    let mut taken = candidates.len() as u64 * segment_bytes;
    if !is_scarce && taken <= max_size(segment_bytes, live) {
        return Vec::new();
    }
    let mut by_life: Vec<u64> = candidates.to_vec();
    by_life.sort_by_key(|segment| (live.of(*segment).bytes, *segment));
    let (mut victims, mut moved) = (Vec::new(), LiveData::default());
    for segment in by_life {
        let alive = live.of(segment);
        let enough =
            !is_scarce && taken <= all.bytes + all.bytes / 2 + SLACK_SEGMENTS / 2 * segment_bytes;
        let too_many = moved.and(alive).exceeds(most) && (is_scarce || !victims.is_empty());
        if enough || alive.bytes > most_alive || too_many {
            break;
        }
        taken = taken - segment_bytes + alive.bytes;
        moved = moved.and(alive);
        victims.push(segment);
    }
    victims
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn live(bytes: &[u64]) -> LiveSegments {
        let mut live = LiveSegments::default();
        for (segment, bytes) in bytes.iter().enumerate() {
            live.add(Lsn(segment as u64 * MIB), *bytes, MIB);
        }
        live
    }

    #[test]
    fn a_record_is_live_in_each_segment_that_holds_a_part_of_it() {
        let mut live = LiveSegments::default();
        live.add(Lsn(2 * MIB - 8), MIB + 16, MIB);
        let bytes = [1, 2, 3].map(|segment| live.of(segment).bytes);
        assert_eq!(bytes, [8, MIB, 8]);
        assert_eq!(dead(&[0, 1, 2, 3, 4], &live), [0, 4]);
    }

    #[test]
    fn a_mostly_live_log_is_not_compacted() {
        let candidates: Vec<u64> = (0..20).collect();
        assert!(victims(&candidates, MIB, &live(&[MIB / 2; 20]), None).is_empty());
        assert!(victims(&candidates[..4], MIB, &live(&[0; 4]), None).is_empty());
    }

    #[test]
    fn the_emptiest_go_first_until_it_is_enough() {
        let candidates: Vec<u64> = (0..20).collect();
        let mut bytes = [MIB / 8; 20];
        bytes[7] = 0;
        bytes[3] = MIB;
        let victims = victims(&candidates, MIB, &live(&bytes), None);
        assert_eq!(victims[0], 7);
        assert!(!victims.contains(&3));
        let kept = 20 - victims.len() as u64;
        let alive = 18 * MIB / 8 + MIB;
        assert!(kept * MIB <= 2 * alive + SLACK_SEGMENTS * MIB, "{kept}");
    }

    #[test]
    fn on_a_full_disk_whatever_gains_room_goes_as_far_as_copies_fit() {
        let candidates: Vec<u64> = (0..8).collect();
        let live = live(&[MIB / 2, MIB, MIB / 4, MIB, MIB / 2, MIB, MIB / 8 * 7, MIB]);
        assert!(victims(&candidates, MIB, &live, None).is_empty());
        let scarce = |room, nothing_gained| {
            victims(&candidates, MIB, &live, Some(FullDiskLimits { room, nothing_gained }))
        };
        assert_eq!(scarce(MIB, false), [2, 0]);
        assert_eq!(scarce(8 * MIB, false), [2, 0, 4]);
        assert_eq!(scarce(8 * MIB, true), [2, 0, 4, 6]);
        assert!(scarce(MIB / 8, true).is_empty());
    }
}
