//! Output of unusual data: control characters, and words that are not numbers.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use braiddb::{Database, Table};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, ended, program};
use pollster::block_on;

#[test]
fn control_characters_are_escaped_in_lines_and_tables() {
    let braid = Braid::new();
    let (key, value) = ("a\tb\n", "one\r\ntwo\t\u{1b}[31m\u{85}é\\n");
    braid.run(&["put", "t", key, value], 0);
    // JSON text has no control characters.
    braid.import(&braid.file("rows.csv", "id,a\nb,\"x\ty\"\n"), &[], 0);
    let scanned =
        "a\\tb\\n\tone\\r\\ntwo\\t\\u001b[31m\\u0085é\\n\nb\t{\"id\":\"b\",\"a\":\"x\\ty\"}\n";
    assert_eq!(braid.run(&["scan", "t"], 0).0, scanned);
    let mut shell = braid.command(&["shell"]);
    let printed = shell.write_stdin("scan t\n").assert().code(0).get_output().stdout.clone();
    assert_eq!(String::from_utf8(printed).unwrap(), scanned);
    // get and --json print exact values.
    assert_eq!(braid.run(&["get", "t", key], 0).0, format!("{value}\n"));
    let json = braid.run(&["scan", "t", "--json", "--limit", "1"], 0).0;
    let record: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&record["key"], &record["value"]), (&key.into(), &value.into()));
    let help = program().args(["scan", "--help"]).assert().code(0).get_output().stdout.clone();
    assert!(String::from_utf8(help).unwrap().contains("\\u001b"));

    let name = "odd\n\ttable";
    braid.run(&["rename", "t", name], 0);
    let shown = braid.run(&["tables"], 0).0;
    assert!(shown.contains("odd\\n\\ttable") && shown.lines().count() == 2, "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&braid.run(&["tables", "--json"], 0).0).unwrap();
    assert_eq!(json["name"], name);
    let stats = braid.run(&["stats"], 0).0;
    assert!(stats.lines().any(|line| line.contains("tables.odd\\n\\ttable.records ")), "{stats}");
}

#[test]
fn wrong_numbers_are_reported_with_the_expected_range() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        {
            let db = Database::open(braid.directory(), Default::default()).unwrap().watched();
            let accounts: Table<u64, i32> = block_on(db.create_table("accounts")).unwrap();
            block_on(db.put(&accounts, &1, &100)).unwrap();
            let _: Table<f64, u64> = block_on(db.create_table("weights")).unwrap();
            db.close().unwrap();
        }
        let said = braid.run(&["put", "accounts", "1", "xyz"], 3).1;
        let expected = "a whole number from -2147483648 to 2147483647";
        assert_eq!(
            said,
            format!("braid: the value: \"xyz\" is not a valid i32: expected {expected}\n")
        );
        let said = braid.run(&["put", "accounts", "one", "7"], 3).1;
        assert!(
            said.contains("\"one\" is not a valid u64: expected a whole number from 0 to "),
            "{said}"
        );
        assert_eq!(braid.run(&["get", "accounts", "1"], 0).0, "100\n");
        for (written, shown) in [("1e+23", "1e+23"), ("100000000000000000000000", "1e+23")] {
            braid.run(&["put", "weights", written, "7"], 0);
            assert_eq!(braid.run(&["get", "weights", shown], 0).0, "7\n");
            assert_eq!(braid.run(&["scan", "weights"], 0).0, format!("{shown}\t7\n"));
            let json = format!("{{\"key\":{shown},\"value\":7}}\n");
            assert_eq!(braid.run(&["scan", "weights", "--json"], 0).0, json);
        }
    });
}

#[test]
fn closed_pipes_change_no_exit_code() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let closed = || std::io::pipe().unwrap().1;
    let rows = braid.file("rows.csv", "id,n\n1,2,3\n");
    for (words, code) in [
        (&["get", "t", "none"][..], 1),
        (&["changes"], 0),
        (&["check", "none"], 2),
        (&["get", "none", "a"], 3),
        (&["import", &rows, "--table", "r", "--key", "id"], 4),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_braid"));
        child.args(words).env("BRAID_DB", braid.directory());
        let mut child = child.stdout(Stdio::null()).stderr(closed()).spawn().unwrap();
        assert_eq!(ended(&mut child).code(), Some(code), "{words:?}");
    }
}

#[test]
fn a_follower_ends_when_its_reader_does() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let mut follow = Command::new(env!("CARGO_BIN_EXE_braid"));
    follow.args(["changes", "--follow", "--db"]).arg(braid.directory());
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("transaction "), "{line}");
    assert!(ended(&mut child).success());
}
