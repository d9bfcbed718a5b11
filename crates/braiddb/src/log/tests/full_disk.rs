//! Extensions of the log on a full disk, which take space from the disk reserve.

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{Faults, SimulatedDisk};

const SECTOR: u64 = 4096;

/// Sets the number of free bytes of the disk, in addition to the bytes of its files.
fn leave(disk: &SimulatedDisk, bytes: u64) {
    let used: u64 = disk.files().iter().map(|(_, bytes)| bytes.div_ceil(SECTOR)).sum();
    disk.set_faults(Faults { capacity: used + bytes / SECTOR, ..Faults::default() });
}

/// The reserve has space for an extension of the log for deletions. They can use it although the
/// reserve is complete.
#[test]
fn deletions_extend_the_log_into_a_complete_reserve() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let options = LogOptions { disk: Some(disk.clone()), ..options(Path::new("x")) };
        let (log, mut reader) = Log::open(options).unwrap();
        let found = read_all(&mut reader).unwrap();
        log.resume_at(reader.end()).unwrap();
        let device = disk.device();
        let mut bench = Bench { log, flush: FlushState::default(), device, found };
        let (next, least) = (2 * SMALL_SEGMENT, SMALL_SEGMENT / 4);
        bench.log.expect_checkpoints(next, 0, least);
        leave(&disk, next + 2 * SMALL_SEGMENT);
        assert!(bench.log.follow_checkpoint(), "the reserve is complete");
        let files = bench.log.files().unwrap();
        assert!(!files.lacks_reserve());
        let bytes = block_bytes(record_bytes(8, 4000));
        let first = files.segment_bytes();
        while bench.log.tail().0 < first {
            let seen = bench.log.refusals(BlockPurpose::Deletion);
            if bench.log.admits(bytes, BlockPurpose::Deletion) {
                let mut block = bench.log.reserve(0, bytes);
                block.append(TableId(7), RecordKind::Insert, Rid::new(1), &[1; 8], &[1; 4000]);
                block.finish_commit(None);
                bench.flush();
            } else {
                bench.log.demand(bytes, BlockPurpose::Deletion);
                bench.step();
                let refused = bench.log.refused(bytes, BlockPurpose::Deletion, seen);
                assert!(refused.is_none(), "{refused:?}");
            }
        }
        // Pages and changes may take no more space.
        assert!(files.lacks_reserve());
        assert!(!bench.log.admits(bytes, BlockPurpose::Change));
    });
}
