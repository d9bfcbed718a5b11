//! Maintenance of a database that this process has open, by the command.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;

use braiddb::{Database, Options, Table};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT, ended, program};

/// Opens the database of the command in this process, with a table of 100 records.
fn open(braid: &Braid) -> (Database, Table<u64, str>) {
    let options = Options::default().workers(2);
    let db = Database::open(braid.directory(), options).unwrap().watched();
    let table = braiddb::block_on(db.open_or_create_table::<u64, str>("t")).unwrap();
    for number in 0..100 {
        braiddb::block_on(db.put(&table, &number, "text")).unwrap();
    }
    (db, table)
}

fn socket(braid: &Braid) -> UnixStream {
    UnixStream::connect(braid.directory().join("braid.socket")).unwrap()
}

/// Sends bytes to the socket, and returns everything that it answers.
fn answer(braid: &Braid, request: &[u8]) -> String {
    let (mut client, mut answer) = (socket(braid), String::new());
    // The service may end the connection early.
    _ = client.write_all(request);
    _ = client.read_to_string(&mut answer);
    answer
}

#[test]
fn the_process_that_has_the_database_open_performs_maintenance() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, table) = open(&braid);
        let before = db.stats().lsn.checkpoint;
        let (said, _) = braid.run(&["checkpoint"], 0);
        let lsn = db.stats().lsn.checkpoint;
        assert!(lsn > before && said.starts_with(&format!("checkpoint at LSN {lsn}: ")), "{said}");
        let (said, _) = braid.run(&["checkpoint", "--json"], 0);
        let written: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(written["records"], 101, "{said}");
        braiddb::block_on(db.clear(&table)).unwrap();
        let (said, _) = braid.run(&["compact"], 0);
        assert!(said.contains("freed") && said.contains("moved"), "{said}");
        let (said, _) = braid.run(&["check"], 0);
        assert!(said.contains("1 record,") && said.contains("no problems found"), "{said}");
        db.close().unwrap();
        assert!(!braid.directory().join("braid.socket").exists());
        let findings = |said: &str| said.split_once(", ").unwrap().1.to_owned();
        let (here, _) = braid.run(&["check"], 0);
        assert_eq!(findings(&here), findings(&said), "the same without the service");
    });
}

#[test]
fn a_backup_is_made_while_a_process_has_the_database_open() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, table) = open(&braid);
        let copies = [braid.path("first"), braid.path("second")];
        braid.run(&["backup", &copies[0]], 0);
        braid.run(&["checkpoint"], 0);
        braiddb::block_on(db.put(&table, &100, "text")).unwrap();
        let (said, _) = braid.run(&["backup", &copies[1], "--json"], 0);
        let backup: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(backup["bytes"].as_u64().unwrap() > 0, "{said}");
        for (copy, records) in copies.iter().zip([101, 102]) {
            assert!(!Path::new(copy).join("braid.socket").exists());
            let said = program().args(["check", "--db", copy]).assert().code(0);
            let said = String::from_utf8(said.get_output().stdout.clone()).unwrap();
            assert!(said.contains(&format!("{records} records")), "{said}");
        }
        // It only reads: read-only permissions are enough.
        db.close().unwrap();
        for entry in fs::read_dir(braid.directory()).unwrap() {
            fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o400)).unwrap();
        }
        braid.run(&["backup", &braid.path("third")], 0);
    });
}

#[test]
fn damage_is_reported_by_the_process_that_has_the_database_open_as_by_the_command() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, _) = open(&braid);
        let segment = braid.directory().join("wal-0000000000000000.seg");
        let mut bytes = fs::read(&segment).unwrap();
        let value = bytes.windows(4).position(|window| window == b"text").unwrap();
        bytes[value] ^= 0xff;
        fs::write(&segment, &bytes).unwrap();
        let (_, open) = braid.run(&["check"], 3);
        assert!(open.contains("wal-0000000000000000.seg is damaged at offset"), "{open}");
        let (said, _) = braid.run(&["check", "--json"], 3);
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(!report["problems"].as_array().unwrap().is_empty(), "{said}");
        drop(db);
    });
}

#[test]
fn ten_clients_at_the_same_time_are_all_served() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, _) = open(&braid);
        let verbs = ["checkpoint", "compact", "check"].into_iter().cycle().take(10);
        let start = |verb: &str| {
            let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("braid"));
            command.args([verb, "--db"]).arg(braid.directory()).stdout(Stdio::null());
            command.spawn().unwrap()
        };
        let clients: Vec<_> = verbs.map(start).collect();
        for mut client in clients {
            assert!(ended(&mut client).success());
        }
        assert!(db.stats().lsn.checkpoint > 0);
    });
}

