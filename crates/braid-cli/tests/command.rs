//! Each verb of the command.

mod common;

use braiddb::{Database, Options, Table};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, airports, program};
use pollster::block_on;

const AIRPORTS: u64 = 28_298;

#[test]
fn the_worlds_airports() {
    let braid = Braid::new();
    let file = airports();
    let file = file.to_str().unwrap();
    let import = ["import", file, "--table", "airports", "--key", "icao", "--json"];
    let report: serde_json::Value = serde_json::from_str(&braid.run(&import, 0).0).unwrap();
    assert_eq!(
        (report["imported"].as_u64(), report["rejected"].as_u64()),
        (Some(AIRPORTS), Some(0))
    );

    let (ljubljana, _) = braid.run(&["get", "airports", "LJLJ", "--json"], 0);
    let ljubljana: serde_json::Value = serde_json::from_str(&ljubljana).unwrap();
    assert_eq!(ljubljana["country"], "SI");

    let (all, _) = braid.run(&["scan", "airports"], 0);
    let keys: Vec<&str> = all.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(keys.len() as u64, AIRPORTS);
    assert!(keys.is_sorted());
    // More than one page of output.
    assert!(all.len() > 3 << 20, "{}", all.len());
    let some: Vec<&str> = keys.iter().copied().filter(|key| key.starts_with('K')).collect();
    for reverse in [false, true] {
        let mut scan = vec!["scan", "airports", "--prefix", "K"];
        scan.extend(reverse.then_some("--reverse"));
        let (printed, _) = braid.run(&scan, 0);
        let key = |line: &str| line.split('\t').next().unwrap().to_owned();
        let mut printed: Vec<String> = printed.lines().map(key).collect();
        if reverse {
            printed.reverse();
        }
        assert_eq!(printed, some);
    }
    let (printed, _) = braid.run(&["scan", "airports", "--reverse", "--limit", "27000"], 0);
    assert_eq!(printed.lines().count(), 27_000);

    let (last, _) = braid
        .run(&["scan", "airports", "--prefix", "LJ", "--reverse", "--limit", "2", "--json"], 0);
    let last: Vec<serde_json::Value> =
        last.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(last.len(), 2);
    assert!(last[0]["key"].as_str() > last[1]["key"].as_str());

    let (some, _) = braid.run(&["scan", "airports", "--after", "LJLJ", "--to", "LJMB"], 0);
    assert!(some.lines().all(|line| line.starts_with("LJM")) && some.lines().count() >= 1);

    braid.run(&["delete", "airports", "LJLJ"], 0);
    let (_, said) = braid.run(&["get", "airports", "LJLJ"], 1);
    assert!(said.contains("LJLJ"), "{said}");
    braid.run(&["delete", "airports", "LJLJ"], 1);

    let (tables, _) = braid.run(&["tables", "--json"], 0);
    let table: serde_json::Value = serde_json::from_str(tables.trim()).unwrap();
    assert_eq!(
        (table["name"].as_str(), table["key_type"].as_str()),
        (Some("airports"), Some("str"))
    );
    let counted = |figure: &str| table[figure].as_u64().unwrap();
    assert!(counted("hot_records") + counted("cold_records") > 0, "{table}");
    assert!(counted("hot_bytes") + counted("cold_bytes") > 0, "{table}");
    let (stats, _) = braid.run(&["stats", "--json"], 0);
    let told: serde_json::Value = serde_json::from_str(&stats).unwrap();
    for figure in ["index_height", "hot_records", "cold_records", "cold_bytes"] {
        assert_eq!(told["tables"]["airports"][figure], table[figure], "{figure} of {stats}");
    }
    assert!(
        serde_json::from_str::<serde_json::Value>(&stats).unwrap()["memory"]["index_nodes"]
            .as_u64()
            > Some(1 << 18)
    );
}

