//! Databases that earlier builds wrote, one for each version of the format.
//!
//! The last build before the next version wrote each of them. All have tables of numbers and text,
//! an index, deletions, a checkpoint and a log after it. From version 2 on they have records on
//! pages, records that expire and postcard structs; from version 3 on a change slot.
//!
//! Two more are of the first days of development. The headers of their segments do not state how
//! long the files are: one has a whole file, the other the shorter first file that grows.

use std::ops::RangeInclusive;
use std::path::Path;

use braiddb::{
    Database, Error, ErrorKind, IndexKeys, IndexOptions, LogError, Options, Postcard, Schema, Table,
};
use pollster::block_on;
use serde::{Deserialize, Serialize};

use crate::common::{PART_SECONDS, Watched, with_limit};

const VERSIONS: RangeInclusive<u32> = 1..=5;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct City {
    name: String,
    people: u64,
    capital: Option<String>,
}

impl Schema for City {
    const NAME: &'static str = "city";
}

/// Writes the files of a packed database.
fn unpack(name: &str, directory: &Path) {
    let name = format!("durability/formats/{name}.tar.zst");
    let packed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let archive = zstd::decode_all(&packed[..]).unwrap();
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    };
    // A tar archive: for each file a header of 512 bytes, and the file up to a multiple of them.
    let mut rest = &archive[..];
    while rest.len() >= 512 && rest[0] != 0 {
        let (header, files) = rest.split_at(512);
        let bytes = usize::from_str_radix(text(&header[124..136]).trim(), 8).unwrap();
        std::fs::write(directory.join(text(&header[..100])), &files[..bytes]).unwrap();
        rest = &files[bytes.next_multiple_of(512)..];
    }
}

/// Checks the contents that the earlier build wrote, and those that `write` added in some rounds.
fn verify(db: &Database, version: u32, rounds: u64) -> Result<(), Error> {
    let accounts: Table<u64, u64> = block_on(db.open_table("accounts"))?;
    let ids = (20..40).chain(45..110).chain(1000..1000 + rounds);
    let value = |id| if id < 40 { 7 } else { id * 10 };
    let expected: Vec<_> = ids.map(|id| (id, value(id))).collect();
    assert_eq!(block_on(db.scan(&accounts, ..))?, expected);
    let names: Table<str, str> = block_on(db.open_table("names"))?;
    for id in 0..100 {
        let name = block_on(db.get(&names, &format!("key {id}")))?;
        assert_eq!(name.unwrap(), format!("value {}", id % 7));
    }
    if version == 1 {
        return Ok(());
    }
    let pages: Table<u64, str> = block_on(db.open_table("pages"))?;
    assert_eq!(block_on(db.len(&pages))?, 91 + rounds);
    for id in 20..110 {
        assert_eq!(block_on(db.get(&pages, &id))?.unwrap(), format!("page record {id}"));
    }
    let long = "long ".repeat(if version == 2 { 200 } else { 4000 });
    assert_eq!(block_on(db.get(&pages, &1000))?.unwrap(), long);
    // They expire in the year 2121.
    let notes: Table<u64, str> = block_on(db.open_table("notes"))?;
    assert_eq!(block_on(db.get(&notes, &9))?.as_deref(), Some("note 9"));
    let cities: Table<u64, Postcard<City>> = block_on(db.open_table("cities"))?;
    let capital = Some("yes".to_owned());
    let city = City { name: "city 8".into(), people: 8000, capital };
    assert_eq!(block_on(db.get(&cities, &8))?, Some(city));
    let slots = block_on(db.change_slots())?;
    assert_eq!(slots.iter().filter(|slot| slot.name == "feed").count(), usize::from(version > 2));
    Ok(())
}