#[test]
fn hostile_bytes_and_hung_clients_are_refused_and_delay_nothing() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, _) = open(&braid);
        for request in
            [&b"\n"[..], b"GET / HTTP/1.1\n", b"braid 2 check\n", &[0xff; 64], &[0; 4096]]
        {
            let said = answer(&braid, request);
            // A client that sends more than a request may lose the answer.
            assert!(said.starts_with("failed ") || request.len() > 64 && said.is_empty(), "{said}");
        }
        for verb in ["", "destroy", "check check", "Check"] {
            let said = answer(&braid, format!("braid 1 {verb}\n").as_bytes());
            assert!(said.starts_with("braid 1\nfailed this engine knows no request"), "{said}");
        }
        // Clients that leave before the answer, or without a request.
        for request in [&b"braid 1 check\n"[..], b"braid 1 compact\n", b"braid", b""] {
            socket(&braid).write_all(request).unwrap();
        }
        // Clients that send nothing, and read nothing, and stay.
        let hung: Vec<_> = (0..5).map(|_| socket(&braid)).collect();
        braid.run(&["checkpoint"], 0);
        let more: Vec<_> = (0..5).map(|_| socket(&braid)).collect();
        db.close().unwrap();
        for mut client in hung.into_iter().chain(more) {
            // They were disconnected.
            let mut answer = Vec::new();
            _ = client.read_to_end(&mut answer);
        }
        braid.run(&["checkpoint"], 0);
    });
}

#[test]
fn a_process_without_a_socket_is_named_with_a_remedy() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let options = || Options::default().workers(2);
        // A socket that a killed process left is removed, or replaced.
        fs::create_dir(braid.directory()).unwrap();
        let path = braid.directory().join("braid.socket");
        drop(UnixListener::bind(&path).unwrap());
        let db = Database::open(braid.directory(), options().socket(false)).unwrap().watched();
        assert!(!path.exists());
        assert_eq!(db.socket_path().unwrap(), None);
        for verb in ["checkpoint", "compact"] {
            let (_, said) = braid.run(&[verb], 3);
            assert!(said.contains("cannot be asked") && said.contains("Options::socket"), "{said}");
        }
        // Both only read.
        braid.run(&["check"], 0);
        braid.run(&["backup", &braid.path("copy")], 0);
        drop(db);
        drop(UnixListener::bind(&path).unwrap());
        let db = Database::open(braid.directory(), options()).unwrap().watched();
        assert_eq!(db.socket_path().unwrap(), Some(path.clone()));
        braid.run(&["checkpoint"], 0);
        // Something else removes it.
        fs::remove_file(&path).unwrap();
        assert!(braid.run(&["checkpoint"], 3).1.contains("cannot be asked"));
        db.close().unwrap();
        // The file cannot be created.
        fs::create_dir(&path).unwrap();
        let db = Database::open(braid.directory(), options()).unwrap().watched();
        let reason = db.socket_path().unwrap_err().to_string();
        assert!(reason.contains("listen on") && reason.contains("braid.socket"), "{reason}");
        drop(db);
        assert!(path.is_dir());
    });
}

#[test]
fn the_socket_has_the_permissions_of_the_directory_and_a_path_of_any_length() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let deep = braid.0.path().join("a".repeat(120));
        fs::create_dir(&deep).unwrap();
        for (directory, socket) in [(0o700, 0o600), (0o755, 0o600), (0o770, 0o660), (0o777, 0o666)]
        {
            fs::set_permissions(&deep, fs::Permissions::from_mode(directory)).unwrap();
            let db = Database::open(&deep, Options::default().workers(2)).unwrap().watched();
            let metadata = fs::metadata(deep.join("braid.socket")).unwrap();
            assert!(metadata.file_type().is_socket());
            assert_eq!(metadata.permissions().mode() & 0o777, socket, "{directory:o}");
            program().args(["checkpoint", "--db"]).arg(&deep).assert().code(0);
            // The directory is moved while the database is open.
            let moved = braid.0.path().join("moved");
            fs::rename(&deep, &moved).unwrap();
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("braid.socket"), "of another program").unwrap();
            drop(db);
            assert!(!moved.join("braid.socket").exists());
            fs::remove_file(deep.join("braid.socket")).unwrap();
            fs::remove_dir(&deep).unwrap();
            fs::rename(&moved, &deep).unwrap();
        }
    });
}