#[test]
fn rejected_rows_are_reported_and_cancel_the_import() {
    let braid = Braid::new();
    let mut rows = b"id,name\n1,one\n2\n,three\n1,again\n4,".to_vec();
    rows.extend([0xff, b'\n']);
    rows.extend(b"5,five\n");
    let file = braid.file("rows.csv", rows);
    let (_, said) = braid.import(&file, &[], 4);
    for line in ["line 3", "line 4", "line 5", "line 6"] {
        assert!(said.contains(line), "{said}");
    }
    let (_, said) = braid.run(&["tables"], 3);
    assert!(
        said.contains("does not hold a database") || said.contains("no such directory"),
        "{said}"
    );
    braid.import(&file, &["--skip-rejected"], 4);
    assert_eq!(braid.run(&["scan", "t"], 0).0.lines().count(), 2);
    let missing = braid.file("other.csv", "a,b\n1,2\n");
    let (_, said) = braid.import(&missing, &[], 3);
    assert!(said.contains("no column \"id\"") && said.contains("a, b"), "{said}");
}

#[test]
fn json_lines_are_imported_and_exported() {
    let braid = Braid::new();
    let file = braid.file("rows.jsonl", "{\"id\": \"a\", \"n\": 1}\n\n{\"id\": 7}\n");
    braid.import(&file, &[], 0);
    assert_eq!(braid.run(&["get", "t", "7"], 0).0, "{\"id\":7}\n");
    let file = braid.file("bad.jsonl", "{\"id\": \"b\"}\n{oops\n[1]\n{\"x\": 1}\n");
    let (_, said) = braid.import(&file, &[], 4);
    assert!(
        said.contains("line 2") && said.contains("line 3") && said.contains("line 4"),
        "{said}"
    );
    // Errors have only the line number of the file.
    let expected = "bad.jsonl line 2: rejected: it is not valid JSON: the name of a field must be \
        in double quotes, at column 2\n";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("line 3: rejected: it is an array, not an object"), "{said}");
    assert!(!said.contains("at line 1"), "{said}");
    let file = braid.file("end.jsonl", "{\"id\": \"b\"}\n{\"id\": \n{\"id\": \"c\"");
    let (_, said) = braid.import(&file, &[], 4);
    assert!(said.contains("end.jsonl line 2: ") && said.contains("end.jsonl line 3: "), "{said}");
    assert!(!said.contains("at line"), "{said}");
    braid.run(&["get", "t", "b"], 1);
}

#[test]
fn data_is_imported_exactly_or_rejected() {
    let braid = Braid::new();
    let exact = "{\"id\":\"x\",\"z\":1.10,\"big\":12345678901234567890123,\"a\":-0.0}";
    let lines = format!("\u{feff}{exact}\n{{\"id\": 1.10}}\n{{\"id\": 12345678901234567890123}}\n");
    braid.import(&braid.file("exact.jsonl", lines), &[], 0);
    assert_eq!(braid.run(&["get", "t", "x"], 0).0, format!("{exact}\n"));
    assert_eq!(braid.run(&["get", "t", "x", "--json"], 0).0, format!("{exact}\n"));
    let scanned = braid.run(&["scan", "t", "--prefix", "x", "--json"], 0).0;
    assert_eq!(scanned, format!("{{\"key\":\"x\",\"value\":{exact}}}\n"));
    braid.run(&["get", "t", "1.10"], 0);
    braid.run(&["get", "t", "12345678901234567890123"], 0);
    let csv = "id,z,a\n1, 01.10 ,\"two\nlines\"\n";
    braid.import(&braid.file("order.csv", csv), &[], 0);
    assert_eq!(
        braid.run(&["get", "t", "1"], 0).0,
        "{\"id\":\"1\",\"z\":\" 01.10 \",\"a\":\"two\\nlines\"}\n"
    );
    let refused = [
        ("twice.csv", "id,name,name\n2,a,b\n", 3, "columns 2 and 3 are both named \"name\""),
        ("open.csv", "id,n\n2,a\n3,\"b\n4,c\n", 3, "line 3: a quotation mark opens"),
        ("after.csv", "id,n\n2,\"a\"b\n", 3, "line 2: text follows"),
        ("twice.jsonl", "{\"id\":\"2\",\"n\":1,\"n\":2}\n", 4, "two fields have the name \"n\""),
    ];
    for (name, text, code, expected) in refused {
        let (_, said) = braid.import(&braid.file(name, text), &["--skip-rejected"], code);
        assert!(said.contains(expected) && said.contains(name), "{said}");
        braid.run(&["get", "t", "2"], 1);
    }
}

