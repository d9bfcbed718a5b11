//! Tests of both devices with real files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::common::{PART_SECONDS, with_limit};

fn both(check: impl Fn(&mut dyn Device)) {
    for kind in [DeviceKind::Auto, DeviceKind::Blocking] {
        check(&mut *open_device(kind).unwrap());
    }
}

fn new_file(directory: &tempfile::TempDir, name: &str) -> Arc<File> {
    let path = directory.path().join(name);
    Arc::new(File::open_direct(&path, OpenMode::Emptied).unwrap())
}

fn write(file: &Arc<File>, offset: u64, byte: u8, bytes: usize, sync: bool) -> Operation {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    buffer.fill(byte);
    Operation::Write { file: file.clone(), offset, source: WriteSource::Buffer(buffer), sync }
}

fn finish(device: &mut dyn Device) -> Vec<Completion> {
    let mut completions = Vec::new();
    while device.outstanding() > 0 {
        device.wait(Some(Duration::from_secs(5)), &mut |done| completions.push(done));
    }
    completions.sort_by_key(|completion| completion.token);
    completions
}

#[test]
fn written_data_is_read_back() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        both(|device| {
            let file = new_file(&directory, "f");
            // More operations than the ring has entries.
            for sector in 0..600u64 {
                device.submit(
                    write(&file, sector * 4096, sector as u8, 4096, sector % 50 == 0),
                    sector,
                );
            }
            device.submit(Operation::Sync { file: file.clone() }, 1000);
            assert!(device.outstanding() == 601);
            let written = finish(device);
            assert_eq!(written.len(), 601);
            assert!(written[..600].iter().all(|c| matches!(c.result, Ok(4096))));
            assert!(written[600].result.is_ok());
            let buffer = AlignedBuffer::zeroed(600 * 4096);
            device.submit(Operation::Read { file, offset: 0, buffer }, 7);
            let read = finish(device).pop().unwrap();
            assert_eq!((read.token, read.result.unwrap()), (7, 600 * 4096));
            let buffer = read.buffer.unwrap();
            let right = |(place, byte): (usize, &u8)| *byte == (place / 4096) as u8;
            assert!(buffer.iter().enumerate().all(right));
        });
    });
}

#[test]
fn a_read_ends_with_the_file() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        both(|device| {
            let path = directory.path().join("short");
            std::fs::write(&path, vec![7u8; 5000]).unwrap();
            let file = Arc::new(File::open_direct(&path, OpenMode::Existing).unwrap());
            for (offset, bytes) in [(0, 5000), (4096, 904), (8192, 0)] {
                let buffer = AlignedBuffer::zeroed(16384);
                device.submit(Operation::Read { file: file.clone(), offset, buffer }, 1);
                let read = finish(device).pop().unwrap();
                assert_eq!(read.result.unwrap(), bytes);
            }
        });
    });
}

#[test]
fn errors_come_back_as_completions() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("read-only");
        std::fs::write(&path, vec![0u8; 4096]).unwrap();
        both(|device| {
            let file = Arc::new(File::unpooled(std::fs::File::open(&path).unwrap(), path.clone()));
            device.submit(write(&file, 0, 1, 4096, true), 3);
            let failed = finish(device).pop().unwrap();
            assert_eq!(failed.token, 3);
            assert_eq!(failed.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        });
    });
}

#[test]
fn notifications_wake_the_wait() {
    with_limit(PART_SECONDS, |_| {
        both(|device| {
            let notifier = device.notifier();
            let begin = Instant::now();
            // A notification before the wait is detected by the wait.
            notifier.notify();
            device.wait(Some(Duration::from_secs(20)), &mut |_| panic!("nothing was submitted"));
            for _ in 0..3 {
                let notifier = device.notifier();
                let other = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    notifier.notify();
                });
                device
                    .wait(Some(Duration::from_secs(20)), &mut |_| panic!("nothing was submitted"));
                other.join().unwrap();
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "a wake-up was lost");
            let begin = Instant::now();
            device.wait(Some(Duration::from_millis(20)), &mut |_| {});
            assert!(begin.elapsed() >= Duration::from_millis(15), "nothing was there to wake it");
        });
    });
}

