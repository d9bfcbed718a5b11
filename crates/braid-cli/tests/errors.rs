//! Errors and their remedies, restore, statistics, and generated documentation.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use braiddb::Database;
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, ended, program};

#[test]
fn a_backup_is_restored_to_a_new_directory() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        braid.run(&["put", "t", "a", "1"], 0);
        let (backup, fresh) = (braid.path("backup"), braid.path("deep/fresh"));
        braid.run(&["backup", &backup], 0);
        braid.run(&["put", "t", "a", "2"], 0);
        let restore = |from: &str, to: &str, code: i32| {
            let output = program()
                .args(["restore", from, "--db", to, "--json"])
                .assert()
                .code(code)
                .get_output()
                .clone();
            String::from_utf8(if code == 0 { output.stdout } else { output.stderr }).unwrap()
        };
        let report: serde_json::Value = serde_json::from_str(&restore(&backup, &fresh, 0)).unwrap();
        assert_eq!(report["records"], 2, "{report}");
        // Most of a log segment of 64 MiB is a hole.
        let bytes = report["bytes"].as_u64().unwrap();
        assert!(bytes > 0 && bytes < 8 << 20, "{report}");
        let there = program().args(["get", "t", "a", "--db", &fresh]).assert().code(0);
        assert_eq!(there.get_output().stdout, b"1\n");
        // A restore never overwrites, and leaves no files when it fails.
        let database = braid.directory();
        let database = database.to_str().unwrap();
        assert!(restore(&backup, database, 3).contains("not empty"));
        assert_eq!(braid.run(&["get", "t", "a"], 0).0, "2\n");
        let file = braid.file("file", "text");
        assert!(restore(&backup, &file, 3).contains("is a file"));
        assert!(restore(&file, &braid.path("x"), 3).contains("is a file"));
        assert!(restore(&braid.path("nowhere"), &braid.path("x"), 3).contains("does not exist"));
        assert!(restore(&braid.path("deep"), &braid.path("x"), 3).contains("no file braid.meta"));
        {
            let _db = Database::open(&backup, Default::default()).unwrap().watched();
            assert!(restore(&backup, &braid.path("x"), 3).contains("open in another process"));
        }
        // A damaged backup is reported and not restored.
        let log = std::fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().path());
        let log = log.filter(|path| path.extension().is_some_and(|ending| ending == "seg")).min();
        let log = log.unwrap();
        let mut bytes = std::fs::read(&log).unwrap();
        let place = bytes.windows(1).skip(4096).position(|window| window != [0]).unwrap() + 4096;
        bytes[place + 20] ^= 0xff;
        std::fs::write(&log, bytes).unwrap();
        let said = restore(&backup, &braid.path("x"), 3);
        assert!(said.contains("nothing was restored; use another backup"), "{said}");
        assert!(said.contains(&backup) && !said.contains("unfinished"), "{said}");
        assert!(restore(&backup, &format!("{backup}/in"), 3).contains("is inside the backup"));
        let names = std::fs::read_dir(braid.0.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["backup", "db", "deep", "file"]);
    });
}

#[test]
fn a_path_without_a_database_is_reported_with_a_remedy() {
    let braid = Braid::new();
    let file = braid.file("file", "text");
    let said = |words: &[&str], db: &str| {
        let output = program().args(words).args(["--db", db]).assert().code(3).get_output().clone();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("at offset"), "{said}");
        assert!(said.contains(db), "{said}");
        said
    };
    for words in [&["get", "t", "a"][..], &["put", "t", "a", "1"], &["tables"], &["shell"]] {
        assert!(said(words, &file).contains("it is a file; name another directory"));
    }
    let missing = said(&["get", "t", "a"], &braid.path("missing"));
    assert!(missing.contains("no such directory") && missing.contains("--db"), "{missing}");
    let below = said(&["put", "t", "a", "1"], &format!("{file}/db"));
    assert!(below.contains("a part of this path is a file"), "{below}");
    let other = said(&["tables"], braid.0.path().to_str().unwrap());
    assert!(
        other.contains("it has no braid.meta; name the directory of the database with --db"),
        "{other}"
    );
    assert!(!std::path::Path::new(&braid.path("missing")).exists());

    braid.run(&["put", "t", "a", "1"], 0);
    for words in [&["get", "x", "a"][..], &["delete", "x", "a"], &["scan", "x"]] {
        let (_, said) = braid.run(words, 3);
        assert!(said.contains("there is no table \"x\"; the database has \"t\"\n"), "{said}");
    }
    for number in 0..10 {
        braid.run(&["put", &format!("t{number}"), "a", "1"], 0);
    }
    let (_, said) = braid.run(&["get", "x", "a"], 3);
    assert!(said.contains("\"t6\" and more, which braid tables lists"), "{said}");
    let (_, said) = braid.run(&["backup", &file], 3);
    assert!(said.contains("it is a file") && !said.contains("at offset"), "{said}");
}

