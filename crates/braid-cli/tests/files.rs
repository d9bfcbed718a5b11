//! Import and export: streams, large files, atomicity, and round trips.

mod common;

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use braiddb::{Database, Options, Postcard, Schema, Table};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, airports, ended};
use pollster::block_on;
use serde::{Deserialize, Serialize};

/// Rows `id,n` with shuffled keys.
fn shuffled(rows: u64) -> String {
    (0..rows).fold("id,n\n".to_owned(), |mut text, row| {
        let key = row.wrapping_mul(7_919) % rows;
        writeln!(text, "k{key:07},\"{row}\"").unwrap();
        text
    })
}

#[test]
fn exported_files_equal_imported_files() {
    let braid = Braid::new();
    let csv = "id,plain,quoted\n1,, a b \n2,\"a,b\",\"say \"\"yes\"\"\"\n3,\"two\nlines\",5\" x\n"
        .replace("5\" x", "\"5\"\" x\"");
    let lines =
        "{\"id\":\"1\",\"z\":1.10,\"a\":[1,{\"b\":null}]}\n{\"id\":\"2\",\"é\":\"x\\ny\"}\n";
    for (name, text) in
        [("rows.csv", csv.as_str()), ("rows.tsv", "id\tx\n1\ta,b\n"), ("rows.jsonl", lines)]
    {
        braid.import(&braid.file(name, text), &[], 0);
        let out = braid.path(&format!("out-{name}"));
        let export = ["export", &out, "--table", "t", "--key", "id"];
        let (said, _) = braid.run(&export, 0);
        assert!(said.contains("exported"), "{said}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), text, "{name}");
        let format = name.split_once('.').unwrap().1.replace("tsv", "csv");
        let mut words = vec!["export", "-", "--table", "t", "--key", "id", "--format", &format];
        words.extend(name.ends_with("tsv").then_some(["--delimiter", "tab"]).into_iter().flatten());
        assert_eq!(braid.run(&words, 0).0, text);
        braid.run(&["drop", "t"], 0);
    }
    let left: Vec<_> = std::fs::read_dir(braid.0.path()).unwrap().collect();
    assert!(left.iter().all(|entry| {
        !entry.as_ref().unwrap().file_name().to_string_lossy().contains("unfinished")
    }));
}

#[test]
fn the_worlds_airports_can_be_imported_again() {
    let braid = Braid::new();
    let (file, out) = (airports(), braid.path("out.csv"));
    let import = |file: &str, table: &str| {
        braid.run(&["import", file, "--table", table, "--key", "icao"], 0);
    };
    import(file.to_str().unwrap(), "a");
    for format in ["out.csv", "out.jsonl"] {
        let out = braid.path(format);
        braid.run(&["export", &out, "--table", "a", "--key", "icao", "--json"], 0);
        import(&out, format);
        assert_eq!(braid.run(&["scan", format], 0).0, braid.run(&["scan", "a"], 0).0);
    }
    // An export replaces an existing file.
    braid.run(&["export", &out, "--table", "a", "--key", "icao", "--columns", "icao,name"], 0);
    let head = std::fs::read_to_string(&out).unwrap();
    assert!(head.starts_with("icao,name\n00AA,Aero B Ranch Airport\n"), "{}", &head[..100]);
}

#[test]
fn tables_of_any_types_are_exported_by_key_and_value() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let make = |name: &str, fill: bool| {
            let db =
                Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
            let table: Table<(u64, String), u64> = block_on(db.create_table(name)).unwrap();
            if fill {
                block_on(db.put(&table, &(7, "a,\"b".to_owned()), &100)).unwrap();
                block_on(db.put(&table, &(12, String::new()), &u64::MAX)).unwrap();
            }
            db.close().unwrap();
        };
        make("pairs", true);
        for (number, file) in ["pairs.jsonl", "pairs.csv"].iter().enumerate() {
            let (out, copy) = (braid.path(file), format!("copy{number}"));
            braid.run(&["export", &out, "--table", "pairs"], 0);
            make(&copy, false);
            let import = ["import", &out, "--table", &copy, "--key", "key", "--value", "value"];
            braid.run(&import, 0);
            assert_eq!(braid.run(&["scan", &copy], 0).0, braid.run(&["scan", "pairs"], 0).0);
            let (_, said) = braid.run(&["import", &out, "--table", &copy, "--key", "key"], 3);
            assert!(said.contains("--value"), "{said}");
        }
        // Any text is exported verbatim.
        let twice = "{\"a\":1,\"a\":2}";
        let texts =
            ["{\"a\" : 1}", twice, "{\"a\":\n1}", "7", "null", "\"quoted\"", "two\nlines", ""];
        for (number, text) in texts.iter().enumerate() {
            braid.run(&["put", "texts", &number.to_string(), text], 0);
        }
        for file in ["texts.jsonl", "texts.csv"] {
            let out = braid.path(file);
            braid.run(&["export", &out, "--table", "texts"], 0);
            braid.run(&["import", &out, "--table", file, "--key", "key", "--value", "value"], 0);
            assert_eq!(braid.run(&["scan", file], 0).0, braid.run(&["scan", "texts"], 0).0);
        }
        // Keys that are truth values.
        let db =
            Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        let table: Table<bool, u8> = block_on(db.create_table("truths")).unwrap();
        block_on(db.put(&table, &true, &7)).unwrap();
        db.close().unwrap();
        drop((table, db));
        let out = braid.path("truths.jsonl");
        braid.run(&["export", &out, "--table", "truths"], 0);
        braid.run(&["delete", "truths", "true"], 0);
        braid.run(&["import", &out, "--table", "truths", "--key", "key", "--value", "value"], 0);
        assert_eq!(braid.run(&["scan", "truths"], 0).0, "true\t7\n");
        let bad =
            braid.file("bad.csv", "key,value\nx,1\n\"[7,\"\"a\"\"]\",x\n\"[1,\"\"c\"\"]\",3\n");
        let import = ["import", &bad, "--table", "pairs", "--key", "key", "--value", "value"];
        let (_, said) = braid.run(&import, 4);
        assert!(said.contains("line 2") && said.contains("line 3"), "{said}");
        assert!(!said.contains("line 4"), "{said}");
        assert_eq!(braid.run(&["scan", "pairs"], 0).0.lines().count(), 2);
    });
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    article: String,
    pieces: Vec<u8>,
}