#[test]
fn a_database_is_never_created_among_other_files() {
    let braid = Braid::new();
    let directory = braid.0.path().join("db");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("letter.new"), "dear").unwrap();
    for words in [&["put", "t", "a", "1"][..], &["shell"], &["get", "t", "a"]] {
        let (_, said) = braid.run(words, 3);
        assert!(said.contains("does not hold a database"), "{said}");
    }
    assert!(braid.run(&["put", "t", "a", "1"], 3).1.contains("letter.new"));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing was added");
}

#[test]
fn checkpoint_compact_and_check_succeed() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let report = |verb: &str| -> serde_json::Value {
        serde_json::from_str(&braid.run(&[verb, "--json"], 0).0).unwrap()
    };
    assert!(report("checkpoint")["records"].as_u64() >= Some(1));
    assert_eq!(report("compact")["segments"], 0);
    let check = report("check");
    assert!(check["records"].as_u64() >= Some(1), "{check}");
    assert_eq!(check["problems"].as_array().map(Vec::len), Some(0), "{check}");
}

#[test]
fn tables_are_renamed_and_dropped() {
    let braid = Braid::new();
    braid.run(&["put", "a", "key", "value"], 0);
    braid.run(&["rename", "a", "b"], 0);
    assert_eq!(braid.run(&["get", "b", "key"], 0).0, "value\n");
    let (_, said) = braid.run(&["rename", "a", "c"], 3);
    assert!(said.contains("there is no table \"a\""), "{said}");
    braid.run(&["put", "a", "key", "other"], 0);
    let (_, said) = braid.run(&["rename", "a", "b"], 3);
    assert!(said.contains("\"b\""), "{said}");
    braid.run(&["drop", "b"], 0);
    braid.run(&["drop", "b"], 3);
    let (tables, _) = braid.run(&["tables", "--json"], 0);
    assert!(tables.contains("\"a\"") && !tables.contains("\"b\""), "{tables}");
    assert_eq!(braid.run(&["get", "a", "key"], 0).0, "other\n");
}