#[test]
fn a_wrong_file_is_reported_with_a_remedy() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let (here, file) = (braid.path("."), braid.file("rows.csv", "id\n1\n"));
    let (missing, below, within) =
        (braid.path("x.csv"), braid.path("no/deep/x.csv"), format!("{file}/x.csv"));
    let own = braid.directory().to_str().unwrap().to_owned();
    for (path, what) in [
        (&here, format!("{here} is a directory; name a file in it: CSV, JSON lines or Parquet")),
        (&own, format!("{own} is a directory that holds a database; name a file; to restore ")),
        (&missing, format!("there is no file {missing}; name an existing file, or - for ")),
        (&braid.path("x"), format!("there is no file {}; name an existing file", braid.path("x"))),
        (&below, format!("there is no directory {}; name an existing file", braid.path("no/deep"))),
        (&within, format!("{file} is a file, not a directory; name an existing file")),
    ] {
        let (_, said) = braid.import(path, &[], 3);
        assert!(said.starts_with(&format!("braid: {what}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for (name, content, what) in [
        ("a.csv.gz", &b"\x1f\x8b\x08\0"[..], "nothing was imported: "),
        ("book.csv", b"PK\x03\x04 and more", "book.csv is compressed with zip;"),
        ("wide.csv", b"\xff\xfei\0d\0", "wide.csv is text in UTF-16; convert it first: iconv"),
        ("array.jsonl", b"\n [\n{\"id\":1}\n", "line 4: the array has no end; ] is missing"),
        ("whole.jsonl", b"[{\"id\":1}]\n{}\n", "line 2: text follows the end of the array"),
        (
            "semi.csv",
            b"id;n\n1;2\n",
            "its columns are id;n; to split this column, use --delimiter ';'",
        ),
        (
            "tab.csv",
            b"id\tn\n",
            "its columns are id\\tn; to split this column, use --delimiter tab",
        ),
        ("other.csv", b"a,b\n", "has no column \"id\"; its columns are a, b\n"),
        ("one.csv", b"a\n", "has no column \"id\"; its columns are a\n"),
    ] {
        let (_, said) = braid.import(&braid.file(name, content), &[], 3);
        assert!(said.contains(what), "{said}");
    }
    let (_, said) = braid.run(&["stats", "--from", &braid.path("none")], 3);
    assert!(
        said.contains("there is no file") && said.contains("/none; name the file to which"),
        "{said}"
    );
    for (path, what) in [
        (&here, format!("{here} is a directory; name a file in it")),
        (
            &below,
            format!("there is no directory {}; name a file in an existing", braid.path("no/deep")),
        ),
        (&within, format!("{file} is a file, not a directory; name a file in an existing")),
    ] {
        let (_, said) = braid.run(&["export", path, "--table", "t"], 3);
        assert!(said.starts_with(&format!("braid: {what}")), "{said}");
    }
    for (backup, what) in [
        (&missing, "the directory does not exist; name the directory that braid backup created"),
        (&here, "it has no file braid.meta; name the directory"),
        (&file, "it is a file; braid import reads files; name the directory"),
    ] {
        let words = ["restore", backup, "--db", &braid.path("fresh")];
        let said = program().args(words).assert().code(3).get_output().stderr.clone();
        let expected = format!("braid: {backup} is not a backup: {what}");
        assert!(String::from_utf8_lossy(&said).starts_with(&expected), "{said:?}");
    }
}

#[test]
fn tables_are_listed_with_their_sizes() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    braid.run(&["put", "t", "b", "2"], 0);
    let (tables, _) = braid.run(&["tables", "--json"], 0);
    let table: serde_json::Value = serde_json::from_str(&tables).unwrap();
    assert_eq!((&table["name"], &table["records"]), (&"t".into(), &2.into()), "{table}");
    assert_eq!(table["index_height"], 1, "{table}");
    assert!(table["index_bytes"].as_u64() > Some(0), "{table}");
    let (shown, _) = braid.run(&["tables"], 0);
    assert!(shown.contains(" records ") && !shown.contains("in memory"), "{shown}");
    // The shell has written these records, so they are in memory.
    let script = "put t a 3\nput t b 4\ntables\n";
    let output =
        braid.command(&["shell"]).write_stdin(script).assert().code(0).get_output().clone();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(" in memory ") && shown.contains(" 100 % "), "{shown}");
}