impl Schema for Order {
    const NAME: &'static str = "order";
}

fn orders() -> [Order; 2] {
    [("nails", vec![7, 255]), ("0xff", Vec::new())]
        .map(|(article, pieces)| Order { article: article.to_owned(), pieces })
}

/// Values that only their program can decode.
#[test]
fn values_of_a_program_are_exported_and_imported() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let open =
            || Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        let db = open();
        let table: Table<u64, Postcard<Order>> = block_on(db.create_table("orders")).unwrap();
        for (key, order) in (0..).zip(&orders()) {
            block_on(db.put(&table, &key, order)).unwrap();
        }
        let _: Table<u64, Postcard<Order>> = block_on(db.create_table("copies")).unwrap();
        drop(table);
        db.close().unwrap();
        drop(db);
        for file in ["orders.csv", "orders.jsonl"] {
            let out = braid.path(file);
            braid.run(&["export", &out, "--table", "orders"], 0);
            let import = ["import", &out, "--table", "copies", "--key", "key", "--value", "value"];
            braid.run(&import, 0);
            let scanned = braid.run(&["scan", "copies"], 0).0;
            assert_eq!(scanned, braid.run(&["scan", "orders"], 0).0);
            braid.run(&["delete", "copies", "0"], 0);
        }
        let (bytes, _) = braid.run(&["get", "orders", "0"], 0);
        braid.run(&["put", "copies", "0", bytes.trim()], 0);
        let (_, said) = braid.run(&["put", "copies", "0", "nails"], 3);
        assert!(said.contains("order {article") && said.contains("not valid JSON"), "{said}");
        let db = open();
        let copies: Table<u64, Postcard<Order>> = block_on(db.open_table("copies")).unwrap();
        for (key, order) in (0..).zip(orders()) {
            assert_eq!(block_on(db.get(&copies, &key)).unwrap(), Some(order));
        }
        db.close().unwrap();
    });
}

