//! A failed write poisons the log: nothing after it counts as durable, and every caller gets the
//! error.

use std::sync::Arc;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{Notify, Operation};

/// Fails every synced write, or every sync, after a number of operations.
struct Failing {
    device: Box<dyn Device>,
    good: usize,
    failing: Vec<u64>,
}

impl Device for Failing {
    fn submit(&mut self, operation: Operation, token: u64) {
        if matches!(operation, Operation::Write { sync: true, .. } | Operation::Sync { .. }) {
            if self.good == 0 {
                self.failing.push(token);
                return;
            }
            self.good -= 1;
        }
        self.device.submit(operation, token);
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        for token in self.failing.drain(..) {
            let result = Err(std::io::Error::from_raw_os_error(libc::EIO));
            deliver(Completion { token, result, buffer: None });
        }
        self.device.poll(deliver);
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        if self.failing.is_empty() {
            self.device.wait(timeout, deliver);
        }
        self.poll(deliver);
    }

    fn outstanding(&self) -> usize {
        self.device.outstanding() + self.failing.len()
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.device.notifier()
    }
}

#[test]
fn a_failed_write_poisons() {
    with_limit(PART_SECONDS, |_| {
        for kind in [DeviceKind::Auto, DeviceKind::Blocking] {
            for good in 0..14 {
                let directory = tempfile::tempdir().unwrap();
                let mut bench = Bench::open_with(options(directory.path()), kind).unwrap();
                let device = open_device(kind).unwrap();
                bench.device = Box::new(Failing { device, good, failing: Vec::new() });
                let mut commits = Vec::new();
                while bench.log.poisoned().is_none() {
                    let (key, value) = numbered(commits.len() as u64);
                    commits.push((bench.commit(&key, &value), key, value));
                    bench.flush();
                    assert!(commits.len() < 100);
                }
                let error = bench.log.poisoned().unwrap();
                assert!(matches!(&*error, LogError::Io { .. }), "{error}");
                let durable = bench.log.durable();
                assert!(commits.last().unwrap().0 >= durable, "what failed is not durable");
                assert!(bench.step().advanced || bench.flush.outstanding() == 0);
                for _ in 0..5 {
                    bench.step();
                }
                assert_eq!(bench.flush.outstanding(), 0, "nothing is tried again");
                assert_eq!(bench.log.durable(), durable, "durable stands still");
                drop(bench);
                let found = Bench::open(directory.path()).unwrap().found;
                let acknowledged = commits.iter().filter(|(lsn, ..)| *lsn < durable).count();
                assert!(found.len() >= acknowledged, "what was acknowledged is there");
            }
        }
    });
}

#[test]
fn a_poisoned_log_tells_every_worker_once() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let device = open_device(DeviceKind::Auto).unwrap();
        bench.device = Box::new(Failing { device, good: 0, failing: Vec::new() });
        bench.commit(b"key", b"value");
        bench.flush();
        assert!(bench.log.poisoned().is_some());
        let mut other = FlushState::default();
        let mut device = open_device(DeviceKind::Auto).unwrap();
        assert!(bench.log.turn(&mut other, &mut *device, true).advanced);
        let again = bench.log.turn(&mut other, &mut *device, true);
        assert_eq!(again, FlushTurn::default());
    });
}

/// An event found in one worker's turn without a completion is reported to the waiters of another
/// worker.
#[test]
fn a_log_that_cannot_grow_tells_every_worker_once() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        for number in 1..64 {
            let name = format!("wal-{:016x}.seg.new", number * SMALL_SEGMENT);
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut other = FlushState::default();
        let mut others_device = open_device(DeviceKind::Blocking).unwrap();
        // The turns of the other worker, including its first, until none of its operations is in
        // flight.
        let mut others_turn = |log: &Log| {
            let first = log.turn(&mut other, &mut *others_device, false);
            while other.outstanding() > 0 {
                let timeout = Some(Duration::from_secs(5));
                others_device.wait(timeout, &mut |done| log.complete(&mut other, done));
                log.turn(&mut other, &mut *others_device, false);
            }
            first
        };
        let bytes = block_bytes(record_bytes(8, 10_000));
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = bench.log.refusals(BlockPurpose::Change);
            others_turn(&bench.log);
            if bench.log.admits(bytes, BlockPurpose::Change) {
                bench.commit(&[1; 8], &[1; 10_000]);
                bench.flush();
            } else {
                bench.log.demand(bytes, BlockPurpose::Change);
                let turn = bench.step();
                if let Some(error) = bench.log.refused(bytes, BlockPurpose::Change, seen) {
                    assert!(matches!(*error, LogError::CannotGrow { .. }), "{error}");
                    assert!(turn.advanced && turn.news, "{turn:?}");
                    break;
                }
            }
            assert!(Instant::now() < deadline, "nothing is refused");
        }
        let turn = others_turn(&bench.log);
        assert!(turn.advanced && turn.news, "{turn:?}");
        let again = others_turn(&bench.log);
        assert!(!again.news, "{again:?}");
        assert!(bench.log.poisoned().is_none());
        assert!(bench.log.admits(block_bytes(64), BlockPurpose::Deletion), "deletions have room");
    });
}