#[test]
fn a_notification_seen_by_poll_is_kept_for_wait() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        both(|device| {
            device.wait(Some(Duration::from_millis(1)), &mut |_| {});
            let file = new_file(&directory, "f");
            device.submit(write(&file, 0, 1, 4096, false), 1);
            device.notifier().notify();
            while device.outstanding() > 0 {
                device.poll(&mut |_| {});
            }
            let begin = Instant::now();
            device.wait(Some(Duration::from_secs(20)), &mut |_| {});
            assert!(begin.elapsed() < Duration::from_secs(10), "the wake-up was lost");
        });
    });
}

#[test]
fn dropping_a_device_finishes_its_operations() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for kind in [DeviceKind::Auto, DeviceKind::Blocking] {
            let file = new_file(&directory, "f");
            let mut device = open_device(kind).unwrap();
            let mapping = Arc::new(AlignedBuffer::zeroed(1 << 20));
            for place in 0..32u64 {
                let pointer = MappedPointer(mapping.as_ptr());
                let source =
                    WriteSource::Mapped { mapping: mapping.clone(), pointer, bytes: 1 << 20 };
                let file = file.clone();
                device.submit(
                    Operation::Write { file, offset: place << 20, source, sync: false },
                    place,
                );
            }
            drop(device);
            assert_eq!(Arc::strong_count(&mapping), 1, "nothing holds the memory any more");
            assert_eq!(file.length().unwrap(), 32 << 20);
        }
    });
}

/// A file system may take all free space before it fails, so it is not asked.
#[test]
fn space_that_a_disk_does_not_have_is_refused_immediately() {
    with_limit(PART_SECONDS, |_| {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(outer.path(), true).unwrap();
        let file = directory.open_file("f", OpenMode::Emptied).unwrap();
        // The system call would fail with another error.
        let error = file.allocate(1 << 62).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        file.allocate(8192).unwrap();
        assert_eq!(file.length().unwrap(), 8192);
    });
}

#[test]
fn a_directory_can_be_open_only_once() {
    with_limit(PART_SECONDS, |_| {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/b");
        assert!(matches!(Directory::open(&path, false), Err(DirectoryError::Missing(_))));
        let directory = Directory::open(&path, true).unwrap();
        directory.sync().unwrap();
        assert!(matches!(Directory::open(&path, true), Err(DirectoryError::AlreadyOpen(_))));
        std::fs::write(path.join("x"), b"").unwrap();
        assert_eq!(directory.list().unwrap(), ["LOCK", "x"]);
        drop(directory);
        Directory::open(&path, false).unwrap();
    });
}

#[test]
fn files_closed_beside_their_readers_are_opened_again() {
    with_limit(PART_SECONDS, |_| {
        const FILES: u64 = 16;
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<Arc<File>> = (0..FILES)
            .map(|number| {
                let file = new_file(&directory, &number.to_string());
                let mut bytes = AlignedBuffer::zeroed(SECTOR_BYTES);
                bytes.fill(number as u8);
                file.write_all_at(&bytes, 0).unwrap();
                file
            })
            .collect();
        let before = pool_stats().reopened;
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
                    for _ in 0..2000 {
                        let number = random.u64(0..FILES);
                        files[number as usize].read_exact_at(&mut buffer, 0).unwrap();
                        assert!(buffer.iter().all(|byte| *byte == number as u8), "file {number}");
                    }
                });
            }
            while pool_stats().reopened < before + 100 && Instant::now() < deadline {
                descriptors::close_all_idle();
            }
        });
        assert!(pool_stats().reopened >= before + 100, "files were closed while they were read");
    });
}

#[test]
fn another_file_in_a_closed_ones_place_is_not_taken_for_it() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (new_file(&directory, "file"), directory.path().join("other"));
        std::fs::write(&other, vec![1u8; SECTOR_BYTES]).unwrap();
        std::fs::rename(&other, file.path()).unwrap();
        // The file is closed while it is not used; other tests may delay that.
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = loop {
            descriptors::close_all_idle();
            match file.read_at(&mut buffer, 0) {
                Ok(bytes) => assert_eq!(bytes, 0, "the file itself is empty"),
                Err(error) => break error,
            }
            assert!(Instant::now() < deadline, "the file was never closed");
        };
        assert!(error.to_string().contains("another file"), "{error}");
        both(|device| {
            let buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
            device.submit(Operation::Read { file: file.clone(), offset: 0, buffer }, 1);
            let read = finish(device).pop().unwrap();
            assert!(read.result.is_err() && read.buffer.is_some());
        });
    });
}