#[test]
fn a_failed_export_leaves_no_file() {
    let braid = Braid::new();
    let out = braid.path("out.csv");
    braid.import(
        &braid.file("a.jsonl", "{\"id\":\"1\",\"a\":5}\n{\"id\":\"2\",\"b\":2}\n"),
        &[],
        0,
    );
    let export = |more: &[&str], code| {
        let words = [&["export", &out, "--table", "t"], more].concat();
        let (_, said) = braid.run(&words, code);
        assert!(code == 0 || !std::path::Path::new(&out).exists());
        assert!(std::fs::read_dir(braid.0.path()).unwrap().count() <= 3, "nothing is left");
        said
    };
    assert!(export(&["--key", "id"], 3).contains("the record 2 "), "it names the record");
    assert!(export(&["--key", "id"], 3).contains("--columns"));
    assert!(export(&["--key", "a"], 3).contains("does not hold its key"));
    assert!(export(&["--columns", "x"], 3).contains("the columns are key, id, a, b"));
    assert!(export(&["--delimiter", "ab"], 2).contains("one ASCII character"));
    export(&["--key", "id", "--columns", "id,b,a"], 0);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "id,b,a\n1,,5\n2,2,\n");
    braid.run(&["put", "t", "3", "plain"], 0);
    std::fs::remove_file(&out).unwrap();
    braid.run(&["delete", "t", "2"], 0);
    assert!(export(&["--key", "id"], 3).contains("not a JSON object"));
    assert!(braid.run(&["export", "rows", "--table", "t"], 3).1.contains("--format"));
    assert!(braid.run(&["export", &out, "--table", "x"], 3).1.contains("no table \"x\""));
}

#[test]
fn standard_input_delimiters_and_byte_order_marks() {
    let braid = Braid::new();
    let words =
        ["import", "-", "--table", "t", "--key", "id", "--format", "csv", "--delimiter", ";"];
    braid
        .command(&words)
        .write_stdin("\u{feff}id;n\r\n1;a,b\r\n\r\n2;\"c;d\"\r\n")
        .assert()
        .code(0);
    let scanned = braid.run(&["scan", "t"], 0).0;
    assert_eq!(scanned, "1\t{\"id\":\"1\",\"n\":\"a,b\"}\n2\t{\"id\":\"2\",\"n\":\"c;d\"}\n");
    let words = ["import", "-", "--table", "u", "--key", "id"];
    let said = braid.command(&words).write_stdin("x").assert().code(3).get_output().clone();
    assert!(String::from_utf8_lossy(&said.stderr).contains("--format"));
    // Line numbers are those of an editor, for all line ends and with empty lines.
    let words = ["import", "-", "--table", "u", "--key", "id", "--format", "csv"];
    let text = "id,n\r\n\r\n1,\"two\r\nlines\"\r\n\r\n\r\n2\r\n3,4\r\n3,5\r\n";
    let said = braid.command(&words).write_stdin(text).assert().code(4).get_output().clone();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("standard input line 7: rejected: it has 1 column,"), "{said}");
    assert!(said.contains("standard input line 9: rejected: an earlier row"), "{said}");
    assert!(
        braid
            .run(
                &[
                    "import",
                    braid.0.path().to_str().unwrap(),
                    "-t",
                    "t",
                    "-k",
                    "id",
                    "--format",
                    "csv"
                ],
                3
            )
            .1
            .contains("is a directory")
    );
}

