//! Paged tables larger than memory: eviction and loading of pages have no visible effects.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, LogError, Options, Table, Tuning};

const LIMIT_SECONDS: u64 = 240;
const FRAMES: u32 = 32;
const THREADS: u64 = 4;
/// The approximate number of pages with records for each frame.
const TIMES_LARGER: u64 = 20;
const VALUE_BYTES: usize = 400;
/// About two thirds of a page are used.
const RECORDS: u64 = TIMES_LARGER * FRAMES as u64 * 4096 * 2 / 3 / VALUE_BYTES as u64;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .workers(3)
        .tuning(Tuning::default().page_frames(Some(FRAMES)).log_segment_bytes(1 << 20))
}

fn contents(db: &Database, table: &Records, reverse: bool) -> Vec<(u64, Vec<u8>)> {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
        let mut scan = if reverse { scan.rev() } else { scan };
        while let Some((key, value)) = scan.next().await? {
            found.push((key, value.to_vec()));
        }
        Ok::<_, Error>(found)
    });
    found.unwrap()
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    vec![random.u8(..); random.usize(VALUE_BYTES / 2..VALUE_BYTES * 3 / 2)]
}

/// Loads all records of one thread, whose keys have its number modulo the number of threads. Then
/// changes, deletes, reads and scans some in many transactions; one in four rolls back.
fn work(db: &Database, table: &Records, thread: u64, transactions: u64) -> Model {
    let mut model = Model::new();
    let mut random = fastrand::Rng::with_seed(thread);
    let mut keys: Vec<_> = (0..RECORDS).filter(|key| key % THREADS == thread).collect();
    random.shuffle(&mut keys);
    for keys in keys.chunks(20) {
        let some: Vec<_> = keys.iter().map(|key| (*key, value(&mut random))).collect();
        model.extend(some.iter().cloned());
        let table = table.clone();
        let write = async move |tx: &braiddb::Transaction| {
            for (key, value) in &some {
                tx.insert(&table, key, value).await?;
            }
            Ok::<_, Error>(())
        };
        db.run_blocking(write).unwrap();
    }
    for number in 0..transactions {
        let (table, before) = (table.clone(), model.clone());
        let seed = thread << 32 | number;
        let result = db.run_blocking(async move |tx| {
            let (mut random, mut model) = (fastrand::Rng::with_seed(seed), before.clone());
            for _ in 0..random.usize(1..30) {
                let key = random.u64(..RECORDS / THREADS) * THREADS + thread;
                match random.u8(..6) {
                    0 => {
                        let gone = tx.delete(&table, &key).await?;
                        assert_eq!(gone, model.remove(&key).is_some());
                    }
                    1 | 2 => {
                        let value = value(&mut random);
                        tx.put(&table, &key, &value[..]).await?;
                        model.insert(key, value);
                    }
                    3 => {
                        let mut scan = tx.scan(&table, key..key + 40)?;
                        let mut mine = model.range(key..key + 40);
                        while let Some((found, value)) = scan.next().await? {
                            if found % THREADS == thread {
                                assert_eq!(mine.next(), Some((&found, &value.to_vec())));
                            }
                        }
                        assert_eq!(mine.next(), None);
                    }
                    _ => {
                        let found = tx.get(&table, &key).await?.map(|value| value.to_vec());
                        assert_eq!(found.as_ref(), model.get(&key));
                    }
                }
            }
            if random.u8(..4) > 0 { Ok(model) } else { Err(Error::Closed) }
        });
        match result {
            Ok(after) => model = after,
            Err(Error::Closed) => {}
            Err(error) => panic!("{error}"),
        }
    }
    model
}

fn zones(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".zone")).count()
}

fn table_larger_than_memory(options: Options, transactions: u64) {
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, table) = (db.clone(), table.clone());
                std::thread::spawn(move || work(&db, &table, thread, transactions))
            })
            .collect();
        let models = threads.into_iter().map(|thread| thread.join().unwrap());
        let model: Model = models.flatten().collect();
        let mut expected: Vec<_> = model.into_iter().collect();
        assert!(contents(&db, &table, false) == expected, "what is there is what was written");
        let pages = db.stats().pages;
        assert_eq!(pages.frames, u64::from(FRAMES));
        assert!(pages.resident <= pages.frames);
        assert!(pages.faults > RECORDS / 20 && pages.evicted > RECORDS / 20, "{pages:?}");
        assert!(pages.written > RECORDS / 20 && pages.writes < pages.written, "{pages:?}");
        assert!(pages.zone_bytes > (TIMES_LARGER / 2) * u64::from(FRAMES) * 4096, "{pages:?}");
        expected.reverse();
        assert!(contents(&db, &table, true) == expected);
        assert_eq!(zones(directory.path()), 1);
        db.close().unwrap();
        assert_eq!(zones(directory.path()), 0, "they are removed with the last user");
        if options.durability == Durability::Volatile {
            return;
        }
        // Simulates a process that died.
        std::fs::write(directory.path().join("pages-000003.zone"), "left behind").unwrap();
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        assert_eq!(zones(directory.path()), 1, "recovery takes more than memory too");
        expected.reverse();
        let table = pollster::block_on(db.open_table("records")).unwrap();
        assert!(contents(&db, &table, false) == expected);
    });
}