/// Writes one record more to some tables, and one to a table with an index.
fn write(db: &Database, version: u32, round: u64) -> Result<(), Error> {
    let accounts: Table<u64, u64> = block_on(db.open_table("accounts"))?;
    let id = 1000 + round;
    block_on(db.insert(&accounts, &id, &(id * 10)))?;
    if version > 1 {
        let pages: Table<u64, str> = block_on(db.open_table("pages"))?;
        block_on(db.insert(&pages, &(2000 + round), "a record of today"))?;
    }
    let names: Table<str, str> = block_on(db.open_table("names"))?;
    let extract = |name: &str, keys: &mut IndexKeys<'_, str>| keys.push(name);
    let by_value = block_on(db.index(&names, "by_value", IndexOptions::default(), extract))?;
    block_on(db.put(&names, &format!("today {round}"), "today"))?;
    let (today, six) = db.run_blocking(async move |tx| {
        let mut counts = [0, 0];
        for (count, value) in counts.iter_mut().zip(["today", "value 6"]) {
            let mut scan = tx.scan_by(&by_value, value.to_owned()..=value.to_owned())?;
            while scan.next().await?.is_some() {
                *count += 1;
            }
        }
        Ok((counts[0], counts[1]))
    })?;
    assert_eq!((today, six), (round + 1, 14));
    Ok(())
}

fn opens_and_writes(version: u32) -> Result<(), Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    unpack(&format!("format-{version}"), path);
    let options = || Options::default().workers(1);
    {
        let db = Database::open(path, options().read_only(true))?;
        verify(&db, version, 0)?;
        db.close()?;
    }
    for round in 0..3 {
        let db = Database::open(path, options())?;
        verify(&db, version, round)?;
        write(&db, version, round)?;
        verify(&db, version, round + 1)?;
        // The second opening recovers from a checkpoint of today, the first one from an earlier.
        if round > 0 {
            block_on(db.checkpoint())?;
            block_on(db.compact())?;
        }
        db.check()?;
        db.close()?;
    }
    Ok(())
}

#[test]
fn databases_of_every_earlier_format_are_opened_and_written() {
    with_limit(PART_SECONDS, |_| {
        for version in VERSIONS {
            opens_and_writes(version).unwrap_or_else(|error| panic!("version {version}: {error}"));
        }
    });
}

#[test]
fn databases_of_the_first_days_are_opened_and_written() {
    with_limit(PART_SECONDS, |_| {
        for name in ["first-whole", "first-grown"] {
            let directory = tempfile::tempdir().unwrap();
            unpack(name, directory.path());
            let rows = ["ada", "bob", "cy", "dan", "eve"].map(str::to_owned);
            for round in 0..3 {
                let options = Options::default().workers(1).read_only(round == 0);
                let db = Database::open(directory.path(), options).unwrap().watched();
                let people: Table<str, str> = block_on(db.open_table("people")).unwrap();
                let found: Vec<_> = block_on(db.scan(&people, ..)).unwrap();
                let added = (1..round).map(|round| format!("later {round}"));
                let expected: Vec<_> = rows.iter().cloned().chain(added).collect();
                let keys: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
                assert_eq!(keys, expected, "{name}");
                assert!(found[3].1.contains("dan") && found[4].1.contains("eve"), "{name}");
                if round > 0 {
                    block_on(db.put(&people, &format!("later {round}"), "today")).unwrap();
                    // More than the first file of a database has.
                    let blobs: Table<u64, [u8]> =
                        block_on(db.open_or_create_table("blobs")).unwrap();
                    block_on(db.put(&blobs, &(round as u64), &vec![7; 500_000])).unwrap();
                    db.check().unwrap();
                }
                db.close().unwrap();
            }
        }
    });
}

#[test]
fn a_later_format_is_refused_with_the_remedy() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        unpack("format-5", directory.path());
        let meta = directory.path().join("braid.meta");
        let mut sector = std::fs::read(&meta).unwrap();
        sector[8..12].copy_from_slice(&9_u32.to_le_bytes());
        sector[12..16].fill(0);
        let checksum = crc32c::crc32c(&sector);
        sector[12..16].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(&meta, sector).unwrap();
        let error = Database::open(directory.path(), Options::default().workers(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Call);
        assert!(matches!(error.log_error(), Some(LogError::WrongVersion { found: 9, .. })));
        let message = error.to_string();
        assert!(message.contains("format version 9") && message.contains("braid export"));
    });
}