#[test]
fn statistics_are_repeated() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let mut child = Command::new(env!("CARGO_BIN_EXE_braid"))
        .args(["stats", "--json", "--watch", "0.01", "--db"])
        .arg(braid.directory())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        let stats: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(stats["committed"].as_u64() > Some(0), "{stats}");
    }
    // A closed pipe ends the command.
    drop(lines);
    assert!(ended(&mut child).success());
    for pause in ["--watch=-1", "--watch=0", "--watch=0.001", "--watch=nan"] {
        let (_, said) = braid.run(&["stats", pause], 2);
        assert!(said.contains("give a number of seconds from 0.01 to 86400"), "{said}");
    }
}

/// With --from, the command shows the statistics of a program and opens no database.
#[test]
fn statistics_of_a_running_program_are_read_from_its_file() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    let (stats, _) = braid.run(&["stats", "--json"], 0);
    let mut stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    stats["committed"] = 4_711.into();
    let file = braid.path("stats.json");
    std::fs::write(&file, format!("{stats}\n")).unwrap();
    let (shown, _) = braid.run(&["stats", "--json", "--from", &file], 0);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["committed"], &shown["lsn"]), (&4_711.into(), &stats["lsn"]));
    let (shown, _) = braid.run(&["stats", "--from", &file], 0);
    assert!(shown.contains("4711"), "{shown}");
    std::fs::write(&file, "").unwrap();
    let (_, said) = braid.run(&["stats", "--from", &file], 3);
    assert!(said.contains("has no statistics yet"), "{said}");
    std::fs::write(&file, "{}\n").unwrap();
    let (_, said) = braid.run(&["stats", "--from", &file], 3);
    assert!(said.contains("is not the JSON statistics of a database"), "{said}");
}

#[test]
fn completions_and_manual_have_every_verb() {
    let braid = Braid::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = program().args(["completions", shell]).assert().code(0).get_output().clone();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("checkpoint") && script.contains("skip-rejected"), "{shell}");
    }
    let pages = braid.path("man");
    program().args(["man", &pages]).assert().code(0);
    for page in ["braid.1", "braid-demo.1", "braid-import.1", "braid-restore.1", "braid-top.1"] {
        let page = std::fs::read_to_string(std::path::Path::new(&pages).join(page)).unwrap();
        assert!(page.contains(".TH"), "{page}");
    }
}

#[test]
fn obstacles_are_reported_with_fitting_advice() {
    let braid = Braid::new();
    braid.run(&["put", "t", "a", "1"], 0);
    braid.run(&["put", "u", "a", "1"], 0);
    // A directory that is not empty.
    let there = braid.0.path().to_str().unwrap();
    let said = braid.run(&["backup", there], 3).1;
    assert!(
        said.contains("it is not empty; name a new or empty directory") && !said.contains("--db"),
        "{said}"
    );
    let own = braid.directory();
    for within in [own.clone(), own.join("sub"), own.join("sub/sub")] {
        let said = braid.run(&["backup", within.to_str().unwrap()], 3).1;
        assert!(said.contains("it is the database's own directory, or within it"), "{said}");
    }
    let said = braid.run(&["rename", "t", "u"], 3).1;
    assert!(said.contains("choose another name") && !said.contains("open it"), "{said}");
    let file = braid.file("file", "text");
    let output = program().args(["man", &file]).assert().code(3).get_output().clone();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is a file; name a directory"), "{said}");
}