#[test]
fn a_table_larger_than_memory_keeps_its_records() {
    table_larger_than_memory(options().durability(Durability::Volatile), 100);
}

#[test]
fn a_logged_table_larger_than_memory_keeps_and_recovers_its_records() {
    table_larger_than_memory(options(), 60);
}

/// Flips one bit of a file.
fn flip(path: &Path, place: u64, bit: u8) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], place).unwrap();
}

/// After any flipped bit of a page on disk, a read either reports the place of the damage or
/// returns correct records. After the bit is restored, all records are correct.
#[test]
fn damaged_pages_are_reported_with_their_position() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = options().durability(Durability::Volatile);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        let model = work(&db, &table, 0, 0);
        let expected: Vec<_> = model.into_iter().collect();
        // After this no page is dirty, so no page is written to another place.
        (0..2).for_each(|_| assert!(contents(&db, &table, false) == expected));
        let zone = directory.path().join("pages-000000.zone");
        let (mut random, mut told) = (fastrand::Rng::with_seed(1), 0);
        let flips = 160;
        for flip_number in 0..flips {
            let mut place = random.u64(..std::fs::metadata(&zone).unwrap().len());
            if flip_number % 2 == 0 {
                // In the header of the page.
                place -= place % 4096 - place % 64;
            }
            let bit = random.u8(..8);
            flip(&zone, place, bit);
            let scanned = table.clone();
            let found = db.run_blocking(async move |tx| {
                let (mut scan, mut found) = (tx.scan(&scanned, ..)?, Vec::new());
                while let Some((key, value)) = scan.next().await? {
                    found.push((key, value.to_vec()));
                }
                Ok(found)
            });
            match found {
                Ok(found) => assert!(found == expected, "byte {place}"),
                Err(Error::Corrupt(error)) => match &*error {
                    LogError::DamagedPage { path, offset, .. } => {
                        assert_eq!((path, *offset), (&zone, place / 4096 * 4096));
                        told += 1;
                    }
                    error => panic!("{error}"),
                },
                Err(error) => panic!("{error}"),
            }
            flip(&zone, place, bit);
        }
        // Damage in free places is harmless, and resident pages are not read.
        assert!(told > flips / 20, "{told}");
        assert!(contents(&db, &table, false) == expected);
    });
}

/// Measures uniform reads of single records in a table four times as large as the frames, with many
/// transactions at a time: reads per second, and pages loaded for them.
#[test]
#[ignore = "a measurement"]
fn reads_at_four_times_memory() {
    with_limit(LIMIT_SECONDS, |_| measure_reads_at_four_times_memory());
}

fn measure_reads_at_four_times_memory() {
    const FRAMES: u32 = 8192;
    const RECORDS: u64 = 4 * FRAMES as u64 * 7;
    const READS: u64 = 200_000;
    let directory = tempfile::tempdir_in(".").unwrap();
    let options = Options::default().workers(2).durability(Durability::Volatile);
    let db =
        Database::open(directory.path(), options.tune(|tuning| tuning.page_frames(Some(FRAMES))))
            .unwrap()
            .watched();
    let table: Records = create_table(&db, "records", true);
    for from in (0..RECORDS).step_by(1000) {
        let table = table.clone();
        let load = async move |tx: &braiddb::Transaction| {
            for key in from..(from + 1000).min(RECORDS) {
                tx.insert(&table, &key, &[key as u8; VALUE_BYTES][..]).await?;
            }
            Ok::<_, Error>(())
        };
        db.run_blocking(load).unwrap();
    }
    for at_once in [1, 16, 64, 256] {
        let (before, begin) = (db.stats().pages, std::time::Instant::now());
        let reads = READS.min(10_000 * at_once);
        let readers = (0..at_once).map(|reader| {
            let (db, table) = (db.clone(), table.clone());
            async move {
                let mut random = fastrand::Rng::with_seed(reader);
                for _ in 0..reads / at_once {
                    let (table, key) = (table.clone(), random.u64(..RECORDS));
                    let read = async move |tx: &braiddb::Transaction| {
                        assert!(tx.get(&table, &key).await?.is_some());
                        Ok::<_, Error>(())
                    };
                    db.run(read).await.unwrap();
                }
            }
        });
        pollster::block_on(futures_util::future::join_all(readers));
        let (after, seconds) = (db.stats().pages, begin.elapsed().as_secs_f64());
        println!(
            "{at_once} at once: {:.0} reads/s, {:.0} pages loaded/s, {:.2} a read",
            reads as f64 / seconds,
            (after.faults - before.faults) as f64 / seconds,
            (after.faults - before.faults) as f64 / reads as f64,
        );
    }
}