#[test]
fn tables_of_other_types_are_read_and_written() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        {
            let db = Database::open(braid.0.path().join("db"), Options::default().workers(1))
                .unwrap()
                .watched();
            let orders: Table<(u64, String), u64> = block_on(db.create_table("orders")).unwrap();
            for (day, name, cents) in [(7, "ada", 100), (7, "ben", 250), (12, "ada", 5)] {
                block_on(db.put(&orders, &(day, name.to_owned()), &cents)).unwrap();
            }
            let days: Table<u64, [u8]> = block_on(db.create_table("days")).unwrap();
            block_on(db.put(&days, &9, &[1, 255])).unwrap();
            block_on(db.put(&days, &10, &[2])).unwrap();
            db.close().unwrap();
        }
        assert_eq!(braid.run(&["get", "orders", r#"[7, "ben"]"#], 0).0, "250\n");
        let (all, _) = braid.run(&["scan", "orders", "--from", r#"[7, "b"]"#], 0);
        assert_eq!(all, "[7,\"ben\"]\t250\n[12,\"ada\"]\t5\n");
        let (json, _) = braid.run(&["scan", "orders", "--limit", "1", "--json"], 0);
        assert_eq!(json, "{\"key\":[7,\"ada\"],\"value\":100}\n");
        // Keys are sorted as numbers, not as text.
        assert_eq!(braid.run(&["scan", "days"], 0).0, "9\t0x01ff\n10\t0x02\n");
        braid.run(&["put", "days", "11", "0x00"], 0);
        braid.run(&["delete", "days", "9"], 0);
        braid.run(&["get", "days", "9"], 1);
        assert_eq!(braid.run(&["scan", "days", "--reverse"], 0).0, "11\t0x00\n10\t0x02\n");
        let (_, said) = braid.run(&["get", "days", "monday"], 3);
        assert!(
            said.contains(
                "\"monday\" is not a valid u64: expected a whole number from 0 to \
                18446744073709551615"
            ),
            "{said}"
        );
        let (_, said) = braid.run(&["get", "orders", "7"], 3);
        assert!(said.contains(r#"[7,"text"]"#), "{said}");
        let (_, said) = braid.run(&["scan", "days", "--prefix", "1"], 3);
        assert!(said.contains("--from"), "{said}");
        let mut shell = braid.command(&["shell"]);
        let failed = shell.write_stdin("get days 10\n\nget days x\nget days 10\n").assert().code(3);
        let output = failed.get_output();
        assert_eq!(output.stdout, b"0x02\n");
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(said.contains("line 3") && said.contains("\"x\" is not a valid u64"), "{said}");
    });
}

#[test]
fn a_backup_opens_as_a_database() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let copy = braid.0.path().join("copy").to_str().unwrap().to_owned();
    let backup = braid.run(&["backup", &copy, "--json"], 0).0;
    let backup: serde_json::Value = serde_json::from_str(&backup).unwrap();
    assert!(backup["lsn"].as_u64() > Some(0), "{backup}");
    assert!(braid.run(&["backup", &copy], 3).1.contains("new or empty"));
    braid.run(&["put", "t", "a", "2"], 0);
    let mut command = program();
    let there = command.args(["get", "--db", &copy, "t", "a"]).assert().code(0);
    assert_eq!(there.get_output().stdout, b"1\n");
    let log = braid.run(&["log"], 0).0;
    assert!(log.lines().filter(|line| line.contains("commit")).count() >= 2, "{log}");
    let first: serde_json::Value =
        serde_json::from_str(&braid.run(&["log", "--limit", "1", "--json"], 0).0).unwrap();
    assert!(first["bytes"].as_u64() > Some(0), "{first}");
}

#[test]
fn the_shell_has_transactions() {
    let braid = Braid::new();
    let script = "begin\nput t a 1\nput t b 'two words'\nabort\nput t c 3\nbegin\nput t a 4\n\
                  get t a\ncommit\nscan t\n";
    let output =
        braid.command(&["shell"]).write_stdin(script).assert().code(0).get_output().clone();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "4\na\t4\nc\t3\n");
    let shell = braid.command(&["shell"]).write_stdin("\nget nowhere a\n").assert().code(3);
    let said = String::from_utf8(shell.get_output().stderr.clone()).unwrap();
    assert!(said.starts_with("braid: line 2: there is no table \"nowhere\""), "{said}");
    braid.command(&["shell"]).write_stdin("nonsense\n").assert().code(3);
    // A byte order mark is skipped. The message about a missing record is not among the values.
    let marked = "\u{feff}put t a 1\r\nget t nobody\nget t a\n";
    let said = braid.command(&["shell"]).write_stdin(marked).assert().code(0).get_output().clone();
    assert_eq!(said.stdout, b"1\n");
    assert_eq!(said.stderr, b"(no record)\n");
    let said = braid.command(&["shell", "--json"]).write_stdin("get t nobody\n").assert().code(0);
    assert_eq!(said.get_output().stdout, b"null\n");
    // The rollback is reported.
    let shell = braid.command(&["shell"]).write_stdin("begin\nput t b 2\nnonsense\n").assert();
    let said = String::from_utf8(shell.code(3).get_output().stderr.clone()).unwrap();
    assert!(said.contains("line 3 (its transaction was rolled back)"), "{said}");
    braid.run(&["get", "t", "b"], 1);
    let shell = braid.command(&["shell"]).write_stdin(vec![b'x'; (64 << 20) + 1]).assert();
    let said = String::from_utf8(shell.code(3).get_output().stderr.clone()).unwrap();
    assert!(said.contains("line 1: the line is longer than 64 MiB"), "{said}");
}

#[test]
fn a_locked_database_is_reported() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        braid.run(&["put", "t", "a", "1"], 0);
        let _db = Database::open(braid.0.path().join("db"), Default::default()).unwrap().watched();
        let (_, said) = braid.run(&["put", "t", "a", "2"], 3);
        assert!(said.contains("already open"), "{said}");
    });
}