/// Shuffled rows of many runs, and one duplicate far from the first.
#[test]
fn a_file_of_many_runs_is_imported_atomically() {
    let braid = Braid::new();
    let rows = 200_000;
    let text = shuffled(rows);
    let (good, bad) = (braid.file("good.csv", &text), text.clone() + "k0000000,again\n");
    let bad = braid.file("bad.csv", bad);
    // Little memory makes small runs.
    let memory = ["--memory", "68"];
    let (_, said) = braid.import(&bad, &memory, 4);
    assert!(said.contains(&format!("line {}", rows + 2)), "{said}");
    assert_eq!(braid.run(&["tables", "--json"], 0).0, "");
    let check: serde_json::Value =
        serde_json::from_str(&braid.run(&["check", "--json"], 0).0).unwrap();
    assert_eq!(check["records"], 0, "{check}");

    let (_, said) = braid.import(&bad, &["--memory", "68", "--skip-rejected"], 4);
    assert!(said.contains("an earlier row has its key \"k0000000\""), "{said}");
    let scanned = braid.run(&["scan", "t"], 0).0;
    assert_eq!(scanned.lines().count() as u64, rows);
    assert!(scanned.lines().map(|line| line.split('\t').next()).is_sorted());
    assert!(
        scanned.starts_with("k0000000\t{\"id\":\"k0000000\",\"n\":\"0\"}\n"),
        "the first stays"
    );

    // One transaction writes to an existing table.
    braid.run(&["put", "t", "other", "stays"], 0);
    braid.run(&["put", "t", "k0000000", "goes"], 0);
    braid.import(&good, &memory, 0);
    let scanned_again = braid.run(&["scan", "t"], 0).0;
    assert_eq!(scanned_again, scanned + "other\tstays\n");
    braid.import(&bad, &memory, 4);
    assert_eq!(braid.run(&["scan", "t"], 0).0, scanned_again);
}

/// Fields longer than a page survive a paged table, and a backup of it.
#[test]
fn long_fields_survive_a_paged_table() {
    let braid = Braid::new();
    let text = (0..8_usize).fold("id,n\n".to_owned(), |mut text, row| {
        let long = row.to_string().repeat(row * row * 10_000);
        writeln!(text, "{row},x{long}").unwrap();
        text
    });
    let file = braid.file("long.csv", text.clone());
    braid.import(&file, &["--paged"], 0);
    let out = braid.path("out.csv");
    braid.run(&["export", &out, "--table", "t", "--key", "id"], 0);
    assert!(std::fs::read_to_string(&out).unwrap() == text);
    let (backup, restored) = (braid.path("backup"), braid.path("restored"));
    braid.run(&["backup", &backup], 0);
    let restore = ["restore", &backup, "--db", &restored];
    common::program().args(restore).assert().code(0);
    let export = ["export", &out, "--table", "t", "--key", "id", "--db", &restored];
    common::program().args(export).assert().code(0);
    assert!(std::fs::read_to_string(&out).unwrap() == text);
    braid.run(&["check"], 0);
}

/// Imports into a paged table, and runs the other commands on it.
#[test]
fn an_import_into_a_paged_table_is_atomic() {
    let braid = Braid::new();
    let rows = 30_000;
    let (good, memory) = (braid.file("good.csv", shuffled(rows)), ["--memory", "68"]);
    braid.import(&good, &["--memory", "68", "--paged"], 0);
    let tables = braid.run(&["tables", "--json"], 0).0;
    let listed: serde_json::Value = serde_json::from_str(&tables).unwrap();
    assert_eq!(listed["options"]["paged"], true, "{tables}");
    // The index has pages above the pages with the records.
    assert_eq!(
        (&listed["records"], &listed["index_height"]),
        (&rows.into(), &3.into()),
        "{tables}"
    );
    assert!(listed["index_bytes"].as_u64() > Some(0), "{tables}");
    let scanned = braid.run(&["scan", "t"], 0).0;
    assert_eq!(scanned.lines().count() as u64, rows);
    assert!(scanned.lines().map(|line| line.split('\t').next()).is_sorted());
    // An existing paged table stays paged.
    braid.import(&good, &memory, 0);
    braid.run(&["put", "t", "other", "stays"], 0);
    assert_eq!(braid.run(&["get", "t", "other"], 0).0, "stays\n");
    braid.run(&["delete", "t", "other"], 0);
    assert_eq!(braid.run(&["scan", "t"], 0).0, scanned);
    let check: serde_json::Value =
        serde_json::from_str(&braid.run(&["check", "--json"], 0).0).unwrap();
    // The table's row and its records.
    assert_eq!(check["records"], rows + 1, "{check}");
    braid.run(&["rename", "t", "u"], 0);
    assert_eq!(braid.run(&["scan", "u"], 0).0, scanned);
    braid.run(&["drop", "u"], 0);
    assert_eq!(braid.run(&["tables", "--json"], 0).0, "");
    braid.run(&["checkpoint"], 0);
}

