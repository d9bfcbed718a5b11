//! Measurements, started manually: `cargo test --release log::tests::speed -- --ignored
//! --nocapture`.

use super::*;
use crate::common::{PART_SECONDS, with_limit};

#[test]
#[ignore = "a measurement"]
fn nanoseconds_per_commit() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let large = LogOptions::new(directory.path(), 2);
        let mut bench = Bench::open_with(large, DeviceKind::Auto).unwrap();
        for value in [8, 100, 1000] {
            let bytes = block_bytes(record_bytes(8, value));
            let value = vec![1; value];
            let mut best = f64::MAX;
            for _ in 0..10 {
                let count = (8 << 20) / bytes as u32;
                let begin = Instant::now();
                for number in 0..count {
                    bench.admit(bytes);
                    let mut block = bench.log.reserve(0, bytes);
                    let rid = Rid::new(u64::from(number));
                    block.append(TableId(1), RecordKind::Insert, rid, &[1; 8], &value);
                    block.finish_commit(None);
                }
                best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(count));
                bench.flush();
            }
            println!("value of {} bytes: {best:.1} ns a commit", value.len());
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn flushes_per_second() {
    with_limit(PART_SECONDS, |_| {
        for kind in [DeviceKind::Auto, DeviceKind::Blocking] {
            let directory = tempfile::tempdir_in("/tmp").unwrap();
            let mut bench = Bench::open_with(LogOptions::new(directory.path(), 2), kind).unwrap();
            for (commits, value) in [(1, 8), (1000, 100), (4000, 1000)] {
                bench.flush();
                let (begin, before) = (Instant::now(), bench.log.stats());
                while begin.elapsed() < Duration::from_secs(1) {
                    for _ in 0..commits {
                        bench.commit(&[1; 8], &vec![1; value]);
                    }
                    bench.flush();
                }
                let (seconds, after) = (begin.elapsed().as_secs_f64(), bench.log.stats());
                let flushes = (after.flushes - before.flushes) as f64;
                let megabytes = (after.bytes_written - before.bytes_written) as f64 / 1e6;
                println!(
                    "{kind:?}, {commits} commits of {value} bytes a group: {:.0} flushes/s, {:.0} MB/s",
                    flushes / seconds,
                    megabytes / seconds
                );
            }
            drop(bench);
            let begin = Instant::now();
            let (_log, mut reader) = Log::open(LogOptions::new(directory.path(), 2)).unwrap();
            while reader.next_block().unwrap().is_some() {}
            let megabytes = reader.end().0 as f64 / 1e6;
            println!("{:.0} MB/s read back", megabytes / begin.elapsed().as_secs_f64());
        }
    });
}