/// A savepoint is set while a write waits for its page. The write counts as later than the
/// savepoint and is rolled back with it. The log matches the table.
#[test]
fn a_savepoint_set_during_a_waiting_write_precedes_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        for keys in (0..RECORDS).collect::<Vec<_>>().chunks(50) {
            let (table, keys) = (table.clone(), keys.to_vec());
            let fill = db.run_blocking(async move |tx| {
                for key in &keys {
                    tx.insert(&table, key, &[0; VALUE_BYTES]).await?;
                }
                Ok(())
            });
            fill.unwrap();
        }
        let waited = db.run_blocking(async move |tx| {
            tx.put(&table, &7, b"a").await?;
            // Evicts its page.
            assert_eq!(tx.count(&table, 100..).await?, RECORDS - 100);
            let mut write = std::pin::pin!(tx.put(&table, &7, b"bbbb"));
            let mut savepoint = None;
            let mut suspensions = 0;
            std::future::poll_fn(|context| {
                let polled = write.as_mut().poll(context);
                if polled.is_pending() {
                    suspensions += 1;
                    savepoint = Some(tx.savepoint());
                }
                polled
            })
            .await?;
            tx.put(&table, &8, b"cccc").await?;
            let Some(savepoint) = savepoint else { return Ok(suspensions) };
            tx.rollback_to(&savepoint).await?;
            assert_eq!(tx.get(&table, &7).await?, Some(&b"a"[..]));
            tx.put(&table, &9, b"dddd").await?;
            Ok(suspensions)
        });
        assert!(waited.unwrap() > 0, "it waited for its page");
        db.close().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = pollster::block_on(db.open_table("records")).unwrap();
        for (key, value) in [(7, b"a".to_vec()), (8, vec![0; VALUE_BYTES]), (9, b"dddd".to_vec())] {
            assert_eq!(pollster::block_on(db.get(&table, &key)).unwrap(), Some(value));
        }
    });
}

#[test]
fn a_scan_loads_many_pages_at_the_same_time_and_none_beyond_its_range() {
    with_limit(LIMIT_SECONDS, |_| {
        let options =
            Options::default().workers(1).tuning(Tuning::default().page_frames(Some(128)));
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options.durability(Durability::Volatile))
            .unwrap()
            .watched();
        let table: Records = create_table(&db, "records", true);
        for first in (0..RECORDS).step_by(100) {
            let into = table.clone();
            let insert = async move |tx: &braiddb::Transaction| {
                for key in first..(first + 100).min(RECORDS) {
                    tx.insert(&into, &key, &[7; VALUE_BYTES][..]).await?;
                }
                Ok::<_, Error>(())
            };
            db.run_blocking(insert).unwrap();
        }
        for reverse in [false, true] {
            let before = db.stats();
            assert_eq!(contents(&db, &table, reverse).len() as u64, RECORDS);
            let after = db.stats();
            let faults = after.pages.faults - before.pages.faults;
            let waits = after.suspensions.storage - before.suspensions.storage;
            assert!(faults > 300, "the table is larger than memory: {faults}");
            assert!(waits < faults / 8, "{waits} waits for {faults} pages, reverse: {reverse}");
        }
        // Reads far from the last reads and from the ends of the earlier scans.
        let before = db.stats().pages.faults;
        let (from, middle) = (table.clone(), RECORDS / 2);
        for reverse in [false, true] {
            let (from, range) = (from.clone(), middle..middle + 30);
            let count = db.run_blocking(async move |tx| {
                let scan = tx.scan(&from, range.clone())?;
                let mut scan = if reverse { scan.rev() } else { scan };
                let mut count = 0;
                while scan.next().await?.is_some() {
                    count += 1;
                }
                Ok::<_, Error>(count)
            });
            assert_eq!(count.unwrap(), 30);
        }
        let faults = db.stats().pages.faults - before;
        assert!(faults < 8, "30 records lie on some five pages, not {faults}");
        db.close().unwrap();
    });
}
