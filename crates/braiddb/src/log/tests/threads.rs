//! Two workers fill and flush concurrently.

use super::*;
use crate::common::{PART_SECONDS, with_limit};

#[test]
fn two_workers_share_the_log() {
    with_limit(PART_SECONDS, |_| {
        HoleTracker::ALL.into_iter().for_each(two_workers_share_a_log);
    });
}

fn two_workers_share_a_log(tracker: HoleTracker) {
    let options = |path: &Path| LogOptions { tracker, ..options(path) };
    let directory = tempfile::tempdir().unwrap();
    let (log, mut reader) = Log::open(options(directory.path())).unwrap();
    assert!(reader.next_block().unwrap().is_none());
    log.resume_at(reader.end()).unwrap();
    const COMMITS: u64 = 4000;
    let work = |worker: usize| {
        let mut device = open_device(DeviceKind::Auto).unwrap();
        let mut flush = FlushState::default();
        let mut random = fastrand::Rng::with_seed(worker as u64);
        let mut before = Lsn::ZERO;
        for number in 0..COMMITS {
            let value = vec![number as u8; random.usize(0..600)];
            let bytes = block_bytes(record_bytes(16, value.len()));
            while !log.admits(bytes, BlockPurpose::Change) {
                log.demand(bytes, BlockPurpose::Change);
                log.turn(&mut flush, &mut *device, true);
                let timeout = Some(Duration::from_millis(1));
                device.wait(timeout, &mut |done| log.complete(&mut flush, done));
            }
            let mut block = log.reserve(worker, bytes);
            assert!(block.lsn() > before);
            before = block.lsn();
            let key = [(worker as u64).to_be_bytes(), number.to_be_bytes()].concat();
            block.append(TableId(1), RecordKind::Insert, Rid::new(number), &key, &value);
            if random.u8(0..20) == 0 {
                drop(block);
            } else {
                block.finish_commit(None);
            }
            if random.u8(0..8) == 0 {
                log.turn(&mut flush, &mut *device, random.bool());
                device.poll(&mut |done| log.complete(&mut flush, done));
            }
        }
        loop {
            let turn = log.turn(&mut flush, &mut *device, true);
            // Checked after a turn: until then a worker may have partly prepared space.
            if before < log.durable() && flush.outstanding() == 0 {
                break;
            }
            let timeout = if turn.pending { Duration::ZERO } else { Duration::from_millis(1) };
            device.wait(Some(timeout), &mut |done| log.complete(&mut flush, done));
        }
    };
    std::thread::scope(|s| {
        let other = s.spawn(|| work(1));
        work(0);
        other.join().unwrap();
    });
    drop((log, reader));
    let found = read_all(&mut Log::open(options(directory.path())).unwrap().1).unwrap();
    let mut next = [0; 2];
    for records in &found {
        let number = |at: usize| u64::from_be_bytes(records[0].0[at..at + 8].try_into().unwrap());
        let (worker, number) = (number(0) as usize, number(8));
        assert!(number >= next[worker], "each worker's commits keep their order");
        assert!(records[0].1.iter().all(|byte| *byte == number as u8));
        next[worker] = number + 1;
    }
    assert!(found.len() > 7000 && found.len() < 8000, "{}", found.len());
}
