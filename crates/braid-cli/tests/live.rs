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