#[test]
fn errors_use_the_words_of_the_command_line() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        {
            let db = Database::open(braid.directory(), Default::default()).unwrap().watched();
            pollster::block_on(db.create_table::<i64, [u8]>("numbers")).unwrap();
            db.close().unwrap();
        }
        let place = braid.directory();
        for (flag, value) in [
            ("--threads", "0"),
            ("--threads", "257"),
            ("--threads", "-1"),
            ("--memory", "1"),
            ("--memory", "-64"),
            ("--memory", "99999999999999"),
        ] {
            let words = ["get", "numbers", "1", flag, value];
            let output = program().args(words).arg("--db").arg(&place).assert().code(2);
            let said = String::from_utf8(output.get_output().stderr.clone()).unwrap();
            let limits = ["give a number of threads from 1 to 256", "give a number of MiB from 33"];
            assert!(said.contains(flag) && limits.iter().any(|told| said.contains(told)), "{said}");
            assert!(!said.contains("workers") && !said.contains("memory_budget"), "{said}");
        }
        for words in [["scan", "numbers", "--limit", "-1"], ["scan", "numbers", "-l", "1e3"]] {
            let said = braid.run(&words, 2).1;
            assert!(said.contains("give a whole number, such as 10"), "{said}");
        }
        assert!(braid.run(&["log", "--from", "-1"], 2).1.contains("a whole number"));
        // A database accepts the maximum values.
        let most = ["put", "numbers", "1", "0x01", "--threads", "256", "--memory", "1024"];
        program().args(most).arg("--db").arg(&place).assert().code(0);
        // The message names the wrong word.
        let said = braid.run(&["put", "numbers", "1", "zz"], 3).1;
        assert!(said.starts_with("braid: the value: "), "{said}");
        let said = braid.run(&["put", "numbers", "zz", "0x00"], 3).1;
        assert!(said.starts_with("braid: the key: "), "{said}");

        let shell = |script: &'static str, code: i32| {
            let output = braid.command(&["shell"]).write_stdin(script).assert().code(code);
            String::from_utf8(output.get_output().stderr.clone()).unwrap()
        };
        let said = shell("put numbers -7 0x01\nput numbers 1 zz\n", 3);
        assert!(said.starts_with("braid: line 2: the value: "), "{said}");
        assert_eq!(braid.run(&["get", "numbers", "-7"], 0).0, "0x01\n");
        let said = shell("gets numbers 1\n", 3);
        assert_eq!(
            said,
            "braid: line 1: unrecognized subcommand 'gets'; tip: a similar subcommand exists: \
             'get'; help lists the commands\n"
        );
        let said = shell("get numbers\n", 3);
        assert!(said.contains("not provided: <KEY>; usage: get <TABLE> <KEY>; help"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let said = shell("begin\nput numbers 8 0x01\n", 3);
        assert!(said.contains("was rolled back"), "{said}");
        braid.run(&["get", "numbers", "8"], 1);
    });
}

#[test]
fn negative_numbers_are_keys_and_bounds() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        {
            let db = Database::open(braid.directory(), Default::default()).unwrap().watched();
            let table = pollster::block_on(db.create_table::<i64, i64>("t")).unwrap();
            for number in -3..=3 {
                pollster::block_on(db.put(&table, &number, &-number)).unwrap();
            }
            db.close().unwrap();
        }
        assert_eq!(braid.run(&["get", "t", "-2"], 0).0, "2\n");
        braid.run(&["put", "t", "-2", "-20"], 0);
        assert_eq!(braid.run(&["get", "t", "-2"], 0).0, "-20\n");
        braid.run(&["delete", "t", "-3"], 0);
        let keys = |bounds: &[&str]| {
            let printed = braid.run(&[&["scan", "t"], bounds].concat(), 0).0;
            printed.lines().count()
        };
        assert_eq!(keys(&["--from", "-2", "--to", "-1"]), 2);
        assert_eq!(keys(&["--after", "-2", "--before", "-1"]), 0);
        assert_eq!(keys(&["--to", "-1"]), 2);
    });
}

#[test]
fn nodes_are_run_by_another_program() {
    // A copy of the command, because the directory of builds may contain the program. Other processes
    // write both files: a child that another test starts could inherit an open file of this one, and
    // a file that is open for writing cannot be executed.
    let (directory, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let braid = directory.path().join("braid");
    let copied = Command::new("cp").arg(assert_cmd::cargo::cargo_bin("braid")).arg(&braid).status();
    assert!(copied.unwrap().success());
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&braid).args(arguments).env("PATH", path.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = run(&["cluster", "status"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("install it with: cargo install --path crates/braid-node"), "{said}");
    let install = |place: &std::path::Path, name: &str| {
        let program = place.join("braid-node");
        let text = format!("#!/bin/sh\necho {name} \"$@\"\nexit 1\n");
        let write = r#"printf %s "$1" > "$2" && chmod +x "$2""#;
        let written = Command::new("sh").args(["-c", write, "sh", &text]).arg(program).status();
        assert!(written.unwrap().success());
    };
    install(path.path(), "path");
    assert_eq!(run(&["node", "--id", "1"]), (Some(1), "path node --id 1\n".to_owned()));
    install(directory.path(), "beside");
    let (_, said) = run(&["--json", "cluster", "status", "--help"]);
    assert_eq!(said, "beside cluster --json status --help\n");
}