#[test]
fn a_database_is_closed_while_it_answers() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        for round in 0..10 {
            let (db, _) = open(&braid);
            let verb = ["check", "compact", "checkpoint"][round % 3];
            let mut client = socket(&braid);
            client.write_all(format!("braid 1 {verb}\n").as_bytes()).unwrap();
            if round % 2 == 0 {
                // The request has begun.
                client.read_exact(&mut [0; 8]).unwrap();
            }
            match round % 4 {
                0 | 1 => db.close().unwrap(),
                _ => drop(db),
            }
            // The directory is free, and nothing of the socket is left.
            assert!(!braid.directory().join("braid.socket").exists());
            _ = client.read_to_string(&mut String::new());
        }
    });
}

#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let mut shell = std::process::Command::new(assert_cmd::cargo::cargo_bin("braid"));
        shell.args(["shell", "--threads", "2", "--db"]).arg(braid.directory());
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdin.as_mut().unwrap().write_all(b"put t a 1\nget t a\n").unwrap();
        // The shell has the database open.
        shell.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        assert!(braid.run(&["checkpoint"], 0).0.contains("2 records"));
        shell.kill().unwrap();
        shell.wait().unwrap();
        let path = braid.directory().join("braid.socket");
        assert!(path.exists());
        // No process listens: the command itself reads, or opens the database.
        braid.run(&["check"], 0);
        braid.run(&["backup", &braid.path("copy")], 0);
        assert!(path.exists(), "both only read");
        braid.run(&["checkpoint"], 0);
        assert!(!path.exists());
    });
}

/// Mounts a small disk at `$1`, and backs the database `$3` up to it, first without enough space.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=2m braid-test "$1" || exit 99
run() { "$@"; echo "code $?"; }
run "$2" backup "$1/copy" --db "$3"
run "$2" get t 1 --db "$1/copy"
run "$2" restore "$1/copy" --db "$1/restored"
run "$2" check --db "$3"
mount -o remount,size=200m "$1" || exit 98
rm -r "$1/copy"
run "$2" backup "$1/copy" --db "$3"
run "$2" get t 1 --db "$1/copy"
"#;

#[test]
fn a_backup_to_a_full_disk_is_incomplete_and_is_no_database() {
    let braid = Braid::new();
    let value = "x".repeat(1 << 20);
    let rows: String = (0..8).map(|id| format!("{id},{value}\n")).collect();
    let file = braid.file("rows.csv", format!("id,value\n{rows}"));
    braid.import(&file, &["--value", "value"], 0);
    let disk = braid.path("disk");
    fs::create_dir(&disk).unwrap();
    // The mount ends with the command, because only the command sees it.
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh", &disk]);
    command.arg(assert_cmd::cargo::cargo_bin("braid")).arg(braid.directory());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if !matches!(output.status.code(), Some(0)) {
        eprintln!("not tested, because this machine forbids mounts: {said}");
        return;
    }
    let shown = String::from_utf8(output.stdout).unwrap();
    let codes: Vec<&str> = shown.lines().filter(|line| line.starts_with("code ")).collect();
    let expected = ["code 3", "code 3", "code 3", "code 0", "code 0", "code 0"];
    assert_eq!(codes, expected, "{shown} {said}");
    let said: Vec<&str> = said.lines().collect();
    assert!(said[0].starts_with("braid: the backup is incomplete: cannot "), "{said:?}");
    assert!(
        said[0].contains("No space left on device")
            && said[0].contains("remove the incomplete copy, free space there")
            && said[0].ends_with("the database itself is unaffected"),
        "{said:?}"
    );
    assert!(said[1].contains("does not hold a database: it has no braid.meta"), "{said:?}");
    assert!(said[2].contains("is not a backup: it has no file braid.meta"), "{said:?}");
    assert!(shown.contains(&value) && shown.contains("no problems found"), "{}", shown.len());
}

#[test]
fn statistics_name_the_slots_that_hold_the_log() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let (db, table) = open(&braid);
        braiddb::block_on(db.create_change_slot("search", 1 << 30)).unwrap();
        braiddb::block_on(db.put(&table, &200, &"x".repeat(10_000))).unwrap();
        let (shown, _) = braid.run(&["stats", "--json"], 0);
        let stats: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let slot = &stats["change_slots"]["search"];
        assert!(slot["behind_bytes"].as_u64() > Some(10_000), "{stats}");
        assert_eq!((&slot["max_bytes"], &slot["lost"]), (&(1 << 30).into(), &false.into()));
        let holders = db.stats().log_holders;
        assert_eq!(holders[0].slot.as_deref(), Some("search"), "{holders:?}");
        let (shown, _) = braid.run(&["stats"], 0);
        assert!(shown.contains("change_slots.search.behind_bytes"), "{shown}");
        db.close().unwrap();
    });
}