#[test]
fn reading_verbs_work_while_a_program_has_the_database_open() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let path = braid.0.path().join("db");
        let service = Database::open(&path, Options::default().workers(1)).unwrap().watched();
        let table: Table<str, str> = block_on(service.create_table("t")).unwrap();
        for (key, value) in [("a", "1"), ("b", "2")] {
            block_on(service.put(&table, key, value)).unwrap();
        }
        let before = std::fs::metadata(path.join("LOCK")).unwrap().modified().unwrap();
        assert_eq!(braid.run(&["get", "t", "a"], 0).0, "1\n");
        assert_eq!(braid.run(&["scan", "t"], 0).0, "a\t1\nb\t2\n");
        assert!(braid.run(&["tables"], 0).0.contains("t "));
        assert!(braid.run(&["stats", "--json"], 0).0.contains("\"records\":2"));
        assert!(braid.run(&["check"], 0).0.contains("no problems found"));
        assert!(braid.run(&["log"], 0).0.contains("commit"));
        let exported = braid.path("t.jsonl");
        braid.run(&["export", &exported, "--table", "t"], 0);
        assert_eq!(std::fs::read_to_string(&exported).unwrap().lines().count(), 2);
        block_on(service.put(&table, "c", "3")).unwrap();
        assert_eq!(
            braid.run(&["get", "t", "c"], 0).0,
            "3\n",
            "the next command sees what was committed since"
        );
        assert_eq!(std::fs::metadata(path.join("LOCK")).unwrap().modified().unwrap(), before);
    });
}

