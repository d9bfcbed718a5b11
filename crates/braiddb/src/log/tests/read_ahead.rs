//! Reads of single records: read-ahead beyond a record may fail, the record itself must not.

use std::sync::mpsc::channel;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::sched::{Driver, Executor, ExecutorOptions, Job, Policy, Turn, Width};

struct NoHousekeeping;

impl Driver for NoHousekeeping {
    fn turn(&mut self, _device: &mut dyn Device, _idle: bool) -> Turn {
        Turn::default()
    }
    fn complete(&mut self, _completion: Completion) {}
    fn before_sleep(&mut self) {}
    fn after_sleep(&mut self) {}
    fn drain(&mut self, _device: &mut dyn Device) -> bool {
        true
    }
}

/// Reads records on a worker, each with a size for the first read, and returns the values.
fn read(store: ColdStore, records: Vec<(Lsn, usize)>) -> Vec<Result<Vec<u8>, LogError>> {
    let options = ExecutorOptions {
        workers: 1,
        pin: false,
        policy: Policy::DualQueue,
        hot_width: Width::Fixed(1),
        cold_width: 4,
        max_open: 4,
        read_depth: 4,
        trace: 0,
        seed: None,
    };
    let device = |_| open_device(DeviceKind::Blocking);
    let executor =
        Executor::start(options, Default::default(), device, |_, _| NoHousekeeping, |_| ())
            .unwrap();
    let (reply, found) = channel();
    let job: Job = Box::new(move || {
        Box::pin(async move {
            for (lsn, bytes) in records {
                let record = store.read(lsn, bytes).await;
                reply.send(record.map(|record| record.view().value.to_vec())).unwrap();
            }
        })
    });
    executor.jobs().spawn(job).unwrap();
    found.iter().collect()
}

#[test]
fn what_is_read_ahead_may_be_gone() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let mut commits = Vec::new();
        while bench.log.tail().0 < 2 * SMALL_SEGMENT {
            let (key, value) = numbered(commits.len() as u64);
            let record = Lsn(bench.commit(&key, &value).0 + block_bytes(0) as u64);
            commits.push((record, value));
        }
        bench.flush();
        let in_segment =
            |end: u64| commits.iter().rposition(|(lsn, _)| lsn.0 + 8192 < end).unwrap();
        let (first, second) =
            (&commits[in_segment(SMALL_SEGMENT)], &commits[in_segment(2 * SMALL_SEGMENT)]);
        let ahead = 64 << 10;
        let store = bench.log.cold_store().unwrap();
        let whole = read(store.clone(), vec![(first.0, ahead), (second.0, ahead)]);
        assert_eq!(whole[0].as_ref().unwrap(), &first.1);
        assert_eq!(whole[1].as_ref().unwrap(), &second.1);
        // Simulates a segment that is freed and removed while the data before it is read.
        let name = directory.path().join(format!("wal-{SMALL_SEGMENT:016x}.seg"));
        std::fs::OpenOptions::new().write(true).open(name).unwrap().set_len(4096).unwrap();
        let found = read(store, vec![(first.0, ahead), (second.0, ahead)]);
        assert_eq!(found[0].as_ref().unwrap(), &first.1);
        assert!(matches!(found[1], Err(LogError::Corrupt { .. })), "{:?}", found[1]);
    });
}
