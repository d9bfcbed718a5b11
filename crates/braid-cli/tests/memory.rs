//! Files and tables larger than memory: `--memory` limits the memory, not the data.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use braiddb::{Database, Options, Table, TableOptions};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, ended};
use pollster::block_on;

/// MiB of `--memory`: the minimum for a log buffer of the default size.
const MEMORY: u64 = 68;

/// Imports many runs, which exceed the limit of a transaction on paged tables; and a file with a
/// duplicate row far from the first.
#[test]
fn an_import_into_an_existing_paged_table_may_exceed_one_transaction() {
    const ROWS: u64 = 40;
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let open =
            || Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        let db = open();
        // The order of numbers differs from that of their text.
        let paged = TableOptions::default().paged();
        let table: Table<u64, str> = block_on(db.create_table_with("t", paged)).unwrap();
        block_on(db.put(&table, &3, "goes")).unwrap();
        block_on(db.put(&table, &ROWS, "stays")).unwrap();
        drop(table);
        db.close().unwrap();
        drop(db);
        let value = |key: u64| char::from(b'a' + (key % 26) as u8).to_string().repeat(1 << 20);
        let text = (0..ROWS).fold("id,n\n".to_owned(), |mut text, row| {
            let key = row * 7 % ROWS;
            writeln!(text, "{key},{}", value(key)).unwrap();
            text
        });
        let bad = braid.file("bad.csv", text.clone() + "00,again\n");
        let more = ["--value", "n", "--memory", "68"];
        let (_, said) = braid.import(&bad, &more, 4);
        assert!(said.contains(&format!("line {}", ROWS + 2)), "{said}");
        let (scanned, _) = braid.run(&["scan", "t"], 0);
        assert_eq!(scanned, "3\tgoes\n40\tstays\n");
        let good = braid.file("good.csv", text);
        let (said, _) = braid.import(&good, &more, 0);
        assert!(said.contains("imported 40 rows"), "{said}");
        let db = open();
        let table: Table<u64, str> = block_on(db.open_table("t")).unwrap();
        for key in 0..ROWS {
            let found = block_on(db.get(&table, &key)).unwrap();
            assert!(found.is_some_and(|found| found == value(key)), "{key}");
        }
        assert_eq!(block_on(db.get(&table, &ROWS)).unwrap().as_deref(), Some("stays"));
        assert_eq!(block_on(db.len(&table)).unwrap(), ROWS + 1);
        db.close().unwrap();
    });
}

/// Peak memory of a process in MiB, if the process still exists.
fn most_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

/// Runs a command successfully. Returns its peak memory.
fn memory_of(braid: &Braid, words: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_braid"))
        .args(words)
        .args(["--threads", "2", "--memory", &MEMORY.to_string(), "--db"])
        .arg(braid.directory())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        // A finished process has no status.
        most = most_memory(child.id()).unwrap_or(most);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(ended(&mut child).success(), "{words:?}");
    most
}

/// Imports and scans many rows. Without `--memory` the import exceeds the bound of this test, which
/// includes the program itself and the runs of the import.
#[test]
fn import_and_scan_respect_the_memory_limit() {
    const ROWS: u64 = 100_000;
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let text = (0..ROWS).fold("id,n\n".to_owned(), |mut text, row| {
            writeln!(text, "k{:07},{row:0500}", row * 7_919 % ROWS).unwrap();
            text
        });
        let file = braid.file("rows.csv", &text);
        drop(text);
        let import = ["import", &file, "--table", "t", "--key", "id", "--paged"];
        for words in [&import[..], &["scan", "t"]] {
            let most = memory_of(&braid, words);
            assert!(most > MEMORY / 4, "{words:?}: only {most} MiB were measured");
            assert!(most <= MEMORY * 5 / 2, "{words:?}: {most} MiB of memory");
        }
    });
}