#[test]
fn top_needs_the_feature_and_a_terminal() {
    let braid = Braid::new();
    let (stdout, error) = braid.run(&["top"], 3);
    assert_eq!(stdout, "");
    match cfg!(feature = "top") {
        true => assert!(error.contains("needs a terminal"), "{error}"),
        false => assert!(error.contains("crates/braid-cli --features top"), "{error}"),
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!braid.directory().exists());
    for every in ["0", "1e19", "NaN", "-1", "often"] {
        let (_, error) = braid.run(&["top", &format!("--every={every}")], 2);
        assert!(error.contains("from 0.05 to 3600"), "{error}");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_the_feature() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let (file, out) = (braid.file("in.parquet", "PAR1"), braid.path("out.parquet"));
    for words in [&["import", &file, "--key", "id"][..], &["export", &out]] {
        let (_, error) = braid.run(&[words, &["--table", "t"]].concat(), 3);
        assert!(error.contains("crates/braid-cli --features parquet"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn usage_errors_exit_with_2() {
    let braid = Braid::new();
    braid.run(&["get"], 2);
    braid.run(&["scan", "t", "--from", "a", "--prefix", "b"], 2);
    let help = program().arg("--help").assert().code(0);
    assert!(String::from_utf8_lossy(&help.get_output().stdout).contains("Exit codes"));
    // The arguments of a verb are listed before the common ones.
    let help = program().args(["scan", "-h"]).assert().code(0);
    let help = String::from_utf8(help.get_output().stdout.clone()).unwrap();
    let place = |words: &str| help.find(words).unwrap_or_else(|| panic!("no {words} in {help}"));
    let order = ["<TABLE>  ", "--prefix", "Database:", "--db", "--trace"].map(place);
    assert!(order.is_sorted(), "{help}");
}

/// The command lists the indexes of a program and checks their entries. It does not write to their
/// tables, because it cannot compute their keys.
#[test]
fn indexes_of_a_program_are_listed_checked_and_protected() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let directory = braid.0.path().join("db");
        {
            let db = Database::open(&directory, Options::default()).unwrap().watched();
            let table: Table<str, str> = block_on(db.create_table("persons")).unwrap();
            let options = braiddb::IndexOptions::default().unique(true).version(2);
            let first = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
            block_on(db.index(&table, "by_name", options, first)).unwrap();
            db.run_blocking(async move |tx| tx.put(&table, "7", "Ada").await).unwrap();
            db.close().unwrap();
        }
        let (tables, _) = braid.run(&["tables", "--json"], 0);
        let lines: Vec<serde_json::Value> =
            tables.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{tables}");
        let index = &lines[1];
        let told = (index["name"].as_str(), index["table"].as_str(), index["stage"].as_str());
        assert_eq!(told, (Some("by_name"), Some("persons"), Some("ready")));
        assert_eq!((index["unique"].as_bool(), index["version"].as_u64()), (Some(true), Some(2)));
        let (tables, _) = braid.run(&["tables"], 0);
        assert!(tables.contains("by_name") && tables.contains("ready"), "{tables}");
        let (check, _) = braid.run(&["check", "--json"], 0);
        // The catalog rows of table and index, the record, and its index entry.
        let check: serde_json::Value = serde_json::from_str(check.trim()).unwrap();
        assert_eq!(check["records"].as_u64(), Some(4), "{check}");
        assert_eq!(braid.run(&["get", "persons", "7"], 0).0.trim(), "Ada");
        let file = braid.file("p.csv", "id,n\n8,Bea\n");
        for words in [
            &["put", "persons", "8", "Bea"][..],
            &["delete", "persons", "7"],
            &["import", &file, "--table", "persons", "--key", "id"],
        ] {
            let (_, said) = braid.run(words, 3);
            assert!(
                said.contains(
                    "only its program can write table \"persons\", because the program computes \
                     the keys of index \"by_name\"; the command can read the table\n"
                ),
                "{said}"
            );
            assert!(!said.contains("Database::"), "{said}");
        }
        assert_eq!(braid.run(&["scan", "persons"], 0).0, "7\tAda\n");
        let (stats, _) = braid.run(&["stats"], 0);
        assert!(stats.contains("index_entries"), "{stats}");
    });
}

#[test]
fn a_trace_of_a_command_is_written() {
    let braid = Braid::new();
    let file = braid.0.path().join("trace.json");
    let trace = file.to_str().unwrap();
    braid.run(&["put", "names", "ada", "1815", "--trace", trace], 0);
    let events = || {
        let text = std::fs::read_to_string(&file).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    };
    let is = |name: &'static str| move |event: &serde_json::Value| event["name"] == name;
    assert!(events().iter().any(is("commit")) && events().iter().any(is("ends")));
    // A command that only reads does not wait for a commit.
    braid.run(&["get", "names", "ada", "--trace", trace], 0);
    assert!(!events().iter().any(is("commit")) && events().iter().any(is("ends")));
    // An import opens and closes its database with a trace.
    let airports = airports();
    let import = ["import", airports.to_str().unwrap(), "--table", "airports", "--key", "icao"];
    braid.run(&[&import[..], &["--trace", trace]].concat(), 0);
    assert!(events().iter().any(is("ends")));
    let nowhere = braid.0.path().join("none/trace.json");
    let (_, said) = braid.run(&["get", "names", "ada", "--trace", nowhere.to_str().unwrap()], 3);
    assert!(said.contains("cannot write the trace") && said.contains("none"), "{said}");
}