/// An index that exceeds `--memory` is reported, with the remedy of a paged table.
#[test]
fn a_key_too_long_for_a_paged_table_is_reported_with_its_line() {
    let braid = Braid::new();
    let long = |bytes| "k".repeat(bytes);
    let text = format!("id,n\na,1\n{},2\n{},3\nb,4\n", long(512), long(513));
    let file = braid.file("long.csv", text);
    let told =
        "long.csv line 4: rejected: its key has 513 bytes, the limit of a paged table is 512";
    let said = braid.import(&file, &["--paged"], 4).1;
    assert!(said.contains(told) && said.contains("nothing was imported"), "{said}");
    braid.run(&["scan", "t"], 3);
    let said = braid.import(&file, &["--paged", "--skip-rejected"], 4).1;
    assert!(said.contains(told), "{said}");
    assert_eq!(braid.run(&["scan", "t"], 0).0.lines().count(), 3);
    // The table is there now, and is what it is.
    let said = braid.import(&file, &[], 4).1;
    assert!(said.contains(told), "{said}");
    let words = ["import", &file, "--table", "u", "--key", "id"];
    braid.run(&words, 0);
    braid.run(&[&words[..], &["--paged"]].concat(), 0);
}

/// More bytes in a thousand rows than a transaction may have versions of.
#[test]
fn wide_rows_are_imported_into_a_paged_table() {
    let braid = Braid::new();
    let row = |row| format!("{row},{}\n", "v".repeat(60_000));
    let file = braid.file("wide.csv", "id,n\n".to_owned() + &(0..700).map(row).collect::<String>());
    assert_eq!(braid.import(&file, &["--paged"], 0).1, "");
    assert_eq!(braid.run(&["scan", "t"], 0).0.lines().count(), 700);
}

/// Returns whether `braid tables` lists a table as paged.
fn is_paged(braid: &Braid, table: &str) -> bool {
    let told = braid.run(&["tables", "--json"], 0).0;
    let tables = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut named = tables.filter(|told| told["name"] == table);
    named.next().expect("the table is there")["options"]["paged"].as_bool().unwrap()
}

#[test]
fn a_table_whose_index_exceeds_the_memory_is_paged() {
    const ROWS: usize = 20_000;
    let braid = Braid::new();
    let key = |row| format!("{row} is a key of some length");
    let text = |keys: &mut dyn Iterator<Item = String>| {
        keys.fold("id,n\n".to_owned(), |text, key| text + &key + ",1\n")
    };
    let file = braid.file("rows.csv", text(&mut (0..ROWS).map(key)));
    let (_, said) = braid.import(&file, &["--memory", "33"], 0);
    let begin = "braid: the index of these rows may take 2 MiB, and --memory leaves 1 MiB";
    assert!(said.starts_with(begin) && said.contains("as with --paged"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(is_paged(&braid, "t"));
    assert_eq!(braid.run(&["scan", "t"], 0).0.lines().count(), ROWS);
    for (table, more, paged) in
        [("wide", &["--memory", "68"][..], false), ("paged", &["--memory", "33", "--paged"], true)]
    {
        let words = [&["import", &file, "--table", table, "--key", "id"], more].concat();
        assert_eq!(braid.run(&words, 0).1, "");
        assert_eq!(is_paged(&braid, table), paged);
    }
    // An existing table stays unpaged, and its index counts.
    let one = braid.file("one.csv", "id,n\n1,1\n");
    let words = |table| ["import", &one, "--table", table, "--key", "id", "--memory", "33"];
    let (_, said) = braid.run(&words("wide"), 0);
    let begin = "braid: with these rows the index may take ";
    let then = "MiB of memory, but --memory leaves 1 MiB";
    assert!(said.starts_with(begin) && said.contains(then), "{said}");
    assert!(said.contains("into a new table"), "{said}");
    assert!(!is_paged(&braid, "wide"));
    assert_eq!(braid.run(&words("paged"), 0).1, "");
    // A table with keys too long for pages stays unpaged.
    let long = (0..3_000).map(|row| format!("{row:0600}"));
    let file = braid.file("long.csv", text(&mut long.into_iter()));
    let words = ["import", &file, "--table", "long", "--key", "id", "--memory", "33"];
    let (_, said) = braid.run(&words, 0);
    assert!(said.contains("a key has 600 bytes") && said.lines().count() == 1, "{said}");
    assert!(!is_paged(&braid, "long"));
    // A rejected import leaves neither kind of table.
    let twice = braid.file("twice.csv", text(&mut (0..ROWS).chain([7]).map(key)));
    let words = ["import", &twice, "--table", "twice", "--key", "id", "--memory", "33"];
    let (_, said) = braid.run(&words, 4);
    assert!(said.contains("nothing was imported"), "{said}");
    assert!(!braid.run(&["tables"], 0).0.contains("twice"));
}

#[test]
fn too_many_rows_for_an_existing_table_are_rejected() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let wide = "x".repeat(1 << 20);
    let text = (0..20).fold("id,n\n".to_owned(), |text, row| format!("{text}{row},{wide}\n"));
    let file = braid.file("wide.csv", text);
    let (_, said) = braid.import(&file, &["--memory", "68"], 3);
    assert!(said.contains("nothing was imported") && said.contains("17 MiB"), "{said}");
    assert_eq!(braid.run(&["scan", "t"], 0).0, "a\t1\n");
}

/// A killed import leaves no rows, and its space is freed.
#[test]
fn an_import_that_is_killed_leaves_nothing() {
    with_limit(LIMIT.as_secs(), |_| {
        let begin = Instant::now();
        let in_time = || assert!(begin.elapsed() < LIMIT, "it takes too long");
        // Some 60 MB.
        let text = (0..300_000_u64).fold("id,n\n".to_owned(), |mut text, row| {
            writeln!(text, "k{:07},{row:0200}", row * 7_919 % 300_000).unwrap();
            text
        });
        // Retries if the import was killed too late.
        let braid = loop {
            in_time();
            let braid = Braid::new();
            braid.run(&["put", "other", "a", "1"], 0);
            let file = braid.file("rows.csv", &text);
            if is_killed_half_way(&braid, &file, in_time) {
                break braid;
            }
        };
        assert_eq!(braid.run(&["scan", "other"], 0).0, "a\t1\n");
        assert_eq!(braid.run(&["get", "t", "k0000001"], 3).0, "");
        // The next command that writes frees the space.
        let before = disk_bytes(&braid);
        braid.run(&["put", "other", "b", "2"], 0);
        // The import did not fill a log segment, so none can be freed.
        let after = disk_bytes(&braid);
        assert!(after < before + (8 << 20), "{after} bytes on disk, and {before} before");
        let db =
            Database::open(braid.directory(), Options::default().workers(2)).unwrap().watched();
        let records = db.check().unwrap().records;
        assert!(records <= 4, "{records} records exist, including two of the catalog");
        db.close().unwrap();
        let names = std::fs::read_dir(braid.0.path()).unwrap();
        assert_eq!(names.count(), 2, "the file and the database");
        braid.import(&braid.file("small.csv", "id,n\nk1,1\n"), &[], 0);
        assert_eq!(braid.run(&["scan", "t"], 0).0.lines().count(), 1);
    });
}

/// Disk usage of the database in bytes.
fn disk_bytes(braid: &Braid) -> u64 {
    let files = std::fs::read_dir(braid.directory()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Kills an import once most of it is on disk. Returns whether it was not finished.
fn is_killed_half_way(braid: &Braid, file: &str, in_time: impl Fn()) -> bool {
    let before = disk_bytes(braid);
    let is_logged = || disk_bytes(braid) > before + (24 << 20);
    let mut child = Command::new(env!("CARGO_BIN_EXE_braid"))
        .args(["import", file, "--table", "t", "--key", "id", "--memory", "68", "--db"])
        .arg(braid.directory())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !is_logged() && child.try_wait().unwrap().is_none() {
        in_time();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (tables, _) = braid.run(&["tables", "--json"], 0);
    is_logged() && !tables.contains("\"t\"")
}

#[test]
fn a_closed_pipe_ends_a_scan_without_an_error() {
    let braid = Braid::new();
    braid.import(&braid.file("rows.csv", shuffled(200_000)), &[], 0);
    for json in [false, true] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_braid"));
        child.args(["scan", "t", "--db"]).arg(braid.directory()).args(json.then_some("--json"));
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let status = ended(&mut child);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success() && said.is_empty(), "{status}: {said}");
    }
}
